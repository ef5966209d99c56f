import Configuring
package import Diagnostics
import Entitlements
import Foundation
package import Postgres
package import Runs

/// What `doctor` says of the days to come: whether the stores' limits leave enough for all scheduled checks, and what to change
/// where they do not.
package struct BudgetCheck {
    /// What the checks of a day may take of what is left for them.
    private static let share = 0.8

    /// What the next day asks for.
    package struct Day: Sendable, Hashable {
        /// Users to be checked.
        package var checks: Int64
        /// All known users.
        package var known: Int64
        /// Days within which each of them is checked; 0: not at all.
        package var backgroundDays: Int64
        /// The store's limit, a minute.
        package var perMinute: Int
    }

    private let pool: PostgresPool
    private let config: Config
    private let forecast: RunForecast

    package init(_ runtime: Runtime, pool: PostgresPool) {
        self.pool = pool
        config = runtime.config
        forecast = ScheduleComposition(runtime, pool: pool).forecast
    }

    /// Reads what workers have counted.
    ///
    /// - Throws: `PostgresError`.
    package func check() async throws -> Check {
        let checks = try await InvariantMonitor(pool: pool).drift()?.checksNextDay
        let known = try await pool.query(
            "SELECT greatest(c.reltuples, 0)::bigint FROM pg_class AS c WHERE c.oid = 'entitlement_sync.user_sync'::regclass"
        ).first?.decode(Int64.self, at: 0)
        let day = checks.map {
            Day(
                checks: $0,
                known: known ?? 0,
                backgroundDays: (config.decision.backgroundCheck?.components.seconds ?? 0) / 86_400,
                perMinute: config.revenueCatRequestsPerMinute ?? 0
            )
        }
        return Self.check(day, forecast)
    }

    /// Says whether a day suffices, and what would do where it does not; without a day, no worker has counted yet.
    package static func check(_ day: Day?, _ forecast: RunForecast) -> Check {
        guard let capacity = forecast.dayRequests else { return result("no store's limit is set", isEnough: true) }
        guard let day else { return result("no worker has counted the checks of the next day yet", isEnough: true) }
        let needed = Double(day.checks) * RunForecast.requestsPerUser
        let part = Int((needed / capacity * 100).rounded(.up))
        return result(
            "the checks of the next day (\(day.checks)) need about \(Int(needed)) requests, \(part) % of what the limits leave",
            isEnough: needed <= capacity * share,
            change: change(day, needed: needed, capacity: capacity, forecast)
        )
    }

    private static func result(_ detail: String, isEnough: Bool, change: String = "") -> Check {
        Check(name: "budget", ok: isEnough, detail: detail, fix: change)
    }

    /// What would make the day suffice.
    private static func change(_ day: Day, needed: Double, capacity: Double, _ forecast: RunForecast) -> String {
        let wanted = Int((Double(day.perMinute) * needed / (capacity * share)).rounded(.up))
        var ways = ["REVENUECAT_REQUESTS_PER_MINUTE=\(wanted), where RevenueCat allows it for the project"]
        if day.backgroundDays > 0 {
            // Checks for other reasons stay.
            let background = Double(day.known) / Double(day.backgroundDays)
            let room = capacity * share / RunForecast.requestsPerUser - (Double(day.checks) - background)
            let days = (Double(day.known) / max(room, 1)).rounded(.up)
            if room > 0, days > Double(day.backgroundDays), days <= 365 {
                ways.append("BACKGROUND_CHECK_DAYS=\(Int(days)) instead of \(day.backgroundDays)")
            }
        }
        ways.append("a smaller RESTORE_RESERVE_PERCENT, where few restores come")
        return "One of these: " + ways.joined(separator: "; ") + "."
    }
}
