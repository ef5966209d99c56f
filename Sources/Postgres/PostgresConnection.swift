import CLibPQ
import Glibc
import Metrics

/// One session with the server.
///
/// Leased to one task at a time, by a pool or by its maker. A second statement while one runs is a fault of the caller
/// (`.misuse`), not a queue.
package actor PostgresConnection {
    /// How long a stopped statement has to end before its connection is given up.
    static let settleLimit = Duration.seconds(5)
    /// How much longer than the server this client waits before it stops a statement itself.
    static let backstop = Duration.seconds(2)
    /// How many statements stay prepared.
    static let preparedStatements = 256

    let configuration: PostgresConfiguration
    var handle = ConnectionHandle()
    var statements = StatementCache(capacity: preparedStatements)
    private var isBusy = false
    /// Set when the server said something after which the session should not be used again.
    var isSpent = false
    private var savepoints = 0
    /// What begins the transaction whose first statement has not been sent yet: it travels with that statement.
    var opening: [PostgresQuery] = []
    /// Whether the transaction was committed together with its last statements.
    var isCommitted = false
    /// When the last answer but one came, within the exchange that is under way.
    var answeredBefore: ContinuousClock.Instant?
    /// What the server's disk and its standbys cost.
    lazy var commitTime = Timer(label: "entitlement_sync_commit_duration_seconds")

    /// Creates a connection that is still closed; see `open()`.
    package init(configuration: PostgresConfiguration) { self.configuration = configuration }

    /// Connects to the first server of the configuration that accepts the session; throws as `Connector.connect` does.
    package func open() async throws(PostgresError) { handle = try await Connector.connect(configuration) }

    /// Closes the session; a statement in progress fails with `.closed`.
    package func close() { handle.close() }

    /// Whether the session is open, as far as this side knows.
    package var isOpen: Bool { handle.raw.map { PQstatus($0) == CONNECTION_OK } ?? false }

    /// The server process behind the session, as in `pg_stat_activity`; 0 when closed.
    package var backendPID: Int32 { handle.raw.map { PQbackendPID($0) } ?? 0 }

    /// Whether a transaction block is open, failed or not.
    package var isInTransaction: Bool {
        let status = transactionStatus
        return !opening.isEmpty || status == PQTRANS_INTRANS || status == PQTRANS_INERROR
    }

    var transactionStatus: PGTransactionStatusType { handle.raw.map { PQtransactionStatus($0) } ?? PQTRANS_UNKNOWN }

    // MARK: Statements

    /// Runs one statement and returns all its rows.
    ///
    /// When the task is cancelled the statement is stopped on the server. One that had finished by then returns its
    /// rows all the same. Throws `.timeout` also when an administrator cancelled the statement.
    @discardableResult
    package func query(_ query: PostgresQuery) async throws(PostgresError) -> PostgresRows {
        try enter()
        defer { isBusy = false }
        guard !Task.isCancelled else { throw PostgresError(.cancelled, message: "the task is cancelled") }
        guard configuration.sessionState, opening.isEmpty else {
            guard let rows = try await sendTogether([query]).last else {
                throw PostgresError(.protocolViolation, message: "the server sent no result")
            }
            return rows
        }
        let key = StatementCache.Key(query)
        do throws(PostgresError) {
            return try await runPrepared(query, key)
        } catch {
            guard error.code == .staleStatement else { throw error }
            statements.forget(key)
            // Inside a transaction the failure has spoiled it, and only its owner can start it again.
            guard transactionStatus == PQTRANS_IDLE else { throw error }
            return try await runPrepared(query, key)
        }
    }

    /// Runs several statements, in one transaction unless they say otherwise; an error's `position` is in the script.
    package func execute(script: String) async throws(PostgresError) {
        try enter()
        defer { isBusy = false }
        guard !Task.isCancelled else { throw PostgresError(.cancelled, message: "the task is cancelled") }
        try await sendOpening()
        try await command(script, shielded: false)
    }

    private func runPrepared(
        _ query: PostgresQuery,
        _ key: StatementCache.Key
    ) async throws(PostgresError) -> PostgresRows {
        let name: String
        if let known = statements.name(for: key) {
            name = known
        } else {
            try await deallocateDiscarded()
            name = statements.freshName()
            try await exchange { PQsendPrepare($0, name, query.sql, Int32(key.types.count), key.types) }
            statements.insert(key, name: name)
        }
        return try await exchange { raw in
            query.withParameters { PQsendQueryPrepared(raw, name, $0.count, $0.values, $0.lengths, $0.formats, 1) }
        }
    }

    /// Frees statements that gave way; never inside a transaction, which a refusal would spoil.
    func deallocateDiscarded() async throws(PostgresError) {
        guard !statements.discarded.isEmpty, transactionStatus == PQTRANS_IDLE else { return }
        for name in statements.takeDiscarded() {
            do throws(PostgresError) {
                try await command("DEALLOCATE \(name)", shielded: false)
            } catch {
                // The session's owner has deallocated it already (DISCARD ALL).
                guard error.code == .staleStatement else { throw error }
            }
        }
    }

    /// Runs text in the simple protocol.
    @discardableResult
    func command(_ sql: String, shielded: Bool) async throws(PostgresError) -> PostgresRows {
        try await exchange(shielded: shielded) { PQsendQuery($0, sql) }
    }

    func enter() throws(PostgresError) {
        guard handle.raw != nil else { throw PostgresError(.closed, message: "the connection is closed") }
        guard !isCommitted else { throw PostgresError(.misuse, message: "the transaction is committed already") }
        guard !isBusy else { throw PostgresError(.misuse, message: "another statement runs on this connection") }
        isBusy = true
    }

    func leave() { isBusy = false }

    func nextSavepoint() -> String {
        savepoints += 1
        return "savepoint_\(savepoints)"
    }

    // MARK: Between two leases

    /// Makes the session fit for its next user: rolls back what was left open; false when the session must be closed.
    func prepareForReuse() async -> Bool {
        guard isOpen, !isBusy, !isSpent else { return false }
        opening = []
        isCommitted = false
        guard transactionStatus != PQTRANS_IDLE else { return true }
        guard isInTransaction else { return false }
        do throws(PostgresError) {
            try enter()
            defer { isBusy = false }
            try await exchange(within: Self.settleLimit, shielded: true, expendable: true) {
                PQsendQuery($0, "ROLLBACK")
            }
            return transactionStatus == PQTRANS_IDLE
        } catch {
            // The caller closes the session, which rolls back too, and reports nothing.
            return false
        }
    }

    /// Whether the session still works; only a `roundTrip` finds a peer that vanished without closing the socket.
    func isAlive(roundTrip: Bool) async -> Bool {
        guard isOpen, !isBusy, readsWithoutEnd() else { return false }
        guard roundTrip else { return true }
        do throws(PostgresError) {
            try enter()
            defer { isBusy = false }
            // An empty statement, which also poolers pass on.
            try await exchange(within: .seconds(2), shielded: true, expendable: true) { PQsendQuery($0, "") }
            return true
        } catch {
            // The caller replaces the session; the replacement reports what is wrong, if it fails too.
            return false
        }
    }

    /// Consumes what came unasked, and finds out whether the end came after it.
    func readsWithoutEnd() -> Bool {
        guard let raw = handle.raw else { return false }
        // A last message and the end arrive one after the other; a server that sends more than that is alive.
        for _ in 0..<8 {
            var socket = pollfd(fd: PQsocket(raw), events: Int16(POLLIN), revents: 0)
            // Without waiting: would a read return at once, with data, with the end, or with an error?
            guard poll(&socket, 1, 0) != 0 else { return true }
            guard PQconsumeInput(raw) == 1, PQstatus(raw) == CONNECTION_OK else { return false }
            // Parses; the session is idle, so there is nothing else to do.
            _ = PQisBusy(raw)
        }
        return true
    }
}
