import Synchronization

extension PostgresPool {
    /// Maintains the pool until it is closed or the task is cancelled, and closes it then.
    ///
    /// Optional: without it the pool works, but keeps idle connections for ever.
    package func run() async {
        var goesOn = true
        while goesOn {
            let pause = OneShot<Bool>()
            let isClosed = shared.withLock { shared in
                shared.pause = pause
                return shared.state.isClosed
            }
            if isClosed { break }
            let timer = Reactor.shared.schedule(at: .now + Self.restBeforeCheck) { pause.resolve(true) }
            goesOn = await withTaskCancellationHandler {
                await pause.wait()
            } onCancel: {
                pause.resolve(false)
            }
            Reactor.shared.cancel(timer)
            if goesOn { await closeIdle(since: .now - Self.restBeforeClose) }
        }
        await close()
    }

    /// Closes the pool: waiting tasks get `.closed`, connections in use end within the grace period, then by force.
    package func close(grace: Duration = .seconds(5)) async {
        let quiet = OneShot<Void>()
        let (waiters, idle, pause) = shared.withLock { shared in
            let (waiterIDs, idleIDs) = shared.state.close()
            if shared.state.isQuiet { quiet.resolve(()) } else { shared.quiet.append(quiet) }
            return (
                waiterIDs.compactMap { shared.waiters.removeValue(forKey: $0) },
                idleIDs.compactMap { shared.connections.removeValue(forKey: $0) },
                shared.pause
            )
        }
        pause?.resolve(false)
        for waiter in waiters { waiter.resolve(.failure(PostgresError(.closed, message: "the pool is closed"))) }
        for connection in idle { await connection.close() }

        let timer = Reactor.shared.schedule(at: .now + grace) { quiet.resolve(()) }
        await quiet.wait()
        Reactor.shared.cancel(timer)
        for connection in shared.withLock({ Array($0.connections.values) }) { await connection.close() }
    }

    /// Closes connections that were not used since a moment.
    func closeIdle(since moment: ContinuousClock.Instant) async {
        let old = shared.withLock { shared in
            shared.state.removeIdle(since: moment).compactMap { shared.connections.removeValue(forKey: $0) }
        }
        for connection in old { await connection.close() }
    }
}
