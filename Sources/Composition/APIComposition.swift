package import Configuring
import Entitlements
package import HTTPServing
import Outbox
package import Postgres
package import Queue
import SignedTokens
import StoreClients
import StoreEvents
package import Transport
import UserRequests
package import WebAPI

/// What the API's settings come to, checked before anything is connected.
package struct EndpointSettings {
    private(set) var messages: Messages
    private(set) var appStore: AppStoreNotifications?
    let proxies: TrustedProxies

    /// - Throws: `ConfigurationFaults`, all at once; `CommandFailure` where there is no endpoint to serve.
    package init(_ config: Config) throws {
        var faults: [ConfigurationFault] = []
        let own = config.api.messages.map { Array($0.utf8) }
        do throws(Messages.Fault) {
            messages = try Messages(support: config.supportContactURL, own: own)
        } catch {
            let fix = "Set it, best as the path in \(Variable.messages.fileVariable)"
            faults.append(.init(variable: Variable.messages.rawValue, problem: error.problem, fix: fix))
            messages = try Messages()
        }
        do throws(ConfigurationFaults) { proxies = try Self.proxies(config) } catch {
            faults += error.faults
            proxies = TrustedProxies()
        }
        if !config.appStore.apps.isEmpty {
            do {
                let proofs = AppStoreProofs(
                    roots: try StoreRoots(config.appStore).transactions(),
                    expected: .init(bundleIDs: config.appStore.apps.map(\.bundleID))
                )
                appStore = AppStoreNotifications(
                    proofs: proofs,
                    apps: config.appStore.apps.map { .init(bundleID: $0.bundleID, appID: $0.appID) }
                )
            } catch let error as ConfigurationFaults { faults += error.faults }
        }
        guard faults.isEmpty else { throw ConfigurationFaults(faults: faults) }
        guard
            config.api.takesAppTokens || config.api.webhooks.takesRevenueCat || !config.api.webhooks.push.isEmpty
                || appStore != nil || config.console.address != nil
        else {
            throw CommandFailure(
                .configuration,
                "the API has no endpoint to serve; set FIREBASE_PROJECT_ID or APP_TOKEN_ISSUER for users' apps, or what stores' webhooks are checked"
                    + " with: REVENUECAT_WEBHOOK_SECRET, APP_STORE_BUNDLE_ID or PUBSUB_AUDIENCE; for the console alone CONSOLE_PORT"
            )
        }
    }
}

extension EndpointSettings {
    /// Whose word for a client's address is taken.
    ///
    /// - Throws: `ConfigurationFaults`.
    static func proxies(_ config: Config) throws(ConfigurationFaults) -> TrustedProxies {
        guard let list = config.api.trustedProxies else { return TrustedProxies() }
        do throws(TrustedProxies.Fault) { return try TrustedProxies(list) } catch {
            let problem = "\"\(error.entry)\" is no address and no network"
            let fix = "Set addresses and networks such as 10.0.0.0/8, separated by commas"
            throw ConfigurationFaults(
                faults: [.init(variable: Variable.httpTrustedProxies.rawValue, problem: problem, fix: fix)]
            )
        }
    }
}

/// Makes an API of the configuration.
package struct APIComposition {
    package let endpoints: APIEndpoints
    /// Have to run beside the server, and to end after it.
    package let services: APIServices

    /// What answers apps, and learns of a worker's ends.
    package static func statusHub(_ runtime: Runtime, pool: PostgresPool) -> StatusHub {
        StatusHub(requests: AppRequests(pool: pool))
    }

    /// `dequeue`: wakes a worker of the same process.
    ///
    /// - Throws: `ConfigurationFaults`.
    package init(
        _ runtime: Runtime,
        _ settings: EndpointSettings,
        pool: PostgresPool,
        transport: HTTPTransport,
        statusHub: StatusHub,
        dequeue: DequeueSignal?
    ) throws {
        let config = runtime.config
        let requests = AppRequests(pool: pool, asker: dequeue?.sender ?? "")
        let counts = RequestCounts(pool: pool)
        services = APIServices(
            requests: requests,
            statusHub: statusHub,
            inbox: Inbox(pool: pool),
            databaseWait: config.api.databaseWait,
            logger: runtime.logger
        ) { dequeue?.raise() }
        endpoints = APIEndpoints(
            services: services,
            tokens: try AppTokens(config.api, runtime, transport),
            messages: settings.messages,
            senders: try Self.senders(runtime, settings, transport),
            perUser: RequestLimit(perMinute: config.api.perUser, of: "user", counts: counts, logger: runtime.logger),
            perAddress: RequestLimit(
                perMinute: config.api.perAddress,
                of: "address",
                counts: counts,
                logger: runtime.logger
            ),
            origins: config.api.allowedOrigins,
            readiness: ReadinessProbe(databaseWait: config.api.databaseWait, wasReady: true) {
                (try? await pool.query("SELECT 1")) != nil
            }.readiness,
            logger: runtime.logger
        )
    }

    /// Where and how the API listens.
    package static func listening(_ runtime: Runtime, proxies: TrustedProxies) -> APISettings {
        let config = runtime.config
        var listening = APISettings(
            host: config.http.host,
            port: config.http.port,
            requestTime: runtime.requestTime
        )
        listening.maxConnections = OpenFiles.raise(for: config.api.maxConnections)
        listening.maxPerAddress = config.api.maxConnectionsPerAddress
        listening.proxies = proxies
        return listening
    }

    private static func senders(
        _ runtime: Runtime,
        _ settings: EndpointSettings,
        _ transport: HTTPTransport
    ) throws -> WebhookSenders {
        let webhooks = runtime.config.api.webhooks
        var senders = WebhookSenders(
            revenueCat: webhooks.revenueCat.compactMap { sender in
                RevenueCatWebhooks(
                    authorization: sender.authorization?.reveal(),
                    secret: sender.secret?.reveal()
                )
            },
            appStore: settings.appStore
        )
        // Apps whose notifications come by one topic are separated by what these say.
        let bySender = Dictionary(grouping: webhooks.push, by: \.sender)
        for push in webhooks.push where push == bySender[push.sender]?.first {
            let packages = bySender[push.sender]?.map(\.packageName) ?? []
            do {
                senders.googlePlay.append((try PushTokens(push, runtime, transport), Set(packages)))
            } catch let error as ConfigurationFaults {
                throw ConfigurationFaults(
                    faults: error.faults.map { runtime.config.named($0, of: push.packageName, in: .googlePlay) }
                )
            }
        }
        return senders
    }
}

extension PushTokens {
    /// - Throws: `ConfigurationFaults`.
    init(_ push: APIConfig.Push, _ runtime: Runtime, _ transport: HTTPTransport) throws {
        self = try configured { () throws(SettingFaults<Fault>) in
            try PushTokens(
                audience: push.audience,
                serviceAccount: push.serviceAccount,
                keysURL: push.keysURL ?? PushTokens.usualKeysURL,
                http: HTTPClient(transport: transport, target: "google_keys"),
                logger: runtime.logger
            )
        }
    }
}

extension AppTokens {
    /// - Throws: `ConfigurationFaults`.
    fileprivate init?(_ config: APIConfig, _ runtime: Runtime, _ transport: HTTPTransport) throws {
        self.init(
            firebase: try config.firebase.map { try FirebaseTokens($0, runtime, transport) },
            issuer: try config.issuer.map { try IssuerTokens($0, runtime, transport) }
        )
    }
}

extension FirebaseTokens {
    /// - Throws: `ConfigurationFaults`.
    package init(_ firebase: APIConfig.Firebase, _ runtime: Runtime, _ transport: HTTPTransport) throws {
        self = try configured { () throws(SettingFaults<Fault>) in
            try FirebaseTokens(
                projectID: firebase.projectID,
                keysURL: firebase.keysURL ?? Self.usualKeysURL,
                http: HTTPClient(transport: transport, target: "google_keys"),
                logger: runtime.logger
            )
        }
    }
}

extension IssuerTokens {
    /// - Throws: `ConfigurationFaults`.
    package init(_ issuer: APIConfig.Issuer, _ runtime: Runtime, _ transport: HTTPTransport) throws {
        self = try configured { () throws(SettingFaults<Fault>) in
            try IssuerTokens(
                issuer: issuer.issuer,
                audience: issuer.audience,
                keysURL: issuer.keysURL,
                claim: issuer.userClaim,
                http: HTTPClient(transport: transport, target: "issuer_keys"),
                logger: runtime.logger
            )
        }
    }
}

extension PushTokens.Fault: SettingFault {
    package var variable: Variable {
        switch self {
        case .audience: .pubSubAudience
        case .serviceAccount: .pubSubServiceAccount
        case .keysURL, .insecureKeysURL: .googleKeysURL
        }
    }
}

extension FirebaseTokens.Fault: SettingFault {
    package var variable: Variable {
        switch self {
        case .projectID: .firebaseProjectID
        case .keysURL, .insecureKeysURL: .firebaseKeysURL
        }
    }
}

extension IssuerTokens.Fault: SettingFault {
    package var variable: Variable {
        switch self {
        case .issuer, .insecureIssuer: .appTokenIssuer
        case .audience: .appTokenAudience
        case .claim: .appTokenUserClaim
        case .keysURL, .insecureKeysURL: .appTokenKeysURL
        }
    }
}

extension WebhookSender.Fault: SettingFault {
    package var variable: Variable {
        switch self {
        case .url, .insecureURL: .outboxURL
        case .secret: .outboxSecret
        }
    }
}
