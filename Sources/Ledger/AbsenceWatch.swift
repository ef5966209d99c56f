package import Entitlements
package import Postgres
import Queue
import Synchronization

/// Counts over all workers in how many answers a store knew purchases that gave access, and in how many it did not.
///
/// Where it suddenly knows too few, the database pauses demotions before any margin can end.
package final class AbsenceWatch: Sendable {
    private let known = Mutex<[Store: Int64]>([:])

    package init() {}

    /// Counts users that stores knew.
    package func note(known counts: [Store: Int64]) {
        known.withLock { $0.merge(counts, uniquingKeysWith: +) }
    }

    /// Hands out what was counted, to be written down or given back.
    package func takeKnown() -> [Store: Int64] {
        known.withLock { counts in
            defer { counts = [:] }
            return counts
        }
    }

    /// Writes down what was counted in this process.
    package func flush(to pool: PostgresPool) async throws {
        let counts = takeKnown()
        guard !counts.isEmpty else { return }
        do {
            try await pool.query(Self.noteKnown(counts))
        } catch {
            note(known: counts)
            throw error
        }
    }

    /// Forgets absences of users that their stores know again.
    package func forget(in pool: PostgresPool) async throws {
        try await pool.query("SELECT entitlement_sync.forget_absences()")
    }

    /// Notes absences in the transaction of their batch.
    ///
    /// `known`: what was counted before and in the batch. Returns the names of the alarms that were raised.
    package func write(
        _ absences: Set<Absence>,
        known: [Store: Int64],
        on connection: PostgresConnection
    ) async throws -> [String] {
        guard !absences.isEmpty else { return [] }
        if !known.isEmpty { try await connection.query(Self.noteKnown(known)) }
        let all = absences.sorted { ($0.store.rawValue, $0.userKey) < ($1.store.rawValue, $1.userKey) }
        return try await connection.query(
            """
            SELECT n FROM entitlement_sync.note_absences(\(all.map(\.store.rawValue)), \(all.map(\.userKey)),
                                                         \(all.map(\.isUnknown)), \(all.map { Self.hint($0.store) })) AS n
            """
        ).map { try $0.decode(String.self) }
    }

    private static func noteKnown(_ counts: [Store: Int64]) -> PostgresQuery {
        let sorted = counts.sorted { $0.key.rawValue < $1.key.rawValue }
        return "SELECT entitlement_sync.note_known(\(sorted.map(\.key.rawValue)), \(sorted.map(\.value)))"
    }

    /// The alarm's text for operators; `%s` stands for the number of users.
    private static func hint(_ store: Store) -> String {
        let variables =
            switch store {
            case .revenueCat: "REVENUECAT_PROJECT_ID and REVENUECAT_API_KEY"
            case .appStore: "APP_STORE_BUNDLE_ID"
            case .googlePlay: "GOOGLE_PLAY_PACKAGE_NAME"
            case .onside: "ONSIDE_MERCHANT_ID and ONSIDE_BUNDLE_ID"
            }
        return "\(store.name) does not know purchases that have to exist, of %s users: check \(variables)."
            + " No user is demoted for it."
    }
}
