@testable import Entitlements
import FoundationEssentials
import Logging
import Telemetry
import Testing

@testable import Configuring

@Suite struct ConfigTests {
    @Test func `An empty environment gives the documented defaults`() throws {
        let config = try Config.load(environment: [:])
        #expect(config.database.url == nil)
        #expect(!config.database.isPooled)
        #expect(config.decision == DecisionSettings())
        #expect(config.brake == DemotionBrake(percent: 0.5, minimum: 5))
        let retry = RetryPolicy(
            maxAttempts: 8,
            backoffBase: .seconds(1),
            backoffCap: .seconds(300),
            maxAge: .seconds(86_400)
        )
        #expect(config.retry == retry)
        #expect(config.worker == Config.Worker(concurrency: 256, batch: 500, lease: .seconds(10)))
        #expect(config.reserves == Config.Reserves(restorePercent: 25, supportPercent: 5))
        #expect(config.revenueCat.isEmpty)
        #expect(config.http == Config.ListenAddress(host: "127.0.0.1", port: 8080))
        #expect(!config.admin.isSet)
        #expect(config.supportContactURL == nil)
        #expect(config.log == Config.Log(level: .info, format: .text))
        #expect(config.sqlDirectory == nil)
    }

    @Test func `Every variable reaches its field, with its unit`() throws {
        let config = try Config.load(environment: [
            "DATABASE_URL": "postgresql://worker:hush@pooler:6432/app", "DATABASE_DIRECT_URL": "host=db dbname=app",
            "MODE": "promote_only", "REVENUECAT_API_KEY": "sk_abc", "REVENUECAT_PROJECT_ID": "proj1a2b",
            "REVENUECAT_BASE_URL": "http://127.0.0.1:8090/v2/", "REVENUECAT_REQUESTS_PER_MINUTE": "0",
            "RESTORE_RESERVE_PERCENT": "90", "SUPPORT_RESERVE_PERCENT": "5", "JOB_MAX_ATTEMPTS": "4",
            "JOB_BACKOFF_BASE_MS": "50", "JOB_BACKOFF_CAP_MS": "500", "JOB_MAX_AGE_SECONDS": "60",
            "JOB_LEASE_SECONDS": "2", "ABSENCE_MARGIN_SECONDS": "0", "ABSENCE_MARGIN_GOOGLE_PLAY_SECONDS": "7",
            "BACKGROUND_CHECK_DAYS": "0",
            "DEMOTION_BRAKE_PERCENT": "1.25", "DEMOTION_BRAKE_MINIMUM": "0", "WORKER_CONCURRENCY": "1",
            "WORKER_BATCH": "2000", "HTTP_HOST": "0.0.0.0", "HTTP_PORT": "80", "ADMIN_HOST": "[::1]",
            "ADMIN_PORT": "0", "ADMIN_NAMES": "console.example.com, admin.internal",
            "SUPPORT_CONTACT_URL": "mailto:help@example.com", "LOG_LEVEL": "DEBUG",
            "LOG_FORMAT": "json", "ENTITLEMENT_SYNC_SQL_DIR": "/usr/share/entitlement-sync/sql",
        ])
        #expect(config.database.url?.reveal() == "postgresql://worker:hush@pooler:6432/app")
        #expect(config.database.sessionURL?.reveal() == "host=db dbname=app")
        #expect(config.database.isPooled)
        let decision = DecisionSettings(
            mode: .promoteOnly,
            absenceMargin: .zero,
            absenceMarginGooglePlay: .seconds(7),
            backgroundCheck: nil
        )
        #expect(config.decision == decision)
        let revenueCat = try #require(config.revenueCat.first)
        #expect(revenueCat.apiKey.reveal() == "sk_abc")
        #expect(revenueCat.projectID == "proj1a2b")
        #expect(revenueCat.baseURL == "http://127.0.0.1:8090/v2")
        #expect(revenueCat.requestsPerMinute == 0)
        #expect(config.reserves == Config.Reserves(restorePercent: 90, supportPercent: 5))
        let retry = RetryPolicy(
            maxAttempts: 4,
            backoffBase: .milliseconds(50),
            backoffCap: .milliseconds(500),
            maxAge: .seconds(60)
        )
        #expect(config.retry == retry)
        #expect(config.brake == DemotionBrake(percent: 1.25, minimum: 0))
        #expect(config.worker == Config.Worker(concurrency: 1, batch: 2000, lease: .seconds(2)))
        #expect(config.http == Config.ListenAddress(host: "0.0.0.0", port: 80))
        let admin = Config.Admin(
            address: Config.ListenAddress(host: "::1", port: 0),
            names: ["console.example.com", "admin.internal"],
            isSet: true
        )
        #expect(config.admin == admin)
        #expect(config.supportContactURL == "mailto:help@example.com")
        #expect(config.log == Config.Log(level: .debug, format: .json))
        #expect(config.sqlDirectory == "/usr/share/entitlement-sync/sql")
    }

    @Test func `Empty variables count as not set, and unknown ones are ignored`() throws {
        var environment = Dictionary(uniqueKeysWithValues: Variable.allCases.map { ($0.rawValue, "") })
        for variable in Variable.allCases { environment[variable.fileVariable] = "" }
        environment["REVENUECAT_API_KEI"] = "misspelt"
        environment["JOB_MAX_ATEMPTS"] = "many"
        let config = try Config.load(environment: environment)
        #expect(config.retry.maxAttempts == 8)
        #expect(config.revenueCat.isEmpty)
    }

    static let stores: [String: [String: String]] = [
        "the App Store": [
            "APP_STORE_ISSUER_ID": "57246542-96fe-1a63-e053-0824d011072a", "APP_STORE_KEY_ID": "2X9R4HXF34",
            "APP_STORE_PRIVATE_KEY": "-----BEGIN PRIVATE KEY-----\nMIG\n-----END PRIVATE KEY-----",
            "APP_STORE_BUNDLE_ID": "com.example.app",
        ],
        "Google Play": [
            "GOOGLE_PLAY_SERVICE_ACCOUNT": "{\n \"private_key\": \"x\"\n}",
            "GOOGLE_PLAY_PACKAGE_NAME": "com.example.app",
        ],
        "Onside": [
            "ONSIDE_MERCHANT_ID": "merchant", "ONSIDE_MERCHANT_SECRET": "hush hush", "ONSIDE_SECRET_KEY_ID": "key-1",
            "ONSIDE_BUNDLE_ID": "com.example.app",
        ],
    ]

    @Test func `A store is on with all of its credentials, and each that is missing is a fault`() throws {
        let off = try Config.load(environment: [:])
        #expect(off.appStore.apps.isEmpty && off.googlePlay.isEmpty && off.onside == nil)
        let all = Self.stores.values.reduce(into: [:]) { $0.merge($1) { first, _ in first } }
        let config = try Config.load(environment: all)
        #expect(config.appStore.apps.first?.access?.privateKey.reveal().hasPrefix("-----BEGIN") == true)
        #expect(config.appStore.apps.first?.access?.requestsPerMinute == 3000)
        #expect(config.googlePlay.first?.acknowledges == true && config.googlePlay.first?.requestsPerMinute == 2400)
        #expect(config.onside?.merchantSecret.reveal() == "hush hush" && config.onside?.requestsPerMinute == 120)
        for variables in Self.stores.values {
            for name in variables.keys {
                // The bundle id alone is no half of anything: proofs are verified with it.
                #expect(try faults(of: variables.filter { $0.key != name }).map(\.variable) == [name])
            }
        }
        let bundleAlone = try Config.load(environment: ["APP_STORE_BUNDLE_ID": "com.example.app"])
        #expect(bundleAlone.appStore.apps.first?.bundleID == "com.example.app" && !bundleAlone.appStore.isAsked)
    }

    private static let provider = [
        "CONSOLE_URL": "https://desk.example.com", "OIDC_ISSUER": "https://id.example.com/", "OIDC_CLIENT_ID": "desk",
        "OIDC_CLIENT_SECRET": "hush", "OIDC_ROLES": "admin=Support Admins, approver=a=b",
    ]

    @Test func `Sign-in through a provider has all of its settings, and each that is missing is a fault`() throws {
        #expect(try Config.load(environment: [:]).console.provider == nil)
        let console = try Config.load(environment: Self.provider).console
        let provider = try #require(console.provider)
        #expect(provider.issuer == "https://id.example.com/", "byte for byte")
        #expect(provider.roles.map(\.role) == ["admin", "approver"])
        #expect(provider.roles.map(\.group) == ["Support Admins", "a=b"])
        #expect(provider.session == .seconds(1_800) && provider.groupsClaim == "groups" && console.address == nil)
        for name in Self.provider.keys {
            #expect(try faults(of: Self.provider.filter { $0.key != name }).map(\.variable) == [name])
        }
        for roles in ["boss=x", "admin", "admin=", "admin=x,,agent=y"] {
            #expect(
                try faults(of: Self.provider.merging(["OIDC_ROLES": roles]) { $1 }).map(\.variable) == ["OIDC_ROLES"]
            )
        }
    }

    @Test func `Tokens of another issuer need issuer and audience`() throws {
        let issuer = try Config.load(environment: [
            "APP_TOKEN_ISSUER": "https://id.example.com/", "APP_TOKEN_AUDIENCE": "app",
        ]).api.issuer
        #expect(issuer?.issuer == "https://id.example.com/" && issuer?.userClaim == "sub" && issuer?.keysURL == nil)
        #expect(
            try faults(of: ["APP_TOKEN_ISSUER": "https://id.example.com"]).map(\.variable) == ["APP_TOKEN_AUDIENCE"]
        )
        #expect(try faults(of: ["APP_TOKEN_AUDIENCE": "app"]).map(\.variable) == ["APP_TOKEN_ISSUER"])
    }

    @Test func `The console's own port is no other's`() throws {
        #expect(try Config.load(environment: ["CONSOLE_HOST": "0.0.0.0"]).console.address?.port == 9091)
        for port in ["8080", "9090"] {
            #expect(try faults(of: ["CONSOLE_PORT": port]).map(\.variable) == ["CONSOLE_PORT"])
        }
    }

    @Test func `Origins of web apps are listed, twenty at most`() throws {
        let config = try Config.load(environment: [
            "HTTP_ALLOWED_ORIGINS": "https://app.example.com, http://localhost:5173"
        ])
        #expect(config.api.allowedOrigins == ["https://app.example.com", "http://localhost:5173"])
        #expect(try Config.load(environment: [:]).api.allowedOrigins == [])
        let many = { (count: Int) in (1...count).map { "https://app\($0).example.com" }.joined(separator: ",") }
        #expect(try Config.load(environment: ["HTTP_ALLOWED_ORIGINS": many(20)]).api.allowedOrigins.count == 20)
        for (list, problem) in [
            (many(21), "has more than 20 entries"), ("*", #"holds "*", which is not a web address"#),
            ("https://app.example.com,", #"holds "", which is not a web address"#),
            ("https://App.example.com", "which a browser would write as https://app.example.com"),
        ] {
            let faults = try faults(of: ["HTTP_ALLOWED_ORIGINS": list])
            #expect(faults.map(\.variable) == ["HTTP_ALLOWED_ORIGINS"])
            #expect(faults.first?.problem.contains(problem) == true, "\(faults)")
        }
    }

    @Test func `Ids of accounts have keys and a namespace`() throws {
        let config = try Config.load(environment: [
            "ACCOUNT_ID_KEYS": "now,before", "ACCOUNT_ID_NAMESPACE": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        ])
        #expect(config.accounts.keys.map { $0.reveal() } == ["now", "before"])
        #expect(config.accounts.namespace?.uuidString.lowercased() == "6ba7b810-9dad-11d1-80b4-00c04fd430c8")
        #expect(try faults(of: ["ACCOUNT_ID_NAMESPACE": "x"]).map(\.variable) == ["ACCOUNT_ID_NAMESPACE"])
    }

    @Test(arguments: [
        ("APP_STORE_BASE_URL", "http://example.com"), ("GOOGLE_PLAY_BASE_URL", "ftp://x"), ("ONSIDE_BASE_URL", "x"),
        ("FIREBASE_KEYS_URL", "http://example.com/keys"), ("GOOGLE_PLAY_ACKNOWLEDGE", "yes"),
        ("HTTP_REQUESTS_PER_MINUTE_PER_ADDRESS", "-1"), ("HTTP_REQUESTS_PER_MINUTE_PER_USER", "many"),
        ("MODE", "Full"), ("MODE", "off"), ("LOG_LEVEL", "loud"), ("LOG_FORMAT", "xml"),
        ("REVENUECAT_REQUESTS_PER_MINUTE", "-1"), ("REVENUECAT_REQUESTS_PER_MINUTE", "100001"),
        ("REVENUECAT_REQUESTS_PER_MINUTE", "480 "), ("REVENUECAT_REQUESTS_PER_MINUTE", "4e2"),
        ("REVENUECAT_REQUESTS_PER_MINUTE", "99999999999999999999"), ("REVENUECAT_REQUESTS_PER_MINUTE", "४८०"),
        ("RESTORE_RESERVE_PERCENT", "91"), ("RESTORE_RESERVE_PERCENT", "2.5"), ("SUPPORT_RESERVE_PERCENT", "51"),
        ("JOB_MAX_ATTEMPTS", "0"), ("JOB_MAX_ATTEMPTS", "101"), ("JOB_MAX_ATTEMPTS", "eight"),
        ("JOB_BACKOFF_BASE_MS", "0"), ("JOB_BACKOFF_CAP_MS", "+5"), ("JOB_MAX_AGE_SECONDS", "0"),
        ("JOB_LEASE_SECONDS", "1"), ("JOB_LEASE_SECONDS", "3601"), ("ABSENCE_MARGIN_SECONDS", "-1"),
        ("ABSENCE_MARGIN_GOOGLE_PLAY_SECONDS", "1d"), ("DEMOTION_BRAKE_PERCENT", "100.1"),
        ("DEMOTION_BRAKE_PERCENT", "nan"), ("DEMOTION_BRAKE_PERCENT", "0x1"), ("DEMOTION_BRAKE_PERCENT", "."),
        ("DEMOTION_BRAKE_PERCENT", "0,5"), ("DEMOTION_BRAKE_MINIMUM", "-1"), ("WORKER_CONCURRENCY", "0"),
        ("WORKER_CONCURRENCY", "4097"), ("WORKER_BATCH", "0"), ("WORKER_BATCH", "2001"), ("HTTP_PORT", "65536"),
        ("ADMIN_PORT", "http"), ("HTTP_HOST", "localhost:80"), ("ADMIN_HOST", "a b"), ("ADMIN_HOST", "[]"),
        ("ADMIN_NAMES", "https://console.example.com"), ("ADMIN_NAMES", "a,,b c"),
        ("HTTP_MAX_CONNECTIONS_PER_ADDRESS", "0"), ("CONSOLE_PORT", "http"), ("CONSOLE_URL", "http://desk.example.com"),
        ("CONSOLE_URL", "https://desk.example.com/console"), ("OIDC_SESSION_MINUTES", "4"),
        ("OIDC_SCOPES", "profile email"),
        ("HTTP_TLS_CERTIFICATE", "x"), ("HTTP_TLS_PRIVATE_KEY_FILE", "/key.pem"),
        ("HTTP_HOST", "http://localhost"), ("DATABASE_URL", "mysql://host/db"), ("DATABASE_DIRECT_URL", "app"),
        ("DATABASE_URL", "host=db\ndbname=app"), ("SUPPORT_CONTACT_URL", "javascript:alert(1)"),
        ("SUPPORT_CONTACT_URL", "mailto:nobody"), ("SUPPORT_CONTACT_URL", "http://example.com"),
        ("ENTITLEMENT_SYNC_SQL_DIR", "/a\u{0}b"), ("REVENUECAT_BASE_URL", "http://api.revenuecat.com/v2"),
        ("REVENUECAT_API_KEY", "appl_abc"), ("ACCOUNT_ID_KEYS", ","),
        ("APP_STORE_PRIVATE_KEY", "-----BEGIN PRIVATE KEY-----\\nMIG\\n-----END PRIVATE KEY-----"),
    ])
    func `A wrong value is a fault of its variable`(name: String, value: String) throws {
        let faults = try faults(of: [name: value])
        #expect(faults.map(\.variable) == [name])
        let fault = try #require(faults.first)
        #expect(!fault.problem.isEmpty && !fault.fix.isEmpty)
    }

    @Test func `One address never has so many connections that others find no place`() throws {
        let most = { (environment: [String: String]) in
            try Config.load(environment: environment).api.maxConnectionsPerAddress
        }
        #expect(try most([:]) == 500)
        #expect(try most(["HTTP_MAX_CONNECTIONS": "64"]) == 16)
        #expect(try most(["HTTP_MAX_CONNECTIONS": "64", "HTTP_MAX_CONNECTIONS_PER_ADDRESS": "40"]) == 40)
    }

    @Test func `All faults are told at once, in a fixed order, each with its fix`() throws {
        let environment = [
            "WORKER_BATCH": "0", "MODE": "off", "JOB_BACKOFF_BASE_MS": "2000", "JOB_BACKOFF_CAP_MS": "1000",
            "RESTORE_RESERVE_PERCENT": "60", "SUPPORT_RESERVE_PERCENT": "40", "REVENUECAT_API_KEY": "sk_abc",
            "HTTP_PORT": "9090",
        ]
        let error = try #require(throws: ConfigurationFaults.self) { try Config.load(environment: environment) }
        let names = [
            "MODE", "REVENUECAT_PROJECT_ID", "SUPPORT_RESERVE_PERCENT", "JOB_BACKOFF_CAP_MS", "WORKER_BATCH",
            "ADMIN_PORT",
        ]
        #expect(error.faults.map(\.variable) == names)
        let lines = error.description.split(separator: "\n")
        #expect(lines.count == 7)
        #expect(lines[0] == "The configuration has 6 faults:")
        #expect(
            lines[1] == "  MODE: \"off\" is not known. Set one of full, promote_only, observe; the default is full."
        )
        #expect(
            lines[5] == "  WORKER_BATCH: \"0\" is out of range. Set a whole number from 1 to 2000; the default is 500."
        )
    }

    @Test(arguments: [
        (["REVENUECAT_API_KEY": "sk_abc"], "REVENUECAT_PROJECT_ID"),
        (["REVENUECAT_PROJECT_ID": "proj1"], "REVENUECAT_API_KEY"),
        (["REVENUECAT_API_KEY": "sk_abc", "REVENUECAT_PROJECT_ID": "../x"], "REVENUECAT_PROJECT_ID"),
        (["REVENUECAT_API_KEY": "sk abc", "REVENUECAT_PROJECT_ID": "proj1"], "REVENUECAT_API_KEY"),
        (["REVENUECAT_API_KEY_FILE": "/nowhere/key", "REVENUECAT_PROJECT_ID": "proj1"], "REVENUECAT_API_KEY_FILE"),
    ])
    func `RevenueCat with one of its two credentials is one fault`(environment: [String: String], name: String) throws {
        #expect(try faults(of: environment).map(\.variable) == [name])
    }

    @Test func `A fault shows no more than the start of a long value`() throws {
        let fault = try #require(try faults(of: ["WORKER_BATCH": String(repeating: "9", count: 500)]).first)
        #expect(fault.description.count < 200)
    }
}

/// The faults of an environment; fails the test when there are none.
func faults(of environment: [String: String]) throws -> [ConfigurationFault] {
    try #require(throws: ConfigurationFaults.self) { try Config.load(environment: environment) }.faults
}
