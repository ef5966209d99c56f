import Configuring
import Crypto
import Entitlements
import Foundation
import Logging
import Postgres
import Storage
import StoreClients
import SyncWorker
import Transport
import X509

/// Makes the witnesses that the configuration asks for, with their shared limits.
struct StoreComposition {
    let config: Config
    let pool: PostgresPool
    let transport: HTTPTransport
    let logger: Logger
    private(set) var gates = StoreGates()
    /// Tells Google Play of granted sales, where it is on and that is wanted.
    private(set) var acknowledger: Acknowledger?

    init(config: Config, pool: PostgresPool, transport: HTTPTransport, logger: Logger) {
        self.config = config
        self.pool = pool
        self.transport = transport
        self.logger = logger
    }

    /// Makes sure that there is anybody to ask.
    ///
    /// - Throws: `CommandFailure`.
    static func check(_ config: Config) throws {
        guard
            config.revenueCat != nil || config.appStore.access != nil || config.googlePlay != nil
                || config.onside != nil
        else {
            throw CommandFailure(
                .configuration,
                "no store is configured; set REVENUECAT_API_KEY and REVENUECAT_PROJECT_ID, or the credentials of the App"
                    + " Store, Google Play or Onside"
            )
        }
    }

    /// Makes the reader.
    ///
    /// - Throws: `CommandFailure` where no store is configured, or a store's settings can't be used.
    mutating func reader() throws -> StoreReader {
        let lookups = UserLookups(pool: pool)
        let sources = StoresReader.Sources(
            revenueCat: try revenueCat(lookups),
            appStore: try appStore(lookups),
            googlePlay: try googlePlay(),
            onside: try onside()
        )
        try Self.check(config)
        let accounts = AccountIDs(keys: config.accounts.keys.map { $0.reveal() }, namespace: config.accounts.namespace)
        return StoresReader(sources: sources, accounts: accounts, lookups: lookups).reader
    }

    private func http(_ store: Store) -> StoreHTTP {
        StoreHTTP(transport: transport, target: store.rawValue).withFaults
    }

    private mutating func gate(_ store: Store, _ credential: String, _ perMinute: Int, _ breaker: Breaker)
        -> RequestGate
    {
        let budget = RateBudget(
            pool: pool,
            credential: credential,
            perMinute: perMinute,
            restoreReservePercent: Double(config.reserves.restorePercent),
            supportReservePercent: Double(config.reserves.supportPercent)
        )
        return gates.add(store, credential, budget: budget, breaker: breaker, logger: logger).gate
    }

    private mutating func revenueCat(_ lookups: UserLookups) throws -> RevenueCatSource? {
        guard let settings = config.revenueCat else { return nil }
        let gate = gate(.revenueCat, "revenuecat", settings.requestsPerMinute, Breaker())
        let client = try usable("RevenueCat", .revenueCatAPIKey) {
            RevenueCatClient(
                configuration: try RevenueCatConfiguration(
                    apiKey: settings.apiKey.reveal(),
                    projectID: settings.projectID,
                    baseURL: settings.baseURL
                ),
                http: http(.revenueCat),
                gate: gate,
                logger: logger
            )
        }
        return RevenueCatSource(client: client, lookups: lookups)
    }

    private mutating func appStore(_ lookups: UserLookups) throws -> AppStoreSource? {
        // Without a bundle id nobody can tell whether a proof is about our app.
        guard let bundleID = config.appStore.bundleID else { return nil }
        let roots = StoreRoots(config.appStore)
        let transactions = AppStoreProofs(roots: try roots.transactions(), expected: .init(bundleID: bundleID))
        let receipts = AppReceiptProofs(roots: try roots.receipts(), expected: .init(bundleID: bundleID))
        var client: AppStoreClient?
        if let access = config.appStore.access {
            let breaker = Breaker()
            var gates: [AppStoreEnvironment: [AppStoreBudget: RequestGate]] = [:]
            for environment in AppStoreEnvironment.allCases {
                for budget in AppStoreBudget.allCases {
                    let widest = environment == .production ? access.requestsPerMinute : access.requestsPerMinute / 10
                    let share = max(access.requestsPerMinute > 0 ? 1 : 0, widest * budget.perSecond / 50)
                    let name = "app_store.\(environment.ledgerName).\(budget.rawValue)"
                    gates[environment, default: [:]][budget] = gate(.appStore, name, share, breaker)
                }
            }
            client = try usable("The App Store", .appStorePrivateKey) { [gates, logger] in
                AppStoreClient(
                    configuration: try AppStoreConfiguration(
                        issuerID: access.issuerID,
                        keyID: access.keyID,
                        privateKey: access.privateKey.reveal(),
                        bundleID: access.bundleID,
                        baseURL: access.baseURL ?? "https://api.storekit.apple.com",
                        sandboxBaseURL: access.sandboxBaseURL ?? "https://api.storekit-sandbox.apple.com"
                    ),
                    proofs: transactions,
                    http: http(.appStore),
                    gate: { gates[$0]?[$1] ?? .open },
                    logger: logger
                )
            }
        }
        return AppStoreSource(
            transactions: transactions,
            receipts: receipts,
            client: client,
            lookups: lookups,
            logger: logger
        )
    }

    private mutating func googlePlay() throws -> GooglePlaySource? {
        guard let settings = config.googlePlay else { return nil }
        let breaker = Breaker()
        var gates: [GooglePlayBudget: RequestGate] = [:]
        for budget in GooglePlayBudget.allCases {
            let share = budget.perMinute * settings.requestsPerMinute / GooglePlayBudget.subscriptions.perMinute
            gates[budget] = gate(.googlePlay, "google_play.\(budget.rawValue)", share, breaker)
        }
        let client = try usable("Google Play", .googlePlayServiceAccount) { [gates, logger] in
            GooglePlayClient(
                configuration: try GooglePlayConfiguration(
                    serviceAccount: settings.serviceAccount.reveal(),
                    packageName: settings.packageName,
                    baseURL: settings.baseURL ?? "https://androidpublisher.googleapis.com",
                    oauthBaseURL: settings.oauthBaseURL
                ),
                http: http(.googlePlay),
                gate: { gates[$0] ?? .open },
                logger: logger
            )
        }
        if settings.acknowledges, config.decision.mode != .observe {
            acknowledger = Acknowledger(records: Acknowledgements(pool: pool), client: client)
        }
        return GooglePlaySource(client: client)
    }

    private mutating func onside() throws -> OnsideSource? {
        guard let settings = config.onside else { return nil }
        let gate = gate(.onside, "onside", settings.requestsPerMinute, Breaker())
        let client = try usable("Onside", .onsideMerchantSecret) {
            OnsideClient(
                configuration: try OnsideConfiguration(
                    merchantID: settings.merchantID,
                    merchantSecret: settings.merchantSecret.reveal(),
                    secretKeyID: settings.secretKeyID,
                    bundleID: settings.bundleID,
                    baseURL: settings.baseURL ?? "https://onside.io",
                    secretIsBase64: settings.secretIsBase64
                ),
                http: http(.onside),
                gate: gate,
                logger: logger
            )
        }
        return OnsideSource(client: client, logger: logger)
    }

    /// Makes a client; what is wrong with its settings names the store and the variable that only making it can check.
    private func usable<Client>(
        _ store: String,
        _ variable: Variable,
        _ make: () throws -> Client
    ) throws -> Client {
        do {
            return try make()
        } catch {
            throw CommandFailure(
                .configuration,
                "\(store): \(error); set \(variable.rawValue), best as the path in \(variable.rawValue)_FILE"
            )
        }
    }
}
