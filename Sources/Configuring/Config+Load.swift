import Entitlements
import Logging
import Telemetry

extension Config {
    /// Reads the configuration from environment variables, and from the files that `NAME_FILE` variables name.
    ///
    /// An empty variable counts as not set, an empty file is a fault. Variables that are not in ``Variable`` are ignored.
    /// Blocks while files are read.
    ///
    /// - Parameter environment: all variables by name.
    /// - Returns: a configuration in which every value is within its range.
    /// - Throws: `ConfigurationFaults` with everything that is wrong, not only the first.
    package static func load(environment: [String: String]) throws(ConfigurationFaults) -> Config {
        var reader = VariableReader(environment: environment)
        let config = Config(
            database: database(&reader),
            decision: decision(&reader),
            brake: DemotionBrake(
                percent: reader.decimal(.demotionBrakePercent, default: 0.5, in: 0...100),
                minimum: reader.number(.demotionBrakeMinimum, default: 5, in: 0...1_000_000_000)
            ),
            retry: retry(&reader),
            worker: Worker(
                concurrency: reader.number(.workerConcurrency, default: 256, in: 1...4096),
                batch: reader.number(.workerBatch, default: 500, in: 1...2000),
                lease: .seconds(reader.number(.jobLeaseSeconds, default: 10, in: 2...3600, unit: "seconds"))
            ),
            reserves: reserves(&reader),
            revenueCat: revenueCat(&reader),
            appStore: appStore(&reader),
            googlePlay: googlePlay(&reader),
            onside: onside(&reader),
            accounts: accounts(&reader),
            desk: desk(&reader),
            http: listenAddress(&reader, host: .httpHost, port: .httpPort, defaultPort: 8080),
            api: api(&reader),
            admin: admin(&reader),
            console: console(&reader),
            outbox: outbox(&reader),
            retention: Retention(
                eventDays: reader.number(.eventRetentionDays, default: 30, in: 1...3650, unit: "days"),
                // Idempotency keys lead to a job for seven days.
                historyDays: reader.number(.historyRetentionDays, default: 90, in: 8...3650, unit: "days")
            ),
            supportContactURL: reader.parsed(
                .supportContactURL,
                fix: "Set an https:// or mailto: address",
                address(WebAddress.contact)
            ),
            log: Log(level: logLevel(&reader), format: reader.choice(.logFormat, default: .text)),
            sqlDirectory: reader.text(.sqlDirectory)
        )
        if config.http == config.admin.address, config.http.port != 0, reader.isSound(.httpPort) {
            reader.fault(
                .adminPort,
                "metrics and the console would listen where the API listens",
                fix: "Set another port than HTTP_PORT"
            )
        }
        for (other, variable) in [(config.http, Variable.httpPort), (config.admin.address, .adminPort)]
        where config.console.address == other && other.port != 0 && reader.isSound(.consolePort) {
            reader.fault(
                .consolePort,
                "the console would listen where \(variable.rawValue) says",
                fix: "Set another port, or unset CONSOLE_HOST and CONSOLE_PORT to have the console on the admin address"
            )
        }
        guard reader.faults.isEmpty else { throw ConfigurationFaults(faults: reader.faults) }
        return config
    }

    // Times are bounded well below what `Duration` and PostgreSQL's intervals hold, so that no sum of them overflows.
    private static let longestSeconds = 315_360_000
    private static let longestMilliseconds = 604_800_000

    private static func database(_ reader: inout VariableReader) -> Database {
        let fix = "Set postgres://user@host/database or libpq's \"host=... dbname=...\""
        func connectionString(_ text: String) -> Result<Secret, VariableReader.Problem> {
            // libpq takes a text without "=" for a database's name: a cut-off value would connect somewhere else.
            let isOne = text.hasPrefix("postgres://") || text.hasPrefix("postgresql://") || text.contains("=")
            return isOne ? .success(Secret(text)) : .failure(.init("is no connection string"))
        }
        return Database(
            url: reader.parsed(.databaseURL, fix: fix, connectionString),
            directURL: reader.parsed(.databaseDirectURL, fix: fix, connectionString),
            consoleURL: reader.parsed(.consoleDatabaseURL, fix: fix, connectionString)
        )
    }

    private static func decision(_ reader: inout VariableReader) -> DecisionSettings {
        let mode = reader.choice(.mode, default: Mode.full)
        let margin = reader.number(
            .absenceMarginSeconds,
            default: 86_400,
            in: 0...longestSeconds,
            unit: "seconds"
        )
        let marginGooglePlay = reader.number(
            .absenceMarginGooglePlaySeconds,
            default: 172_800,
            in: 0...longestSeconds,
            unit: "seconds"
        )
        let background = reader.number(.backgroundLookDays, default: 30, in: 0...365, unit: "days")
        return DecisionSettings(
            mode: mode,
            absenceMargin: .seconds(margin),
            absenceMarginGooglePlay: .seconds(marginGooglePlay),
            backgroundCheck: background > 0 ? .seconds(background * 86_400) : nil
        )
    }

    private static func retry(_ reader: inout VariableReader) -> RetryPolicy {
        let attempts = reader.number(.jobMaxAttempts, default: 8, in: 1...100)
        let base = reader.number(
            .jobBackoffBaseMs,
            default: 1000,
            in: 1...longestMilliseconds,
            unit: "milliseconds"
        )
        let cap = reader.number(
            .jobBackoffCapMs,
            default: 300_000,
            in: 1...longestMilliseconds,
            unit: "milliseconds"
        )
        let age = reader.number(.jobMaxAgeSeconds, default: 86_400, in: 1...longestSeconds, unit: "seconds")
        if base > cap, reader.isSound(.jobBackoffBaseMs), reader.isSound(.jobBackoffCapMs) {
            reader.fault(
                .jobBackoffCapMs,
                "\(cap) is below JOB_BACKOFF_BASE_MS, which is \(base)",
                fix: "Raise it, or lower JOB_BACKOFF_BASE_MS"
            )
        }
        return RetryPolicy(
            maxAttempts: attempts,
            backoffBase: .milliseconds(base),
            backoffCap: .milliseconds(cap),
            maxAge: .seconds(age)
        )
    }

    private static func reserves(_ reader: inout VariableReader) -> Reserves {
        let reserves = Reserves(
            restorePercent: reader.number(.restoreReservePercent, default: 25, in: 0...90, unit: "percent"),
            supportPercent: reader.number(.supportReservePercent, default: 5, in: 0...50, unit: "percent")
        )
        let sum = reserves.restorePercent + reserves.supportPercent
        if sum > 95 {
            reader.fault(
                .supportReservePercent,
                "RESTORE_RESERVE_PERCENT and SUPPORT_RESERVE_PERCENT make \(sum) together",
                fix: "Keep their sum at 95 or below, so that something is left for reconciliation"
            )
        }
        return reserves
    }

    private static func revenueCat(_ reader: inout VariableReader) -> RevenueCatSettings? {
        let apiKey = secretKey(.revenueCatAPIKey, "Set a secret API key (v2) as RevenueCat shows it", &reader)
        let transferKey = secretKey(
            .revenueCatTransferAPIKey,
            "Set a secret API key (v2) that may write customer information",
            &reader
        )
        let projectID = reader.parsed(.revenueCatProjectID, fix: "Set the project's id as RevenueCat shows it") {
            text in
            text.utf8.count <= 128 && text.utf8.allSatisfy(isIdentifierByte)
                ? .success(text)
                : .failure(.init("holds characters that no project id has, or is too long"))
        }
        let baseURL =
            reader.parsed(
                .revenueCatBaseURL,
                fix: "Set an https:// address without user, query and fragment; http:// serves loopback hosts alone",
                address(WebAddress.base)
            ) ?? "https://api.revenuecat.com/v2"
        let rate = reader.number(
            .revenueCatRequestsPerMinute,
            default: 480,
            in: 0...100_000,
            unit: "requests a minute, 0 for no limit"
        )
        if let apiKey, let projectID {
            return RevenueCatSettings(
                apiKey: apiKey,
                projectID: projectID,
                baseURL: baseURL,
                requestsPerMinute: rate,
                transferKey: transferKey
            )
        }
        if transferKey != nil, apiKey == nil, reader.isSound(.revenueCatAPIKey) {
            reader.fault(
                .revenueCatAPIKey,
                "is not set, but REVENUECAT_TRANSFER_API_KEY is",
                fix: "Set both: what is moved has to be read as well"
            )
        }
        if apiKey != nil, reader.isSound(.revenueCatProjectID) {
            reader.fault(
                .revenueCatProjectID,
                "is not set, but REVENUECAT_API_KEY is",
                fix: "Set both, or neither to switch RevenueCat off"
            )
        }
        if projectID != nil, reader.isSound(.revenueCatAPIKey) {
            reader.fault(
                .revenueCatAPIKey,
                "is not set, but REVENUECAT_PROJECT_ID is",
                fix: "Set both, or neither to switch RevenueCat off"
            )
        }
        return nil
    }

    private static func secretKey(_ variable: Variable, _ fix: String, _ reader: inout VariableReader) -> Secret? {
        reader.parsed(variable, fix: fix) { text -> Result<Secret, VariableReader.Problem> in
            guard WebAddress.isVisibleASCII(text) && text.utf8.count <= 512 else {
                return .failure(.init("holds spaces or characters that no API key has, or is too long"))
            }
            let publicPrefixes = ["appl_", "goog_", "amzn_", "mac_", "strp_", "rcb_"]
            return publicPrefixes.contains(where: text.hasPrefix)
                ? .failure(.init("is a public key of the SDK, which may not read customers")) : .success(Secret(text))
        }
    }

    private static func desk(_ reader: inout VariableReader) -> DeskSettings {
        func people(_ variable: Variable) -> Int { reader.number(variable, default: 2, in: 1...5, unit: "people") }
        return DeskSettings(
            approvals: ApprovalPolicy(
                ordinary: people(.transferApprovals),
                ownerErased: people(.transferApprovalsOwnerErased),
                risky: people(.transferApprovalsRisky)
            ),
            cooling: .seconds(86_400 * reader.number(.transferCoolingDays, default: 90, in: 0...3650, unit: "days")),
            ownerWindow: .seconds(3600 * reader.number(.transferOwnerHours, default: 72, in: 0...720, unit: "hours")),
            holds: .seconds(3600 * reader.number(.transferEvidenceHours, default: 24, in: 1...720, unit: "hours"))
        )
    }

    private static func outbox(_ reader: inout VariableReader) -> Outbox? {
        let url = reader.parsed(
            .outboxURL,
            fix: "Set an https:// address; http:// only for a loopback host",
            address(WebAddress.receiver)
        )
        let secret = reader.text(.outboxSecret).map(Secret.init)
        if let url, let secret { return Outbox(url: url, secret: secret) }
        for (variable, other, isMissing) in [
            (Variable.outboxURL, Variable.outboxSecret, url == nil && secret != nil),
            (.outboxSecret, .outboxURL, url != nil && secret == nil),
        ] where isMissing && reader.isSound(variable) {
            reader.fault(variable, "is not set, but \(other.rawValue) is", fix: "Set both, or neither to tell nobody")
        }
        return nil
    }

    private static func admin(_ reader: inout VariableReader) -> Admin {
        let isSet = reader.text(.adminHost) != nil || reader.text(.adminPort) != nil
        let address = listenAddress(&reader, host: .adminHost, port: .adminPort, defaultPort: 9090)
        let names = reader.parsed(.adminNames, fix: "Set host names without ports, separated by commas") { text in
            let entries = text.split(separator: ",", omittingEmptySubsequences: false).map { $0.split(separator: " ") }
            let names = entries.filter { $0.count == 1 }.joined().map(String.init).filter { name in
                name.utf8.count <= 253 && name.utf8.allSatisfy { isIdentifierByte($0) || $0 == UInt8(ascii: ".") }
            }
            return names.count == entries.count && names.count <= 100
                ? .success(names) : .failure(.init("holds an entry that is no host name"))
        }
        return Admin(address: address, names: names ?? [], isSet: isSet)
    }

    static func listenAddress(
        _ reader: inout VariableReader,
        host: Variable,
        port: Variable,
        defaultPort: Int
    ) -> ListenAddress {
        let fix = "Set a host name or an IP address without a port; the default is 127.0.0.1"
        let name: String? = reader.parsed(host, fix: fix) { text in
            let bare = text.hasPrefix("[") && text.hasSuffix("]") ? String(text.dropFirst().dropLast()) : text
            let colons = bare.utf8.count { $0 == 0x3A }
            // One colon is "host:port"; an IPv6 address has at least two.
            guard colons != 1, !bare.isEmpty, bare.utf8.count <= 253,
                bare.utf8.allSatisfy({ isIdentifierByte($0) || $0 == 0x2E || $0 == 0x3A || $0 == 0x25 })
            else { return .failure(.init("is no host name and no IP address")) }
            return .success(bare)
        }
        return ListenAddress(
            host: name ?? "127.0.0.1",
            port: reader.number(port, default: defaultPort, in: 0...65_535)
        )
    }

    private static func logLevel(_ reader: inout VariableReader) -> Logger.Level {
        let known = Logger.Level.allCases.map(\.rawValue).joined(separator: ", ")
        let level: Logger.Level? = reader.parsed(.logLevel, fix: "Set one of \(known); the default is info") { text in
            Logger.Level(rawValue: text.lowercased()).map(Result.success) ?? .failure(.init("is no log level"))
        }
        return level ?? .info
    }

    static func address(
        _ check: @escaping (String) throws(WebAddress.Fault) -> String
    ) -> (String) -> Result<String, VariableReader.Problem> {
        { text in
            do throws(WebAddress.Fault) {
                return .success(try check(text))
            } catch {
                return .failure(.init(error.problem))
            }
        }
    }

    static func isIdentifierByte(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x5F: true
        default: false
        }
    }
}
