import Entitlements
import Ledger
import Postgres

extension ReadFailure {
    /// Why our records, or the host's users, could not be read while stores were asked.
    ///
    /// - Parameters:
    ///   - error: what the database or the adapter answered.
    ///   - store: whose answer could not be used for that reason.
    init(records error: any Error, store: Store? = nil) {
        let code: Code =
            switch error {
            case is CancellationError: .interrupted
            case let error as PostgresError where error.code == .cancelled: .interrupted
            case is AdapterFault: .adapterRefused
            case let failure as ReadFailure: failure.code
            default: .recordsUnavailable
            }
        self.init(code, store: store)
    }
}
