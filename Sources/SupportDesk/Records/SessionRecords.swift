package import Postgres

/// What an operator reads and does; each statement asks for their session.
package protocol SessionRecords: Sendable {
    var pool: PostgresPool { get }
    /// The hash of what the operator shows.
    var session: [UInt8] { get }
}

extension SessionRecords {
    var shown: PostgresBytes { PostgresBytes(session) }

    /// Does something in the operator's name, and puts a refusal on record.
    func recorded<Result>(_ permission: String, _ body: () async throws -> Result) async throws -> Result {
        try await Operators(pool: pool).recorded(session, permission, body)
    }

    /// Rows that only an operator with a permission gets.
    func rows(_ permission: String, _ query: PostgresQuery) async throws -> PostgresRows {
        try await recorded(permission) { try await pool.query(query) }
    }

    /// The only value of such a statement; `nil` where it is NULL, or there is no row.
    func value<Value: PostgresDecodable>(_ permission: String, _ query: PostgresQuery) async throws -> Value? {
        try await rows(permission, query).first?.decode(Value?.self, at: 0)
    }

    /// Asks to see ids, in a transaction of its own.
    ///
    /// - Parameter query: answers with the reason why not.
    /// - Throws: `RevealRefused`, but for what is not there for the operator anyway, which has its own answer;
    ///   `PostgresError`.
    func checkReveal(_ query: PostgresQuery) async throws {
        guard let word: String = try await value("reveal", query), word != "own_case", word != "gone" else { return }
        throw RevealRefused(word: word)
    }
}

/// Why ids are not shown.
package struct RevealRefused: Error, Hashable {
    /// The database's word.
    package var word: String
}
