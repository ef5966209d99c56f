import Configuring
import Diagnostics
import Entitlements
import Foundation
import Logging
package import Postgres
import Queue
import RateLimits
package import Runs
import ServiceLifecycle
package import SyncWorker

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

    /// How runs, schedules and looks stand.
    package var gauges: RunGauges {
        RunGauges(runs: RunRecords(pool: pool), laws: InvariantMonitor(pool: pool), forecast: forecast)
    }

    /// Follows schedules.
    ///
    /// - Parameter plans: whether it plans runs as well.
    /// - Returns: what goes on until it is told to stop.
    package func service(plans: Bool) -> SchedulingService {
        SchedulingService(
            scheduler: Scheduler(
                lead: leadership(of: .scheduler),
                store: ScheduleStore(pool: pool),
                logger: logger
            ),
            planner: plans ? planner() : nil
        )
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

/// Follows schedules until it is told to stop; whatever it led is free at once then.
package struct SchedulingService: Service {
    package let scheduler: Scheduler
    package let planner: Planner?

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            await withTaskGroup(of: Void.self) { group in
                group.addTask { await scheduler.go() }
                group.addTask { await planner?.go() }
            }
        }
    }
}
