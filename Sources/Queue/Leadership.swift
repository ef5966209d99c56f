package import Postgres

/// The lead of one duty that a single process has at a time, whichever it is: a row with an end and a number.
///
/// Every step of a leader is one statement that asks for the number first. A process that stood still through its lead holds no
/// lock meanwhile, and writes nothing when it goes on.
package struct Leadership: Sendable {
    package enum Duty: String, Sendable {
        /// Starts what schedules ask for.
        case scheduler
        /// Plans the stretches of runs, and takes them on to their ends.
        case planner
    }

    private let pool: PostgresPool
    package let duty: Duty
    private let holder: String
    /// How long the lead lasts without being prolonged.
    package let duration: Duration

    /// Describes a duty.
    ///
    /// - Parameters:
    ///   - pool: where the row is.
    ///   - duty: which.
    ///   - holder: the process, for people.
    ///   - duration: how long others wait before they take over from a silent leader.
    package init(pool: PostgresPool, duty: Duty, holder: String, duration: Duration) {
        self.pool = pool
        self.duty = duty
        self.holder = holder
        self.duration = duration
    }

    /// Takes the lead, or prolongs it.
    ///
    /// - Parameter fence: the number under which this process led before.
    /// - Returns: the number under which it leads now; `nil`: another process does.
    /// - Throws: `PostgresError`.
    package func take(_ fence: Int64?) async throws(PostgresError) -> Int64? {
        let rows = try await pool.query(
            """
            SELECT entitlement_sync.take_lead(\(duty.rawValue), \(holder), \(fence),
                                              \(duration.microseconds) * interval '1 microsecond')
            """
        )
        return try rows.first?.decode(Int64?.self, at: 0) ?? nil
    }

    /// Gives the lead up for others to take at once.
    ///
    /// - Parameter fence: the number under which this process leads.
    /// - Throws: `PostgresError`.
    package func stepDown(_ fence: Int64) async throws(PostgresError) {
        try await pool.query("SELECT entitlement_sync.step_down(\(duty.rawValue), \(fence))")
    }
}
