import Configuring
package import Diagnostics
import Entitlements
import Foundation
import Logging
package import Postgres
import Queue
import RateLimits
package import Runs
package import ServiceLifecycle

/// Makes schedulers and planners of the configuration.
package struct ScheduleComposition {
    private let config: Config
    private let pool: PostgresPool
    private let logger: Logger

    package init(_ runtime: Runtime, pool: PostgresPool) {
        config = runtime.config
        self.pool = pool
        logger = runtime.logger
    }

    /// Plans runs.
    ///
    /// - Parameter onFed: called once there is something to do for workers.
    /// - Returns: what goes on until it is cancelled.
    package func planner(onFed: @escaping @Sendable () -> Void = {}) -> Planner {
        Planner(
            lead: leadership(of: .planner),
            planning: RunPlanning(pool: pool, brake: config.brake),
            forecast: forecast,
            onFed: onFed,
            logger: logger
        )
    }

    /// How fast the store may be asked that everybody is asked at.
    package var forecast: RunForecast {
        RunForecast(
            requestsPerMinute: config.revenueCat.map(\.requestsPerMinute).flatMap { rate in
                rate > 0 ? RateBudget.sustained(perMinute: rate) : nil
            },
            reserved: Double(config.reserves.restorePercent + config.reserves.supportPercent) / 100
        )
    }

    /// How runs, schedules and scheduled checks stand.
    package var gauges: RunGauges {
        RunGauges(runs: RunRecords(pool: pool), invariants: InvariantMonitor(pool: pool), forecast: forecast)
    }

    /// Follows schedules.
    ///
    /// - Parameter plans: whether runs are planned as well.
    /// - Returns: services that give up their leadership at shutdown.
    package func services(plans: Bool) -> [any Service] {
        let scheduler = Scheduler(
            lead: leadership(of: .scheduler),
            store: ScheduleStore(pool: pool),
            logger: logger
        )
        return plans ? [scheduler, planner()] : [scheduler]
    }

    private func leadership(of duty: Leadership.Duty) -> Leadership {
        Leadership(
            pool: pool,
            duty: duty,
            holder: "\(ProcessInfo.processInfo.hostName) \(ProcessInfo.processInfo.processIdentifier)",
            duration: config.worker.lease
        )
    }
}
