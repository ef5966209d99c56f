import CLibPQ

extension PostgresConnection {
    /// Sends several statements at once and then reads all answers: one round trip, however many they are.
    ///
    /// The server runs them in order and skips the rest after the first that fails. Outside a transaction they are one
    /// transaction together; inside one, a failure spoils it as any other does. None of them may need the result of
    /// another. Throws the error of the first that failed; see `query`.
    /// - SeeAlso: https://www.postgresql.org/docs/15/libpq-pipeline-mode.html
    @discardableResult
    package func pipeline(_ queries: [PostgresQuery]) async throws(PostgresError) -> [PostgresRows] {
        guard !queries.isEmpty else { return [] }
        try enter()
        defer { leave() }
        guard !Task.isCancelled else { throw PostgresError(.cancelled, message: "the task is cancelled") }
        return try await sendTogether(queries)
    }

    /// What the protocol can count.
    private static let mostParameters = 65_535

    /// As `pipeline`, for a caller that has entered already.
    ///
    /// A transaction begins with its first statements; a pooler's sessions are shared, so it brings its settings too.
    @discardableResult
    func sendTogether(
        _ queries: [PostgresQuery],
        shielded: Bool = false
    ) async throws(PostgresError) -> [PostgresRows] {
        let begins = !opening.isEmpty
        let ahead = begins ? opening : ownSettings
        opening = []
        do throws(PostgresError) {
            return Array(
                try await sendPrepared(ahead + queries, begins: begins, shielded: shielded).dropFirst(ahead.count)
            )
        } catch {
            var error = error
            // Where what goes ahead was refused, no statement of the caller's was.
            error.statement = error.statement.flatMap { $0 >= ahead.count ? $0 - ahead.count : nil }
            throw error
        }
    }

    /// What begins a transaction, for a statement that can't travel with it.
    func sendOpening() async throws(PostgresError) {
        guard !opening.isEmpty else { return }
        try await sendTogether([])
    }

    /// The settings for statements that are a transaction together, where the session has none.
    private var ownSettings: [PostgresQuery] {
        guard !configuration.sessionState, transactionStatus == PQTRANS_IDLE else { return [] }
        return configuration.localTransaction
    }

    private func sendPrepared(
        _ queries: [PostgresQuery],
        begins: Bool,
        shielded: Bool
    ) async throws(PostgresError) -> [PostgresRows] {
        // A failure has spoiled an open transaction, also one that COMMIT reports; only its owner can start it again.
        let isWhole = transactionStatus == PQTRANS_IDLE
        do throws(PostgresError) {
            return try await attempt(queries, begins: begins, shielded: shielded)
        } catch {
            guard error.code == .staleStatement else { throw error }
            for query in queries { statements.forget(StatementCache.Key(query)) }
            guard isWhole, transactionStatus == PQTRANS_IDLE else { throw error }
            return try await attempt(queries, begins: begins, shielded: shielded)
        }
    }

    /// One request of the pipeline, which has results of its own.
    private enum Step {
        case prepare(StatementCache.Key, name: String)
        case run(PostgresQuery, name: String?)

        var isRun: Bool {
            if case .run = self { true } else { false }
        }
    }

    private func attempt(
        _ queries: [PostgresQuery],
        begins: Bool,
        shielded: Bool
    ) async throws(PostgresError) -> [PostgresRows] {
        // Found by libpq in the middle of the pipeline, it would cost the session.
        guard queries.allSatisfy({ $0.binds.count <= Self.mostParameters }) else {
            throw PostgresError(.misuse, message: "a statement has more than \(Self.mostParameters) parameters")
        }
        let steps = try await plan(queries)
        return try await exchange(shielded: shielded, begins: begins) { raw in
            guard PQenterPipelineMode(raw) == 1 else { return 0 }
            for step in steps where Self.send(step, on: raw) != 1 { return 0 }
            return PQpipelineSync(raw)
        } receive: { (patience: inout Patience) async throws(PostgresError) in
            try await collect(steps, &patience)
        }
    }

    private func plan(_ queries: [PostgresQuery]) async throws(PostgresError) -> [Step] {
        guard configuration.sessionState else { return queries.map { .run($0, name: nil) } }
        try await deallocateDiscarded()
        var fresh: [StatementCache.Key: String] = [:]
        var steps: [Step] = []
        for query in queries {
            let key = StatementCache.Key(query)
            if let name = statements.name(for: key) ?? fresh[key] {
                steps.append(.run(query, name: name))
                continue
            }
            let name = statements.freshName()
            fresh[key] = name
            steps += [.prepare(key, name: name), .run(query, name: name)]
        }
        return steps
    }

    private static func send(_ step: Step, on raw: OpaquePointer) -> Int32 {
        switch step {
        case .prepare(let key, let name):
            PQsendPrepare(raw, name, key.sql, Int32(key.types.count), key.types)
        case .run(let query, let name?):
            query.withParameters { PQsendQueryPrepared(raw, name, $0.count, $0.values, $0.lengths, $0.formats, 1) }
        case .run(let query, nil):
            query.withParameters {
                PQsendQueryParams(raw, query.sql, $0.count, $0.types, $0.values, $0.lengths, $0.formats, 1)
            }
        }
    }

    /// Reads the results of every step and the end of the pipeline.
    private func collect(_ steps: [Step], _ patience: inout Patience) async throws(PostgresError) -> [PostgresRows] {
        var answers: [PostgresRows] = []
        var failure: PostgresError?
        for step in steps {
            answeredBefore = .now
            let hadFailed = failure != nil
            let result = try await results(&failure, &patience)
            if !hadFailed {
                failure?.statement = answers.count
                // The one reason why a server refuses this is that it is a standby: the state that a write would get.
                if case .run(let query, _) = step, query.sql == PostgresConfiguration.writable.sql,
                    failure?.sqlState == SQLState.featureNotSupported
                {
                    failure?.sqlState = SQLState.readOnlyTransaction
                }
            }
            // The server's limit is each statement's own, and so is ours.
            renew(&patience)
            guard let result else { continue }
            switch step {
            case .prepare(let key, let name): statements.insert(key, name: name)
            case .run: answers.append(PostgresRows(result))
            }
        }
        try await awaitResult(&patience, after: failure)
        guard let raw = handle.raw else { throw PostgresError(.closed, message: "the connection was closed") }
        let end = PQgetResult(raw)
        let isAtEnd = end.map { PQresultStatus($0) == PGRES_PIPELINE_SYNC } ?? false
        PQclear(end)
        let isLost = PQstatus(raw) != CONNECTION_OK
        let isOver = !isLost && isAtEnd && PQexitPipelineMode(raw) == 1
        if !isOver { handle.close() }
        if let failure { throw settled(failure, isLost: isLost, patience) }
        guard isOver, answers.count == steps.count(where: \.isRun) else {
            throw PostgresError(.connectionLost, message: "the server did not answer every statement")
        }
        return answers
    }

    /// Reads until one request has no more results; nil when it failed or, in a pipeline, was skipped.
    func results(
        _ failure: inout PostgresError?,
        _ patience: inout Patience
    ) async throws(PostgresError) -> ResultStorage? {
        var last: ResultStorage?
        while true {
            try await awaitResult(&patience, after: failure)
            guard let raw = handle.raw, let result = PQgetResult(raw) else { return last }
            switch PQresultStatus(result) {
            case PGRES_TUPLES_OK, PGRES_COMMAND_OK, PGRES_EMPTY_QUERY:
                last = ResultStorage(owning: result)
            case PGRES_FATAL_ERROR, PGRES_BAD_RESPONSE:
                failure = failure ?? PostgresError(result: result)
                PQclear(result)
            case PGRES_PIPELINE_ABORTED:
                PQclear(result)
            default:
                // COPY, which would have us send or read data for ever.
                PQclear(result)
                handle.close()
                let message = "the statement needs a protocol that is not spoken here"
                throw PostgresError(.protocolViolation, message: message)
            }
        }
    }
}
