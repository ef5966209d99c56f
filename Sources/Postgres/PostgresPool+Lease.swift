import Logging
import Synchronization

extension PostgresPool {
    typealias ConnectionID = PoolState.ConnectionID

    /// Gets an open connection for this task alone; `giveBack` must follow.
    func lease() async throws(PostgresError) -> (ConnectionID, PostgresConnection) {
        guard !Task.isCancelled else { throw PostgresError(.cancelled, message: "the task is cancelled") }
        switch try await grant() {
        case .connect(let id):
            return (id, try await open(id))
        case .lease(let id, let idle):
            let (known, lostAt) = shared.withLock { ($0.connections[id], $0.lostAt) }
            if let connection = known {
                // A connection that the network dropped would cost its first statement the whole time limit.
                let isDoubtful = idle > Self.restBeforeCheck || lostAt.map { .now - idle <= $0 } ?? false
                // Checked before anything is sent; afterwards, what a dead connection had carried would be unknown.
                if await connection.isAlive(roundTrip: isDoubtful) { return (id, connection) }
                await connection.close()
            }
            shared.withLock { $0.state.reconnect(id) }
            return (id, try await open(id))
        }
    }

    /// Takes back a connection, cleaned or closed.
    func giveBack(_ id: ConnectionID, _ connection: PostgresConnection) async {
        let isFit = await connection.prepareForReuse()
        let isLost = if isFit { false } else { await !connection.isOpen }
        let isKept = shared.withLock { shared in
            if isLost { shared.lostAt = .now }
            if isFit, shared.state.release(id, at: .now) { return true }
            shared.state.discard(id)
            shared.connections[id] = nil
            return false
        }
        if !isKept { await connection.close() }
        serve()
    }

    /// Opens the connection whose slot this task was granted.
    private func open(_ id: ConnectionID) async throws(PostgresError) -> PostgresConnection {
        let connection = PostgresConnection(configuration: configuration)
        do throws(PostgresError) {
            try await connection.open()
        } catch {
            connectFailed(id, error)
            throw error
        }
        let (isWanted, wasDown) = shared.withLock { shared in
            let wasDown = shared.lastFailure != nil
            shared.lastFailure = nil
            let isWanted = shared.state.connected(id)
            if isWanted { shared.connections[id] = connection }
            return (isWanted, wasDown)
        }
        if wasDown { logger.info("database connection restored") }
        // The first success ends the backoff, for which others may be waiting.
        serve()
        guard isWanted else {
            await connection.close()
            throw PostgresError(.closed, message: "the pool is closed")
        }
        return connection
    }

    private func connectFailed(_ id: ConnectionID, _ error: PostgresError) {
        let waiting = shared.withLock { shared -> [OneShot<Answer>] in
            shared.connections[id] = nil
            guard error.code != .cancelled else {
                shared.state.discard(id)
                return []
            }
            shared.lastFailure = error
            return shared.state.connectFailed(id, at: .now, spread: .random(in: 0..<1))
                .compactMap { shared.waiters.removeValue(forKey: $0) }
        }
        if error.code != .cancelled {
            logger.info("database connection failed", metadata: error.logMetadata)
        }
        for waiter in waiting { waiter.resolve(.failure(error)) }
        serve()
    }

    // MARK: Waiting

    private func grant() async throws(PostgresError) -> PoolState.Grant {
        let answer = OneShot<Answer>()
        let (acquisition, waiter) = shared.withLock { shared in
            shared.lastWaiter += 1
            let acquisition = shared.state.acquire(shared.lastWaiter, at: .now)
            if acquisition == .queued { shared.waiters[shared.lastWaiter] = answer }
            return (acquisition, shared.lastWaiter)
        }
        switch acquisition {
        case .granted(let grant): return grant
        case .full: throw PostgresError(.poolExhausted, message: "too many tasks wait for a connection")
        case .closed: throw PostgresError(.closed, message: "the pool is closed")
        case .queued: break
        }
        scheduleService()
        let timer = Reactor.shared.schedule(at: .now + configuration.acquireTimeout) {
            self.abandon(waiter) { lastFailure in
                lastFailure ?? PostgresError(.poolExhausted, message: "no connection became free in time")
            }
        }
        defer { Reactor.shared.cancel(timer) }
        let result = await withTaskCancellationHandler {
            await answer.wait()
        } onCancel: {
            abandon(waiter) { _ in PostgresError(.cancelled, message: "the task is cancelled") }
        }
        return try result.get()
    }

    /// Ends a wait that has no grant yet; a task that has one gives it back when it notices.
    private func abandon(_ waiter: PoolState.WaiterID, _ reason: (PostgresError?) -> PostgresError) {
        let (answer, lastFailure) = shared.withLock { shared in
            shared.state.abandon(waiter)
                ? (shared.waiters.removeValue(forKey: waiter), shared.lastFailure) : (nil, nil)
        }
        answer?.resolve(.failure(reason(lastFailure)))
    }

    /// Hands out what has become free, and resumes `close()` when nothing is left to wait for.
    func serve() {
        let (served, quiet) = shared.withLock { shared in
            let served = shared.state.serve(at: .now).compactMap { entry in
                shared.waiters.removeValue(forKey: entry.waiter).map { ($0, entry.grant) }
            }
            var quiet: [OneShot<Void>] = []
            if shared.state.isClosed, shared.state.isQuiet { swap(&quiet, &shared.quiet) }
            return (served, quiet)
        }
        for (answer, grant) in served { answer.resolve(.success(grant)) }
        for waiter in quiet { waiter.resolve(()) }
        scheduleService()
    }

    /// Makes sure that a task serves at the end of the backoff.
    private func scheduleService() {
        shared.withLock { shared in
            guard shared.serviceTimer == nil, let due = shared.state.nextService else { return }
            shared.serviceTimer = Reactor.shared.schedule(at: due) {
                self.shared.withLock { $0.serviceTimer = nil }
                self.serve()
            }
        }
    }
}
