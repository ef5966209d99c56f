package import Logging
package import Postgres

/// An error that says itself what the log may show of it.
package protocol LoggedError: Error {
    /// Codes and fixed texts, never a payload.
    var logMetadata: Logger.Metadata { get }
}

extension PostgresError: LoggedError {
    package var logMetadata: Logger.Metadata {
        ["error.code": "\(code.rawValue)", "error.sqlstate": "\(sqlState ?? "")", "error.message": "\(self)"]
    }
}

/// An error for the log: its kind, never its payload.
package func errorMetadata(_ error: any Error) -> Logger.Metadata {
    (error as? any LoggedError)?.logMetadata ?? ["error.code": "\(type(of: error))"]
}
