import CLibPQ

extension PostgresConnection {
    /// Waits for notifications on channels that this session listens on.
    ///
    /// - Parameter deadline: when silence has lasted long enough to ask the server for a sign of life.
    /// - Returns: what arrived, in order; empty when nothing did and the server is alive.
    /// - Throws: `PostgresError` with `.connectionLost`, `.cancelled` or `.closed`.
    func notifications(until deadline: ContinuousClock.Instant) async throws(PostgresError) -> [PostgresNotification] {
        while let raw = handle.raw {
            guard readsWithoutEnd() else {
                let error = PostgresError(lost: raw)
                close()
                throw error
            }
            let arrived = takeNotifications()
            guard arrived.isEmpty else { return arrived }
            switch await Reactor.shared.wait(PQsocket(raw), for: .read, until: deadline, cancellable: true) {
            case .ready: continue
            case .closed: throw PostgresError(.closed, message: "the connection was closed")
            case .cancelled: throw PostgresError(.cancelled, message: "the task is cancelled")
            case .timedOut:
                guard await isAlive(roundTrip: true) else {
                    throw PostgresError(.connectionLost, message: "the server gives no sign of life")
                }
                return takeNotifications()
            }
        }
        throw PostgresError(.closed, message: "the connection is closed")
    }

    private func takeNotifications() -> [PostgresNotification] {
        var taken: [PostgresNotification] = []
        while let raw = handle.raw, let next = PQnotifies(raw) {
            defer { PQfreemem(next) }
            taken.append(
                PostgresNotification(
                    channel: next.pointee.relname.map { String(cString: $0) } ?? "",
                    payload: next.pointee.extra.map { String(cString: $0) } ?? "",
                    backendPID: next.pointee.be_pid
                )
            )
        }
        return taken
    }
}
