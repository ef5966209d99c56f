/// A moment of a session at which a hook may interrupt it.
package enum SessionMoment: Sendable, CaseIterable {
    /// A statement is about to be sent; in a transaction or on its own.
    case statementBefore
    /// A statement took place, and its caller has not seen the answer.
    case statementAfter
    /// Everything of a transaction is written but its end.
    case commitBefore
    /// A transaction took place, and the answer to COMMIT is lost.
    case commitLostAnswer
    /// A transaction took place, and its caller is about to get the answer.
    case commitAfter
}

/// What a hook does to a session.
package enum SessionInterruption: Sendable {
    /// Its connection is closed.
    case drop
    /// The caller gets a server's error; what was done before stays done.
    case refuse
}

/// Interrupts sessions, for tests of what follows; returns `nil` to let a session go on.
package typealias SessionHook = @Sendable (SessionMoment) async -> SessionInterruption?

extension PostgresConnection {
    /// Lets the configuration's hook interrupt this session.
    func reach(_ moment: SessionMoment) async throws(PostgresError) {
        guard let hook = configuration.hook else { return }
        switch await hook(moment) {
        case nil: return
        case .drop:
            handle.close()
            throw PostgresError(.connectionLost, message: "a hook closed the connection")
        case .refuse:
            throw PostgresError(.serverError, sqlState: "53000", message: "a hook refuses this")
        }
    }
}
