import CLibPQ

/// libpq's connection keywords with their values: what the connection string says, over what the environment says.
struct ConnectParameters: Sendable {
    /// What to hand to libpq.
    private(set) var values: [String: String]
    /// libpq's defaults, from the `PG*` variables and the service file; read, not handed over.
    private let defaults: [String: String]

    /// Lets the kernel notice that a peer is gone before another server has taken over: the first three within 25 seconds
    /// while we only wait, as a listener does, the last (milliseconds) while what we sent is not acknowledged.
    private static let patience = [
        "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3", "tcp_user_timeout": "15000",
    ]

    /// Throws `.configuration`, without libpq's own words: they quote the string, password and all.
    init(_ configuration: PostgresConfiguration) throws(PostgresError) {
        values = try Self.parse(configuration.connectionString ?? "")
        if let name = configuration.databaseName { values["dbname"] = name }
        defaults = Self.take(PQconndefaults())
        values["client_encoding"] = "UTF8"
        values["fallback_application_name"] = configuration.applicationName
        for (keyword, value) in Self.patience where values[keyword] == nil { values[keyword] = value }
        if configuration.sessionState { values["options"] = options(for: configuration) }
    }

    /// What holds for a keyword; empty counts as missing, as in libpq.
    func effective(_ keyword: String) -> String? {
        [values[keyword], defaults[keyword]].compactMap(\.self).first { !$0.isEmpty }
    }

    /// The same parameters with some replaced; nil removes one.
    func replacing(_ replacements: [String: String?]) -> ConnectParameters {
        var copy = self
        for (keyword, value) in replacements { copy.values[keyword] = value }
        return copy
    }

    private func options(for configuration: PostgresConfiguration) -> String {
        // Later ones win: what we rely on over the role's and the database's own, then what the connection string says.
        let all =
            Self.options(PostgresConfiguration.plain.merging(PostgresConfiguration.plainSession) { $1 })
            + [effective("options")].compactMap { $0 } + Self.options(configuration.allSettings)
        return all.joined(separator: " ")
    }

    private static func options(_ settings: [String: String]) -> [String] {
        settings.sorted { $0.key < $1.key }.map { "-c \(escaped("\($0.key)=\($0.value)"))" }
    }

    /// The server splits `options` at white space, unless a backslash stands before it.
    private static func escaped(_ text: String) -> String {
        text.reduce(into: "") { result, character in
            if character.isWhitespace || character == "\\" { result.append("\\") }
            result.append(character)
        }
    }

    /// The parameters as libpq's `PG*` variables, for a program that is to reach the same server; keywords without a
    /// variable are left out.
    func environment() -> [String: String] {
        var environment: [String: String] = [:]
        Self.forEach(PQconndefaults()) { keyword, option in
            if let variable = option.envvar { environment[String(cString: variable)] = effective(keyword) }
        }
        return environment
    }

    private static func parse(_ connectionString: String) throws(PostgresError) -> [String: String] {
        guard !connectionString.contains("\0") else { throw malformed }
        var message: UnsafeMutablePointer<CChar>?
        guard let options = PQconninfoParse(connectionString, &message) else {
            PQfreemem(message)
            throw malformed
        }
        return take(options)
    }

    private static var malformed: PostgresError {
        PostgresError(.configuration, message: "the connection string is malformed")
    }

    /// The values of a list of options, which is freed.
    private static func take(_ options: UnsafeMutablePointer<PQconninfoOption>?) -> [String: String] {
        var values: [String: String] = [:]
        forEach(options) { keyword, option in values[keyword] = option.val.map { String(cString: $0) } }
        return values
    }

    /// Visits a list of options by keyword and frees it.
    private static func forEach(
        _ options: UnsafeMutablePointer<PQconninfoOption>?,
        _ body: (String, PQconninfoOption) -> Void
    ) {
        guard let options else { return }
        defer { PQconninfoFree(options) }
        var next = options
        while let keyword = next.pointee.keyword {
            body(String(cString: keyword), next.pointee)
            next += 1
        }
    }
}
