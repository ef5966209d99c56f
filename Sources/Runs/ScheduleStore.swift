package import FoundationEssentials
package import Postgres

/// A schedule as it stands in the database.
package struct ScheduleRecord: Sendable, Hashable {
    package var name: String
    package var cron: String
    package var zone: String
    package var scope: RunRecord.Scope
    package var isDry: Bool
    package var maxDemotions: Int32?
    /// Of the scope `since`, whose runs only have stores list what they sent: how many days back.
    package var days: Int32?
    /// Slots up to here were started or passed over.
    package var slotAt: Date
    /// The slot that waits for another run's end.
    package var lateSince: Date?

    /// The users its runs are about, in the word that commands have for it.
    package var scopeName: String { days == nil ? scope.rawValue : RunRecord.listed }

    package init(
        name: String,
        cron: String,
        zone: String,
        scope: RunRecord.Scope,
        isDry: Bool,
        maxDemotions: Int32? = nil,
        days: Int32? = nil,
        slotAt: Date = .now,
        lateSince: Date? = nil
    ) {
        self.name = name
        self.cron = cron
        self.zone = zone
        self.scope = scope
        self.isDry = isDry
        self.maxDemotions = maxDemotions
        self.days = days
        self.slotAt = slotAt
        self.lateSince = lateSince
    }
}

/// When runs are started, for every process that may start them.
package struct ScheduleStore: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// All schedules by name, and what time it is by the database's clock.
    package func all() async throws -> (schedules: [ScheduleRecord], now: Date) {
        var schedules: [ScheduleRecord] = []
        var now = Date.now
        for row in try await pool.query(
            """
            SELECT t.now, s.name, s.cron, s.zone, s.scope, s.is_dry, s.max_demotions, s.days, s.slot_at, s.late_since
              FROM (SELECT clock_timestamp() AS now) AS t LEFT JOIN entitlement_sync.schedule AS s ON true ORDER BY s.name
            """
        ) {
            now = try row["now"]
            guard let name: String = try row["name"], let scope = RunRecord.Scope(rawValue: try row["scope"])
            else { continue }
            schedules.append(
                try ScheduleRecord(
                    name: name,
                    cron: row["cron"],
                    zone: row["zone"],
                    scope: scope,
                    isDry: row["is_dry"],
                    maxDemotions: row["max_demotions"],
                    days: row["days"],
                    slotAt: row["slot_at"],
                    lateSince: row["late_since"]
                )
            )
        }
        return (schedules, now)
    }

    /// Sets a schedule, in place of the one of its name; its slots count from now on.
    package func set(_ schedule: ScheduleRecord) async throws(PostgresError) {
        try await pool.query(
            """
            INSERT INTO entitlement_sync.schedule AS s (name, cron, zone, scope, is_dry, max_demotions, days)
            VALUES (\(schedule.name), \(schedule.cron), \(schedule.zone), \(schedule.scope.rawValue), \(schedule.isDry),
                    \(schedule.maxDemotions), \(schedule.days))
            ON CONFLICT (name) DO UPDATE
               SET cron = excluded.cron, zone = excluded.zone, scope = excluded.scope, is_dry = excluded.is_dry,
                   max_demotions = excluded.max_demotions, days = excluded.days, slot_at = clock_timestamp(), late_since = NULL
            """
        )
    }

    /// Removes a schedule, and returns whether there was one; a run that it has started goes on.
    package func remove(_ name: String) async throws(PostgresError) -> Bool {
        try await pool.query("DELETE FROM entitlement_sync.schedule AS s WHERE s.name = \(name)").affected == 1
    }

    /// Starts a schedule's run for a slot; `fence` is the number under which the caller leads.
    ///
    /// - Returns: the run; `nil`: one of its scope goes on, it was started already, or the caller leads no more.
    /// - Throws: `PostgresError`.
    package func start(_ name: String, slot: Date, fence: Int64) async throws(PostgresError) -> Int64? {
        try await pool.query(
            "SELECT entitlement_sync.start_scheduled(\(fence), \(name), \(PostgresTimestamp(slot)))"
        ).first?.decode(Int64?.self, at: 0)
    }
}
