import Configuring
package import Diagnostics
import Entitlements
import FaultPoints
import Foundation
import Logging
package import Outbox
package import Postgres
package import Queue
import RateLimits
package import Reconciliation
package import Runs
package import ServiceLifecycle
package import StoreClients
import Telemetry
package import Transport
package import WebAPI

/// Makes a worker of the configuration.
package struct WorkerComposition {
    package let worker: Worker
    package let gauges: WorkerGauges
    /// Wakes the worker.
    package let dequeue = DequeueSignal()

    package init(
        _ runtime: Runtime,
        _ settings: StoreSettings,
        pool: PostgresPool,
        transport: HTTPTransport,
        sender: WebhookSender?,
        accounts: FirebaseAccounts?,
        watch: StatusHub?,
        untilIdle: Bool,
        scope: ServiceScope = ServiceScope(),
        share: BackgroundShare
    ) {
        let config = runtime.config
        let dequeue = dequeue
        let signals = Applier.Signals(dequeue: dequeue)
        let stores = StoreComposition(
            settings,
            config: config,
            pool: pool,
            transport: transport,
            salesSignal: signals.sales,
            reportedIDTime: OwnValue.reportedID.time(else: .seconds(2)),
            logger: runtime.logger
        ).workerStores(publishes: sender != nil)
        // What only observes changes nothing that gives access.
        let claims =
            config.decision.mode == .observe
            ? nil
            : accounts.map { accounts in
                ClaimsWriter(
                    lead: ScheduleComposition(runtime, pool: pool).leadership(of: .claims, lasting: ClaimsWriter.lead),
                    queue: ClaimsQueue(pool: pool),
                    accounts: accounts,
                    logger: runtime.logger
                )
            }
        var work = Worker.Settings(
            concurrency: config.worker.concurrency,
            batch: config.worker.batch,
            lease: config.worker.lease,
            process: LeaseKeeper.Process(
                host: ProcessInfo.processInfo.hostName,
                pid: ProcessInfo.processInfo.processIdentifier,
                version: Build.version,
                mode: config.decision.mode.rawValue,
                stores: config.askedStores.map(\.rawValue),
                sandbox: config.decision.sandbox.rawValue
            ),
            apply: ApplySettings(
                decision: config.decision,
                brake: config.brake,
                retry: config.retry,
                acknowledges: config.googlePlay.contains(where: \.acknowledges),
                publishes: sender != nil
            )
        )
        work.untilIdle = untilIdle
        work.apply.keepsClaims = claims != nil
        work.retention = config.retention
        work.backgroundCheck = config.decision.backgroundCheck
        worker = Worker(
            work,
            pool: pool,
            stores: stores,
            signals: signals,
            planner: ScheduleComposition(runtime, pool: pool).planner { dequeue.raise() },
            sender: sender,
            claims: claims,
            audience: watch,
            scope: scope,
            share: share,
            logger: runtime.logger
        )
        gauges = WorkerGauges(
            queue: JobQueue(pool: pool),
            invariants: InvariantMonitor(pool: pool),
            limiters: stores.limiters
        )
    }
}

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

    /// Plans runs; `onFed` is called once there is something to do for workers.
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
            requestsPerMinute: config.revenueCatRequestsPerMinute.map { RateBudget.sustained(perMinute: $0) },
            reserved: Double(config.reserves.restorePercent + config.reserves.supportPercent) / 100
        )
    }

    /// How runs, schedules and scheduled checks stand.
    package var gauges: RunGauges {
        RunGauges(runs: RunRecords(pool: pool), invariants: InvariantMonitor(pool: pool), forecast: forecast)
    }

    /// Follows schedules, and plans runs if asked to; the services give up their leadership at shutdown.
    package func services(plans: Bool) -> [any Service] {
        let scheduler = Scheduler(lead: leadership(of: .scheduler), store: ScheduleStore(pool: pool), logger: logger)
        return plans ? [scheduler, planner()] : [scheduler]
    }

    /// `lasting`: how long a leader may be silent, where that has to be longer than a worker's lease.
    func leadership(of duty: Leadership.Duty, lasting: Duration? = nil) -> Leadership {
        Leadership(
            pool: pool,
            duty: duty,
            holder: "\(ProcessInfo.processInfo.hostName) \(ProcessInfo.processInfo.processIdentifier)",
            duration: max(config.worker.lease, lasting ?? .zero)
        )
    }
}
