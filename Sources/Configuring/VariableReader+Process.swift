import Entitlements
import Logging

extension VariableReader {
    // Times are bounded well below what `Duration` and PostgreSQL's intervals hold, so that no sum of them overflows.
    private static let longestSeconds = 315_360_000
    private static let longestMilliseconds = 604_800_000

    mutating func database() -> Config.Database {
        Config.Database(
            url: connectionString(.databaseURL),
            directURL: connectionString(.databaseDirectURL),
            consoleURL: connectionString(.consoleDatabaseURL),
            reportURL: connectionString(.reportDatabaseURL)
        )
    }

    private mutating func connectionString(_ variable: Variable) -> Secret? {
        let fix = "Set postgres://user@host/database or libpq's \"host=... dbname=...\""
        return parsed(variable, fix: fix, else: "is no connection string") { text in
            // libpq takes a text without "=" for a database's name: a cut-off value would connect somewhere else.
            let isOne = text.hasPrefix("postgres://") || text.hasPrefix("postgresql://") || text.contains("=")
            return isOne ? Secret(text) : nil
        }
    }

    mutating func decision() -> DecisionSettings {
        let seconds = 0...Self.longestSeconds
        let margin = number(.absenceMarginSeconds, default: 86_400, in: seconds, unit: "seconds")
        let googlePlay = number(.absenceMarginGooglePlaySeconds, default: 172_800, in: seconds, unit: "seconds")
        let background = number(.backgroundCheckDays, default: 30, in: 0...365, unit: "days")
        var settings = DecisionSettings()
        settings.mode = choice(.mode, default: Mode.full)
        settings.sandbox = choice(.sandbox, default: SandboxRule.listed)
        settings.absenceMargin = .seconds(margin)
        settings.absenceMarginGooglePlay = .seconds(googlePlay)
        settings.backgroundCheck = background > 0 ? .seconds(background * 86_400) : nil
        return settings
    }

    mutating func retry() -> RetryPolicy {
        let attempts = number(.jobMaxAttempts, default: 8, in: 1...100)
        let milliseconds = 1...Self.longestMilliseconds
        let base = number(.jobBackoffBaseMs, default: 1000, in: milliseconds, unit: "milliseconds")
        let cap = number(.jobBackoffCapMs, default: 300_000, in: milliseconds, unit: "milliseconds")
        let age = number(.jobMaxAgeSeconds, default: 86_400, in: 1...Self.longestSeconds, unit: "seconds")
        if base > cap, isSound(.jobBackoffBaseMs), isSound(.jobBackoffCapMs) {
            fault(
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

    mutating func reserves() -> Config.Reserves {
        let reserves = Config.Reserves(
            restorePercent: number(.restoreReservePercent, default: 25, in: 0...90, unit: "percent"),
            supportPercent: number(.supportReservePercent, default: 5, in: 0...50, unit: "percent")
        )
        let sum = reserves.restorePercent + reserves.supportPercent
        if sum > 95 {
            fault(
                .supportReservePercent,
                "RESTORE_RESERVE_PERCENT and SUPPORT_RESERVE_PERCENT make \(sum) together",
                fix: "Keep their sum at 95 or below, so that something is left for reconciliation"
            )
        }
        return reserves
    }

    mutating func desk() -> DeskSettings {
        func people(_ variable: Variable) -> Int { number(variable, default: 2, in: 1...5, unit: "people") }
        var settings = DeskSettings()
        settings.approvals = ApprovalPolicy(
            ordinary: people(.transferApprovals),
            ownerErased: people(.transferApprovalsOwnerErased),
            risky: people(.transferApprovalsRisky)
        )
        settings.cooling = .seconds(86_400 * number(.transferCoolingDays, default: 90, in: 0...3650, unit: "days"))
        settings.ownerWindow = .seconds(3600 * number(.transferOwnerHours, default: 72, in: 0...720, unit: "hours"))
        settings.holds = .seconds(3600 * number(.transferEvidenceHours, default: 24, in: 1...720, unit: "hours"))
        return settings
    }

    mutating func outbox() -> Config.Outbox? {
        let url = address(.outboxURL, WebAddress.receiver)
        let secret = text(.outboxSecret).map(Secret.init)
        if let url, let secret { return Config.Outbox(url: url, secret: secret) }
        let fix = "Set both, or neither to send no webhooks"
        if secret != nil { missing(.outboxURL, "OUTBOX_SECRET is", fix: fix) }
        if url != nil { missing(.outboxSecret, "OUTBOX_URL is", fix: fix) }
        return nil
    }

    mutating func admin() -> Config.Admin {
        let isSet = text(.adminHost) != nil || text(.adminPort) != nil
        let address = listenAddress(host: .adminHost, port: .adminPort, default: 9090)
        let fix = "Set host names without ports, separated by commas"
        let names = parsed(.adminNames, fix: fix, else: "holds an entry that is no host name") { text in
            let entries = text.split(separator: ",", omittingEmptySubsequences: false).map { $0.split(separator: " ") }
            let names = entries.filter { $0.count == 1 }.joined().map(String.init).filter { name in
                name.utf8.count <= 253 && name.utf8.allSatisfy { Self.isIdentifier($0) || $0 == UInt8(ascii: ".") }
            }
            return names.count == entries.count && names.count <= 100 ? names : nil
        }
        return Config.Admin(address: address, names: names ?? [], isSet: isSet)
    }

    mutating func listenAddress(host: Variable, port: Variable, default usual: Int) -> Config.ListenAddress {
        let fix = "Set a host name or an IP address without a port; the default is 127.0.0.1"
        let name = parsed(host, fix: fix, else: "is no host name and no IP address") { text in
            let bare = text.hasPrefix("[") && text.hasSuffix("]") ? String(text.dropFirst().dropLast()) : text
            let colons = bare.utf8.count { $0 == 0x3A }
            // One colon is "host:port"; an IPv6 address has at least two.
            let isHost =
                colons != 1 && !bare.isEmpty && bare.utf8.count <= 253
                && bare.utf8.allSatisfy { Self.isIdentifier($0) || $0 == 0x2E || $0 == 0x3A || $0 == 0x25 }
            return isHost ? bare : nil
        }
        return Config.ListenAddress(host: name ?? "127.0.0.1", port: number(port, default: usual, in: 0...65_535))
    }

    mutating func logLevel() -> Logger.Level {
        let known = Logger.Level.allCases.map(\.rawValue).joined(separator: ", ")
        let fix = "Set one of \(known); the default is info"
        return parsed(.logLevel, fix: fix, else: "is no log level") { Logger.Level(rawValue: $0.lowercased()) } ?? .info
    }
}
