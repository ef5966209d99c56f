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
            logger: logger
        )
        self.clients = clients
    }

    /// What a worker takes of it; `publishes`: what becomes of tickets is published in the outbox.
    package func workerStores(publishes: Bool) -> Worker.Stores {
        var parts = Worker.Stores(reader: stores.reader, limiters: clients.limiters)
        parts.dryRunReader = stores.dryRunReader
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
                gate: clients.revenueCatGate ?? .open,
                logger: logger
            )
        }
        let collector = EvidenceCollector(
            records: CaseRecords(pool: clients.pool),
            stores: stores,
            settings: clients.config.desk,
            hasTransferKey: transfers != nil,
            publishes: publishes,
            logger: logger
        )
        return [
            collector,
            TransferRunner(
                transfers: Transfers(pool: clients.pool),
                collector: collector,
                revenueCat: transfers,
                logger: logger
            ),
            TokenWriter(
                tokens: TransferTokens(pool: clients.pool),
                appStore: clients.appStoreClient,
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
    /// One limit for all of RevenueCat's keys: the project is what counts there.
    private(set) var revenueCatGate: RequestPermit?
    private(set) var appStoreClient: AppStoreClient?
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

    private mutating func revenueCat(_ lookups: UserLookups) -> RevenueCatSource? {
        guard let configuration = settings.revenueCat, let access = config.revenueCat else { return nil }
        let gate = gate(.revenueCat, "revenuecat", access.requestsPerMinute, CircuitBreaker())
        revenueCatGate = gate
        let client = RevenueCatClient(configuration: configuration, http: http(.revenueCat), gate: gate, logger: logger)
        return RevenueCatSource(client: client, lookups: lookups)
    }

    private mutating func appStore(_ lookups: UserLookups) -> AppStoreSource? {
        // Without a bundle id a proof can't be matched with the app.
        guard let bundleID = config.appStore.bundleID else { return nil }
        let transactions = AppStoreProofs(roots: settings.transactionRoots, expected: .init(bundleID: bundleID))
        let receipts = AppReceiptProofs(roots: settings.receiptRoots, expected: .init(bundleID: bundleID))
        if let configuration = settings.appStore, let access = config.appStore.access {
            let breaker = CircuitBreaker()
            var gates: [AppStoreEnvironment: [AppStoreBudget: RequestPermit]] = [:]
            for environment in AppStoreEnvironment.allCases {
                for budget in AppStoreBudget.allCases {
                    let widest = environment == .production ? access.requestsPerMinute : access.requestsPerMinute / 10
                    let share = max(access.requestsPerMinute > 0 ? 1 : 0, widest * budget.perSecond / 50)
                    let name = "app_store.\(environment.ledgerName).\(budget.rawValue)"
                    gates[environment, default: [:]][budget] = gate(.appStore, name, share, breaker)
                }
            }
            let client = AppStoreClient(
                configuration: configuration,
                proofs: transactions,
                http: http(.appStore),
                gate: { [gates] in gates[$0]?[$1] ?? .open },
                logger: logger
            )
            appStoreClient = client
            let appID = config.appStore.appID
            let notifications = AppStoreNotifications(proofs: transactions, bundleID: bundleID, appID: appID)
            lists += AppStoreEnvironment.allCases.map {
                .notifications(client, understood: notifications, in: $0, logger: logger)
            }
        }
        return AppStoreSource(
            transactions: transactions,
            receipts: receipts,
            client: appStoreClient,
            lookups: lookups,
            logger: logger
        )
    }

    private mutating func googlePlay(_ lookups: UserLookups) -> GooglePlaySource? {
        guard let configuration = settings.googlePlay, let access = config.googlePlay else { return nil }
        let breaker = CircuitBreaker()
        var gates: [GooglePlayBudget: RequestPermit] = [:]
        for budget in GooglePlayBudget.allCases {
            let share = budget.perMinute * access.requestsPerMinute / GooglePlayBudget.subscriptions.perMinute
            gates[budget] = gate(.googlePlay, "google_play.\(budget.rawValue)", share, breaker)
        }
        let client = GooglePlayClient(
            configuration: configuration,
            http: http(.googlePlay),
            gate: { [gates] in gates[$0] ?? .open },
            logger: logger
        )
        if access.acknowledges, config.decision.mode != .observe {
            acknowledger = Acknowledger(
                records: Acknowledgements(pool: pool),
                client: client,
                signal: salesSignal,
                logger: logger
            )
        }
        lists.append(.voided(client))
        return GooglePlaySource(client: client, lookups: lookups)
    }

    private mutating func onside() -> OnsideSource? {
        guard let configuration = settings.onside, let access = config.onside else { return nil }
        let gate = gate(.onside, "onside", access.requestsPerMinute, CircuitBreaker())
        let client = OnsideClient(configuration: configuration, http: http(.onside), gate: gate, logger: logger)
        return OnsideSource(client: client, logger: logger)
    }
}
