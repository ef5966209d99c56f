package import Configuring
import Entitlements
import Foundation
import Ledger
package import Logging
package import Postgres
package import Queue
import RateLimits
import Reconciliation
import ServiceLifecycle
import StoreClients
import StoreEvents
import SupportDesk
package import Transport

/// The stores that the configuration names, as a worker uses them.
package struct StoreComposition {
    private let clients: ClientComposition
    private let accounts: AccountIDs
    private let stores: StoresReader

    package init(
        _ settings: StoreSettings,
        config: Config,
        pool: PostgresPool,
        transport: HTTPTransport,
        salesSignal: Signal,
        reportedIDTime: Duration,
        logger: Logger
    ) {
        var clients = ClientComposition(
            settings: settings,
            config: config,
            pool: pool,
            transport: transport,
            salesSignal: salesSignal,
            logger: logger,
            limiters: StoreRateLimiters(logger: logger)
        )
        let lookups = UserLookups(pool: pool)
        accounts = AccountIDs(keys: config.accounts.keys.map { $0.reveal() }, namespace: config.accounts.namespace)
        stores = StoresReader(
            sources: clients.sources(lookups),
            accounts: accounts,
            lookups: lookups,
            pool: pool,
            reportedIDTime: reportedIDTime,
            logger: logger
        )
        self.clients = clients
    }

    /// What a worker takes of it; `publishes`: what becomes of tickets is published in the outbox.
    package func workerStores(publishes: Bool) -> Worker.Stores {
        var parts = Worker.Stores(reader: stores.reader, limiters: clients.limiters)
        parts.dryRunReader = stores.dryRunReader
        parts.namedReader = { [stores] name, job async throws(ReadFailure) in
            try await stores.read(named: name, for: job)
        }
        parts.lists = clients.lists
        parts.acknowledger = clients.acknowledger
        if let walk = stores.accountWalk { parts.beside.append(walk) }
        parts.beside.append(
            CredentialCheck(
                records: StoreCredentials(pool: clients.pool),
                stores: stores,
                credentials: clients.settings.credentials,
                logger: clients.logger
            )
        )
        parts.desk = deskServices(publishes: publishes)
        return parts
    }

    /// Nothing in observe mode, which writes no tickets.
    private func deskServices(publishes: Bool) -> [any Service] {
        guard clients.config.decision.mode != .observe else { return [] }
        let logger = clients.logger
        let transfers = clients.settings.revenueCatTransfers.map { configuration in
            RevenueCatTransfers(
                configuration: configuration,
                http: clients.http(.revenueCat),
                gate: clients.revenueCatGates[configuration.projectID] ?? .open,
                logger: logger
            )
        }
        // What one of the projects holds can be moved only if all of it can.
        let hasTransferKey = !transfers.isEmpty && transfers.count == clients.settings.revenueCat.count
        let collector = EvidenceCollector(
            records: CaseRecords(pool: clients.pool),
            stores: stores,
            settings: clients.config.desk,
            hasTransferKey: hasTransferKey,
            publishes: publishes,
            logger: logger
        )
        return [
            collector,
            TransferRunner(
                transfers: Transfers(pool: clients.pool),
                collector: collector,
                revenueCat: hasTransferKey ? transfers : [],
                logger: logger
            ),
            TokenWriter(
                tokens: TransferTokens(pool: clients.pool),
                appStore: clients.appStoreApps,
                accounts: accounts,
                logger: logger
            ),
        ]
    }
}

/// Makes the clients of the stores that the configuration names, with their shared limits.
struct ClientComposition {
    let settings: StoreSettings
    let config: Config
    let pool: PostgresPool
    let transport: HTTPTransport
    let salesSignal: Signal
    let logger: Logger
    private(set) var limiters: StoreRateLimiters
    /// One limit for all keys of a project of RevenueCat's: the project is what counts there.
    private(set) var revenueCatGates: [String: RequestPermit] = [:]
    private(set) var appStoreApps: AppStoreApps?
    /// Acknowledges granted sales to Google Play, where that is on and wanted.
    private(set) var acknowledger: Acknowledger?
    /// What stores can list of what they sent.
    private(set) var lists: [StoreList] = []

    /// Makes what each store is read through.
    mutating func sources(_ lookups: UserLookups) -> StoresReader.Sources {
        StoresReader.Sources(
            revenueCat: revenueCat(lookups),
            appStore: appStore(lookups),
            googlePlay: googlePlay(lookups),
            onside: onside()
        )
    }

    func http(_ store: Store) -> HTTPClient {
        HTTPClient(transport: transport, target: store.rawValue).withFaults
    }

    private mutating func gate(_ store: Store, _ credential: String, _ perMinute: Int, _ breaker: CircuitBreaker)
        -> RequestPermit
    {
        let budget = RateBudget(
            pool: pool,
            credential: credential,
            perMinute: perMinute,
            restoreReservePercent: Double(config.reserves.restorePercent),
            supportReservePercent: Double(config.reserves.supportPercent)
        )
        return limiters.add(store, credential, budget: budget, breaker: breaker).permit
    }

    /// What tells the names of several apps of a store apart; nothing where there is one.
    private func suffix(_ app: String, ofOneIn count: Int) -> String { count > 1 ? ".\(app)" : "" }

    private mutating func revenueCat(_ lookups: UserLookups) -> RevenueCatSource? {
        var clients: [RevenueCatClient] = []
        for (configuration, access) in zip(settings.revenueCat, config.revenueCat) {
            let name = "revenuecat" + suffix(access.projectID, ofOneIn: config.revenueCat.count)
            let gate = gate(.revenueCat, name, access.requestsPerMinute, CircuitBreaker())
            revenueCatGates[access.projectID] = gate
            clients.append(
                RevenueCatClient(configuration: configuration, http: http(.revenueCat), gate: gate, logger: logger)
            )
        }
        return clients.isEmpty ? nil : RevenueCatSource(RevenueCatProjects(clients), lookups: lookups)
    }

    private mutating func appStore(_ lookups: UserLookups) -> AppStoreSource? {
        // Without a bundle id a proof can't be matched with an app.
        let apps = config.appStore.apps
        guard !apps.isEmpty else { return nil }
        let expected = AppStoreProofs.Expectation(bundleIDs: apps.map(\.bundleID))
        let transactions = AppStoreProofs(roots: settings.transactionRoots, expected: expected)
        let receipts = AppReceiptProofs(roots: settings.receiptRoots, expected: expected)
        let asked = apps.compactMap { app in app.access.map { (app: app, access: $0) } }
        var clients: [AppStoreClient] = []
        for (configuration, (app, access)) in zip(settings.appStore, asked) {
            let suffix = self.suffix(app.bundleID, ofOneIn: apps.count)
            let client = appStoreClient(configuration, access, transactions, suffix: suffix)
            clients.append(client)
            let notifications = AppStoreNotifications(
                proofs: transactions,
                apps: apps.map { .init(bundleID: $0.bundleID, appID: $0.appID) }
            )
            lists += AppStoreEnvironment.allCases.map {
                .notifications(client, understood: notifications, in: $0, suffix: suffix, logger: logger)
            }
        }
        appStoreApps = clients.isEmpty ? nil : AppStoreApps(clients)
        return AppStoreSource(
            transactions: transactions,
            receipts: receipts,
            apps: appStoreApps,
            lookups: lookups,
            logger: logger
        )
    }

    private mutating func appStoreClient(
        _ configuration: AppStoreConfiguration,
        _ access: AppStoreSettings.Access,
        _ proofs: AppStoreProofs,
        suffix: String
    ) -> AppStoreClient {
        let breaker = CircuitBreaker()
        var gates: [AppStoreEnvironment: [AppStoreBudget: RequestPermit]] = [:]
        for environment in AppStoreEnvironment.allCases {
            // Test notifications are asked for by doctor, and by no worker.
            for budget in AppStoreBudget.allCases where budget != .test {
                let widest = environment == .production ? access.requestsPerMinute : access.requestsPerMinute / 10
                let share = max(access.requestsPerMinute > 0 ? 1 : 0, widest * budget.perSecond / 50)
                let name = "app_store.\(environment.ledgerName).\(budget.rawValue)\(suffix)"
                gates[environment, default: [:]][budget] = gate(.appStore, name, share, breaker)
            }
        }
        return AppStoreClient(
            configuration: configuration,
            proofs: proofs,
            http: http(.appStore),
            gate: { [gates] in gates[$0]?[$1] ?? .open },
            logger: logger
        )
    }

    private mutating func googlePlay(_ lookups: UserLookups) -> GooglePlaySource? {
        var clients: [GooglePlayClient] = []
        for (configuration, access) in zip(settings.googlePlay, config.googlePlay) {
            let suffix = self.suffix(access.packageName, ofOneIn: config.googlePlay.count)
            let breaker = CircuitBreaker()
            var gates: [GooglePlayBudget: RequestPermit] = [:]
            for budget in GooglePlayBudget.allCases {
                let share = budget.perMinute * access.requestsPerMinute / GooglePlayBudget.subscriptions.perMinute
                gates[budget] = gate(.googlePlay, "google_play.\(budget.rawValue)\(suffix)", share, breaker)
            }
            let client = GooglePlayClient(
                configuration: configuration,
                http: http(.googlePlay),
                gate: { [gates] in gates[$0] ?? .open },
                logger: logger
            )
            clients.append(client)
            lists.append(.voided(client, suffix: suffix))
        }
        guard !clients.isEmpty else { return nil }
        let apps = GooglePlayApps(clients)
        if config.googlePlay.contains(where: \.acknowledges), config.decision.mode != .observe {
            acknowledger = Acknowledger(
                records: Acknowledgements(pool: pool),
                apps: apps,
                signal: salesSignal,
                logger: logger
            )
        }
        return GooglePlaySource(
            apps,
            unacknowledged: Set(config.googlePlay.filter { !$0.acknowledges }.map(\.packageName)),
            lookups: lookups
        )
    }

    private mutating func onside() -> OnsideSource? {
        guard let configuration = settings.onside, let access = config.onside else { return nil }
        let gate = gate(.onside, "onside", access.requestsPerMinute, CircuitBreaker())
        let client = OnsideClient(configuration: configuration, http: http(.onside), gate: gate, logger: logger)
        return OnsideSource(client: client, logger: logger)
    }
}
