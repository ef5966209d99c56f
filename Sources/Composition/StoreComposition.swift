package import Configuring
import Crypto
import Entitlements
import Foundation
import Ledger
package import Logging
package import Postgres
import RateLimits
package import Reconciliation
import Runs
import StoreClients
import StoreEvents
import SupportDesk
package import SyncWorker
package import Transport
import X509

/// Makes the witnesses that the configuration asks for, with their shared limits.
package struct StoreComposition {
    package let settings: StoreSettings
    package let config: Config
    package let pool: PostgresPool
    package let transport: HTTPTransport
    package let logger: Logger
    private(set) var gates: StoreRateLimiters
    /// One limit for all of RevenueCat's keys: what counts there is the project.
    private var revenueCatGate: RequestGate?
    /// Asks the App Store, where it is on.
    private var appStoreClient: AppStoreClient?
    /// Tells Google Play of granted sales, where it is on and that is wanted.
    private(set) var acknowledger: Acknowledger?
    /// What workers do for the desk, once the reader is made.
    private(set) var desk: DeskWork?
    /// Asks whether the credentials in use know our customers, once the reader is made.
    private(set) var credentials: CredentialCheck?
    /// What stores can list of what they sent, once the reader is made.
    private(set) var lists: [StoreList] = []
    /// What a worker does for people who ask what it would do; in observe mode as well.
    private(set) var dryRunWork: DryRunWork?

    package init(
        _ settings: StoreSettings,
        config: Config,
        pool: PostgresPool,
        transport: HTTPTransport,
        logger: Logger
    ) {
        self.settings = settings
        self.config = config
        self.pool = pool
        self.transport = transport
        self.logger = logger
        gates = StoreRateLimiters(logger: logger)
    }

    /// Makes the reader.
    package mutating func reader() -> StoreReader {
        let lookups = UserLookups(pool: pool)
        let sources = StoresReader.Sources(
            revenueCat: revenueCat(lookups),
            appStore: appStore(lookups),
            googlePlay: googlePlay(lookups),
            onside: onside()
        )
        let accounts = AccountIDs(keys: config.accounts.keys.map { $0.reveal() }, namespace: config.accounts.namespace)
        let stores = StoresReader(
            sources: sources,
            accounts: accounts,
            lookups: lookups,
            pool: pool,
            logger: logger
        )
        desk = deskWork(stores, accounts)
        credentials = CredentialCheck(
            records: StoreCredentials(pool: pool),
            stores: stores,
            credentials: settings.credentials,
            logger: logger
        )
        dryRunWork = DryRunWork(dryRuns: DryRuns(pool: pool), reader: stores.dryRunReader)
        return stores.reader
    }

    /// In observe mode nothing is written, tickets included, so that there is nothing to do.
    private func deskWork(_ stores: StoresReader, _ accounts: AccountIDs) -> DeskWork? {
        guard config.decision.mode != .observe else { return nil }
        let transfers = settings.revenueCatTransfers.map { configuration in
            RevenueCatTransfers(
                configuration: configuration,
                http: http(.revenueCat),
                gate: revenueCatGate ?? .open,
                logger: logger
            )
        }
        let collector = EvidenceCollector(
            records: CaseRecords(pool: pool),
            stores: stores,
            settings: config.desk,
            hasTransferKey: transfers != nil,
            logger: logger
        )
        return DeskWork(
            collector: collector,
            runner: TransferRunner(
                transfers: Transfers(pool: pool),
                collector: collector,
                revenueCat: transfers,
                logger: logger
            ),
            tokens: TokenWriter(
                tokens: TransferTokens(pool: pool),
                appStore: appStoreClient,
                accounts: accounts,
                logger: logger
            )
        )
    }

    /// What a worker lists while runs go on that catch up.
    package var lister: ListingWork {
        ListingWork(listings: Listings(pool: pool), lists: lists, retry: config.retry)
    }

    private func http(_ store: Store) -> HTTPClient {
        HTTPClient(transport: transport, target: store.rawValue).withFaults
    }

    private mutating func gate(_ store: Store, _ credential: String, _ perMinute: Int, _ breaker: CircuitBreaker)
        -> RequestGate
    {
        let budget = RateBudget(
            pool: pool,
            credential: credential,
            perMinute: perMinute,
            restoreReservePercent: Double(config.reserves.restorePercent),
            supportReservePercent: Double(config.reserves.supportPercent)
        )
        return gates.add(store, credential, budget: budget, breaker: breaker).gate
    }

    private mutating func revenueCat(_ lookups: UserLookups) -> RevenueCatSource? {
        guard let configuration = settings.revenueCat, let access = config.revenueCat else { return nil }
        let gate = gate(.revenueCat, "revenuecat", access.requestsPerMinute, CircuitBreaker())
        revenueCatGate = gate
        let client = RevenueCatClient(configuration: configuration, http: http(.revenueCat), gate: gate, logger: logger)
        return RevenueCatSource(client: client, lookups: lookups)
    }

    private mutating func appStore(_ lookups: UserLookups) -> AppStoreSource? {
        // Without a bundle id nobody can tell whether a proof is about our app.
        guard let bundleID = config.appStore.bundleID else { return nil }
        let transactions = AppStoreProofs(roots: settings.transactionRoots, expected: .init(bundleID: bundleID))
        let receipts = AppReceiptProofs(roots: settings.receiptRoots, expected: .init(bundleID: bundleID))
        if let configuration = settings.appStore, let access = config.appStore.access {
            let breaker = CircuitBreaker()
            var gates: [AppStoreEnvironment: [AppStoreBudget: RequestGate]] = [:]
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
        var gates: [GooglePlayBudget: RequestGate] = [:]
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
            acknowledger = Acknowledger(records: Acknowledgements(pool: pool), client: client)
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
