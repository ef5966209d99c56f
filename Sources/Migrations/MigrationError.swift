import Postgres

/// Why the schema can't be brought up to date, or can't be worked with.
package struct MigrationError: Error, Sendable, CustomStringConvertible {
    package enum Code: String, Sendable, CaseIterable {
        case missing, edited, unmigrated, incompatible, locked, adapter, refused
    }

    package var code: Code
    package var description: String

    package init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }

    /// What a server's error means, while `what` was being done.
    init(_ error: PostgresError, doing what: String) {
        switch error.sqlState {
        case "55P03":
            self.init(
                .locked,
                "\(what): a table has been locked by another session for 10 s (pg_locks shows which, pg_stat_activity the"
                    + " session); end that session or wait for it, then run entitlement-sync migrate again"
            )
        case "42501":
            let hint = error.hint ?? "migrate as the owner of the host's tables"
            self.init(.refused, "\(what): \(error.message); \(hint)")
        default:
            self.init(.refused, "\(what): \(error.message)" + (error.hint.map { "; \($0)" } ?? ""))
        }
    }
}
