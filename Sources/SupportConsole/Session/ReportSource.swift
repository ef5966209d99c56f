package import Postgres
import Synchronization

/// A standby for reports, which is left alone for a while where it did not answer.
package final class ReportSource: Sendable {
    /// Further behind than this, the primary is asked.
    private static let mostSeconds = 60.0
    private static let rest = Duration.seconds(30)

    private let pool: PostgresPool
    private let restsUntil = Mutex<ContinuousClock.Instant?>(nil)

    package init(_ pool: PostgresPool) { self.pool = pool }

    /// Reads something here.
    ///
    /// - Returns: what was read, and how far the server is behind, where it is a standby; `nil`: it has to be read elsewhere.
    func read<Value>(_ body: (PostgresPool) async throws -> Value) async throws -> (value: Value, lag: String?)? {
        guard restsUntil.withLock({ $0.map { $0 < .now } ?? true }) else { return nil }
        do {
            let lag = try await StandbyLag(in: pool)
            guard lag?.seconds ?? 0 <= Self.mostSeconds else { return nil }
            return (try await body(pool), lag?.words)
        } catch let error as PostgresError {
            // A session of the last moments may not have arrived here: that is no fault of the server's.
            if error.sqlState != "ES009" { restsUntil.withLock { $0 = .now + Self.rest } }
            return nil
        }
    }
}
