import Configuring
package import Diagnostics
import Entitlements
import Foundation
package import Outbox
package import Postgres
package import Queue
import Reconciliation
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
        watch: RestoreWatch?,
        untilIdle: Bool
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
            logger: runtime.logger
        ).workerStores(publishes: sender != nil)
        var work = Worker.Settings(
            concurrency: config.worker.concurrency,
            batch: config.worker.batch,
            lease: config.worker.lease,
            process: LeaseKeeper.Process(
                host: ProcessInfo.processInfo.hostName,
                pid: ProcessInfo.processInfo.processIdentifier,
                version: Build.version,
                mode: config.decision.mode.rawValue
            ),
            apply: ApplySettings(
                decision: config.decision,
                brake: config.brake,
                retry: config.retry,
                acknowledges: config.googlePlay?.acknowledges ?? false,
                tells: sender != nil
            )
        )
        work.untilIdle = untilIdle
        work.retention = .init(eventDays: config.retention.eventDays, historyDays: config.retention.historyDays)
        work.backgroundCheck = config.decision.backgroundCheck
        worker = Worker(
            work,
            pool: pool,
            stores: stores,
            signals: signals,
            listener: PostgresListener(
                configuration: runtime.postgres(connections: 1, direct: true),
                logger: runtime.logger
            ),
            planner: ScheduleComposition(runtime, pool: pool).planner { dequeue.raise() },
            sender: sender,
            audience: watch,
            logger: runtime.logger
        )
        gauges = WorkerGauges(
            queue: JobQueue(pool: pool),
            invariants: InvariantMonitor(pool: pool),
            limiters: stores.limiters
        )
    }
}
