import Postgres

/// Why ids are not shown.
package struct RevealRefused: Error, Hashable {
    /// The database's word.
    package var word: String

    package init(word: String) { self.word = word }

    /// Asks to see ids, in a transaction of its own.
    ///
    /// - Parameters:
    ///   - query: asks; answers with a word for why not.
    ///   - pool: the database.
    /// - Throws: `RevealRefused`, but for what is not there for the operator anyway, which has its own answer; `PostgresError`.
    static func check(_ query: PostgresQuery, _ pool: PostgresPool) async throws {
        guard let word = try await pool.query(query).first?.decode(String?.self, at: 0),
            word != "own_case", word != "gone"
        else { return }
        throw RevealRefused(word: word)
    }
}
