import CLibPQ
import Metrics

/// How much a transaction sees of others; the server's levels.
package enum PostgresIsolation: String, Sendable, CaseIterable {
    case readCommitted = "READ COMMITTED"
    case repeatableRead = "REPEATABLE READ"
}

extension PostgresConnection {
    /// Runs a closure in a transaction: commits when it returns, rolls back when it throws.
    ///
    /// The server hears of the transaction together with its first statement; one without a statement costs nothing.
    /// The commit goes on although the task is cancelled. When its answer is lost the error says `.commitUnknown`.
    /// Throws what the closure throws, or `PostgresError`: `.misuse` inside another transaction; 25P02 when the closure
    /// swallowed an error that had spoiled the transaction, which then is rolled back.
    @discardableResult
    nonisolated package func withTransaction<Result>(
        _ isolation: PostgresIsolation = .readCommitted,
        _ body: (PostgresConnection) async throws -> Result
    ) async throws -> Result {
        try await begin(isolation)
        let result: Result
        do {
            result = try await body(self)
        } catch {
            await rollback()
            throw error
        }
        try await commit()
        return result
    }

    /// Runs a closure inside a transaction so that its failure undoes only itself.
    @discardableResult
    nonisolated package func withSavepoint<Result>(
        _ body: (PostgresConnection) async throws -> Result
    ) async throws -> Result {
        let name = await nextSavepoint()
        try await control("SAVEPOINT \(name)", shielded: false)
        let result: Result
        do {
            result = try await body(self)
        } catch {
            do {
                try await control("ROLLBACK TO \(name); RELEASE \(name)", shielded: true)
            } catch let second {
                // Without the savepoint the transaction cannot go on, which matters more than why it was needed only if
                // the session lives; for a dead one the first error says most.
                guard await isOpen else { throw error }
                throw second
            }
            throw error
        }
        try await control("RELEASE \(name)", shielded: false)
        return result
    }

    /// Runs a closure inside a transaction with another setting, and puts back what held before.
    ///
    /// `SET LOCAL … TO DEFAULT` would not do: behind a pooler our settings are not the session's defaults. Nothing is
    /// put back after a failure, whose transaction or savepoint takes the setting along.
    nonisolated package func withSetting<Result>(
        _ name: String,
        _ value: String,
        _ body: (PostgresConnection) async throws -> Result
    ) async throws -> Result {
        let before = try await pipeline([
            "SELECT current_setting(\(name))", "SELECT set_config(\(name), \(value), true)",
        ]).first?.first?.decode(String.self)
        let result = try await body(self)
        if let before { try await query("SELECT set_config(\(name), \(before), true)") }
        return result
    }

    private func begin(_ isolation: PostgresIsolation) throws(PostgresError) {
        try enter()
        defer { leave() }
        guard !isInTransaction else { throw PostgresError(.misuse, message: "a transaction is open already") }
        guard !Task.isCancelled else { throw PostgresError(.cancelled, message: "the task is cancelled") }
        opening = [PostgresQuery(rawSQL: "BEGIN ISOLATION LEVEL \(isolation.rawValue)")]
        if !configuration.sessionState { opening += [PostgresConfiguration.writable, configuration.localSettings] }
    }

    /// Sends the last statements of a transaction together with its COMMIT; its closure may send nothing afterwards.
    ///
    /// As the commit itself they go on although the task is cancelled. Throws as `pipeline` and `withTransaction` do;
    /// `withTransaction` rolls back.
    package func pipelineAndCommit(_ queries: [PostgresQuery]) async throws(PostgresError) -> [PostgresRows] {
        guard isInTransaction else { throw PostgresError(.misuse, message: "no transaction is open") }
        guard !Task.isCancelled else { throw PostgresError(.cancelled, message: "the task is cancelled") }
        let rows = try await commit(after: queries)
        isCommitted = true
        return rows
    }

    private func commit() async throws(PostgresError) {
        guard opening.isEmpty, !isCommitted else {
            opening = []
            isCommitted = false
            return
        }
        try await commit(after: [])
    }

    @discardableResult
    private func commit(after queries: [PostgresQuery]) async throws(PostgresError) -> [PostgresRows] {
        guard transactionStatus != PQTRANS_INERROR else {
            await rollback()
            let message = "an earlier error has spoiled the transaction"
            throw PostgresError(.serverError, sqlState: SQLState.inFailedTransaction, message: message)
        }
        guard transactionStatus != PQTRANS_IDLE || !opening.isEmpty else {
            throw PostgresError(.misuse, message: "the transaction was ended by its own statements")
        }
        try await reach(.commitBefore)
        // A session known to be dead did not get COMMIT.
        guard isInTransaction, readsWithoutEnd() else {
            close()
            throw PostgresError(.connectionLost, message: "the connection broke before the commit")
        }
        let rows: [PostgresRows]
        do throws(PostgresError) {
            try enter()
            defer { leave() }
            answeredBefore = .now
            if queries.isEmpty {
                try await command("COMMIT", shielded: true)
                rows = []
            } else {
                rows = try await sendTogether(queries + ["COMMIT"], shielded: true).dropLast()
            }
            if let answeredBefore { commitTime.record(duration: .now - answeredBefore) }
            try await reach(.commitLostAnswer)
        } catch {
            // An error on a session that lives on is the server's answer: the transaction is rolled back.
            guard !isOpen else { throw error }
            var unknown = error
            unknown.code = .commitUnknown
            unknown.isOutcomeUnknown = true
            throw unknown
        }
        try await reach(.commitAfter)
        return rows
    }

    /// Rolls back, also when the task is cancelled.
    private func rollback() async {
        isCommitted = false
        guard opening.isEmpty else {
            opening = []
            return
        }
        guard isInTransaction else { return }
        do throws(PostgresError) {
            try await control("ROLLBACK", shielded: true)
        } catch {
            // The session's state is unknown. Closing it rolls back too; the caller gets the error that led here.
            close()
        }
    }

    private func control(_ sql: String, shielded: Bool) async throws(PostgresError) {
        try enter()
        defer { leave() }
        guard shielded || !Task.isCancelled else { throw PostgresError(.cancelled, message: "the task is cancelled") }
        try await sendOpening()
        try await command(sql, shielded: shielded)
    }
}
