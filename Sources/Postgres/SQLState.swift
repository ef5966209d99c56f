/// The SQLSTATE values that callers or this target branch on.
/// - SeeAlso: https://www.postgresql.org/docs/15/errcodes-appendix.html
package enum SQLState {
    package static let uniqueViolation = "23505"
    package static let serializationFailure = "40001"
    package static let deadlockDetected = "40P01"
    package static let lockNotAvailable = "55P03"
    package static let queryCanceled = "57014"
    package static let adminShutdown = "57P01"
    package static let crashShutdown = "57P02"
    package static let cannotConnectNow = "57P03"
    package static let readOnlyTransaction = "25006"
    package static let inFailedTransaction = "25P02"
    package static let idleInTransactionTimeout = "25P03"
    package static let tooManyConnections = "53300"
    package static let featureNotSupported = "0A000"
    package static let invalidStatementName = "26000"
    package static let invalidCatalogName = "3D000"
    package static let insufficientPrivilege = "42501"

    /// Whether the server closes, or has already lost, the session after this state.
    ///
    /// 25006 belongs here too: the session was fine, but it leads to a server that is not the primary (any more), and
    /// only a new connection finds the one that is.
    package static func endsSession(_ state: String) -> Bool {
        switch state {
        case adminShutdown, crashShutdown, cannotConnectNow, "57P04", "57P05", idleInTransactionTimeout,
            readOnlyTransaction:
            true
        default:
            state.hasPrefix("08")
        }
    }

    /// Whether the same work, started again from the beginning, may succeed without a change.
    package static func isTransient(_ state: String) -> Bool {
        switch state {
        case serializationFailure, deadlockDetected, lockNotAvailable: true
        default: endsSession(state) || state.hasPrefix("53")
        }
    }
}
