import CLibPQ

extension PostgresConnection {
    /// When and how to stop waiting for the server.
    struct Patience {
        fileprivate(set) var deadline: ContinuousClock.Instant?
        fileprivate(set) var isCancellable: Bool
        /// Why the statement was asked to stop, once it was.
        fileprivate(set) var interruption: PostgresError.Code?
    }

    /// Sends one request, reads everything until the server is ready for the next, and returns the last result.
    ///
    /// The statement is stopped after `limit`; nil takes the configuration's. A `shielded` one goes on when the task is
    /// cancelled. An `expendable` connection is closed when time is up, without asking the server to stop. `send`
    /// returns 0 when libpq refuses. Throws the first error that the server sent, or why there was no answer.
    @discardableResult
    func exchange(
        within limit: Duration? = nil,
        shielded: Bool = false,
        expendable: Bool = false,
        _ send: (OpaquePointer) -> Int32
    ) async throws(PostgresError) -> PostgresRows {
        try await exchange(within: limit, shielded: shielded, expendable: expendable, send) {
            (patience: inout Patience) async throws(PostgresError) in
            try await collect(&patience)
        }
    }

    /// As above, with the answers read by `receive`; `begins` says that the request begins a transaction.
    func exchange<Answer>(
        within limit: Duration? = nil,
        shielded: Bool = false,
        expendable: Bool = false,
        begins: Bool = false,
        _ send: (OpaquePointer) -> Int32,
        receive: (inout Patience) async throws(PostgresError) -> Answer
    ) async throws(PostgresError) -> Answer {
        // Hooks interrupt callers' statements, not the pool's own.
        if !expendable { try await reach(.statementBefore) }
        guard let raw = handle.raw else { throw PostgresError(.closed, message: "the connection is closed") }
        let commitsItself = transactionStatus == PQTRANS_IDLE && !begins
        guard send(raw) == 1 else {
            let error = PostgresError(lost: raw)
            guard PQstatus(raw) != CONNECTION_OK else {
                // libpq refused the request itself, such as one with more than 65535 parameters. Of a pipeline, part of
                // it is sent already, and there is no way back.
                if PQpipelineStatus(raw) != PQ_PIPELINE_OFF { handle.close() }
                throw PostgresError(.misuse, message: error.message)
            }
            handle.close()
            throw error
        }
        var patience = Patience(
            deadline: deadline(limit),
            isCancellable: !shielded,
            interruption: expendable ? .timeout : nil
        )
        do throws(PostgresError) {
            let answer = try await receive(&patience)
            if !expendable { try await reach(.statementAfter) }
            return answer
        } catch {
            var error = error
            error.isOutcomeUnknown = commitsItself && handle.raw == nil
            if error.sqlState.map(SQLState.endsSession) ?? false { isSpent = true }
            throw error
        }
    }

    private func deadline(_ limit: Duration?) -> ContinuousClock.Instant? {
        if let limit { return .now + limit }
        guard let limit = configuration.statementTimeout else { return nil }
        // The server has the limit too, and should be the one to say so: its error leaves a clean session.
        return .now + limit + Self.backstop
    }

    /// Begins the time of the next statement, unless this one was asked to stop.
    func renew(_ patience: inout Patience) {
        guard patience.interruption == nil else { return }
        patience.deadline = deadline(nil)
    }

    private func collect(_ patience: inout Patience) async throws(PostgresError) -> PostgresRows {
        var failure: PostgresError?
        let last = try await results(&failure, &patience)
        guard let raw = handle.raw else { throw PostgresError(.closed, message: "the connection was closed") }
        let isLost = PQstatus(raw) != CONNECTION_OK
        if isLost { handle.close() }
        if let failure { throw settled(failure, isLost: isLost, patience) }
        guard let last, !isLost else { throw PostgresError(.connectionLost, message: "the server sent no result") }
        return PostgresRows(last)
    }

    /// What the server's error means once it is known how the session and the wait ended.
    func settled(_ error: PostgresError, isLost: Bool, _ patience: Patience) -> PostgresError {
        var error = error
        if isLost {
            error.code = .connectionLost
        } else if error.sqlState == SQLState.queryCanceled {
            error.code = patience.interruption ?? .timeout
        }
        return error
    }

    /// Waits for the next result; `failure` is what the server said already.
    func awaitResult(_ patience: inout Patience, after failure: PostgresError?) async throws(PostgresError) {
        do throws(PostgresError) {
            try await awaitResult(&patience)
        } catch {
            // A server that ends the session says why before it hangs up, and that explains more.
            guard var failure, error.code == .connectionLost else { throw error }
            failure.code = .connectionLost
            throw failure
        }
    }

    /// Sends what is buffered and reads until `PQgetResult` does not block.
    private func awaitResult(_ patience: inout Patience) async throws(PostgresError) {
        while let raw = handle.raw {
            let flushed = PQflush(raw)
            // While the server does not take more, it may be because it waits for us to read.
            if flushed == 1 {
                let ready = try await awaitSocket([.read, .write], &patience)
                if ready.contains(.read) { try consume() }
                continue
            }
            // A failed flush is not the last word: what the server said before is still to be read.
            guard PQisBusy(raw) == 1 else { return }
            if try consumeWhatIsThere() { return }
            _ = try await awaitSocket(.read, &patience)
        }
        throw PostgresError(.closed, message: "the connection was closed")
    }

    /// Reads without waiting, which often spares a trip through the reactor; returns whether a result is complete.
    ///
    /// Under TLS, decrypted bytes may wait in memory while the socket has none. One record takes at most three reads.
    private func consumeWhatIsThere() throws(PostgresError) -> Bool {
        let reads = handle.raw.map { PQsslInUse($0) } == 1 ? 3 : 1
        for _ in 0..<reads {
            try consume()
            if handle.raw.map({ PQisBusy($0) }) == 0 { return true }
        }
        return false
    }

    private func consume() throws(PostgresError) {
        guard let raw = handle.raw else { throw PostgresError(.closed, message: "the connection was closed") }
        guard PQconsumeInput(raw) == 0 else { return }
        let error = PostgresError(lost: raw)
        handle.close()
        throw error
    }

    private func awaitSocket(
        _ interest: Interest,
        _ patience: inout Patience
    ) async throws(PostgresError) -> Interest {
        while let raw = handle.raw {
            let readiness = await Reactor.shared.wait(
                PQsocket(raw),
                for: interest,
                until: patience.deadline,
                cancellable: patience.isCancellable
            )
            switch readiness {
            case .ready(let ready): return ready
            case .closed: break
            case .cancelled: try await interrupt(.cancelled, &patience)
            case .timedOut: try await interrupt(.timeout, &patience)
            }
            if readiness == .closed { break }
        }
        handle.close()
        throw PostgresError(.closed, message: "the connection was closed")
    }

    /// Asks the server to stop the statement; the second time gives up.
    ///
    /// The request travels on a connection of its own. Waiting for it to be taken matters: one that arrived late would
    /// stop the next statement.
    private func interrupt(_ reason: PostgresError.Code, _ patience: inout Patience) async throws(PostgresError) {
        let settled = ContinuousClock.now + Self.settleLimit
        guard patience.interruption == nil, let raw = handle.raw, let cancel = CancelHandle(raw) else {
            handle.close()
            let code = patience.interruption ?? reason
            throw PostgresError(code, message: "the server did not stop the statement in time")
        }
        patience.interruption = reason
        patience.isCancellable = false
        patience.deadline = settled
        let taken: Bool? = await BlockingWork.run(until: settled, cancellable: false) {
            cancel.send()
            return true
        }
        guard taken == nil else { return }
        handle.close()
        throw PostgresError(reason, message: "the server did not take the request to stop the statement")
    }
}
