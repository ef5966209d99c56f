import Configuring
import Diagnostics
import Entitlements
import Foundation
package import Outbox
package import Postgres
import Queue
import RateLimits
import Reconciliation
import Runs
import StoreClients
package import SyncWorker
package import Transport
package import WebAPI

/// Makes a worker of the configuration.
package struct WorkerComposition {
    package let worker: Worker
    package let gauges: WorkerGauges

    package init(
        _ runtime: Runtime,
        _ settings: StoreSettings,
        pool: PostgresPool,
        transport: HTTPTransport,
        receiver: Receiver?,
        watch: RestoreWatch?,
        untilIdle: Bool
    ) {
        let config = runtime.config
        var stores = StoreComposition(
            settings,
            config: config,
            pool: pool,
            transport: transport,
            logger: runtime.logger
        )
        let reader = stores.reader()
        var desk = stores.desk
        desk?.tells = receiver != nil
        let gates = stores.gates
        let health = StoreHealth(pool: pool)
        worker = Worker(
            pool: pool,
            reader: reader,
            apply: Apply(
                pool: pool,
                settings: ApplySettings(
                    decision: config.decision,
                    brake: config.brake,
                    retry: config.retry,
                    acknowledges: config.googlePlay?.acknowledges ?? false,
                    tells: receiver != nil
                ),
                audience: watch,
                logger: runtime.logger
            ),
            assets: AssetRuns(
                pool: pool,
                mode: config.decision.mode,
                tells: receiver != nil,
                logger: runtime.logger
            ),
            acknowledger: stores.acknowledger,
            messenger: receiver.map {
                Messenger(outbox: OutboxQueue(pool: pool), receiver: $0, logger: runtime.logger)
            },
            desk: desk,
            dryRunWork: stores.dryRunWork,
            runParts: RunParts(pool: pool),
            lister: stores.lister,
            credentials: stores.credentials,
            planner: { ScheduleComposition(runtime, pool: pool).planner(onFed: $0) },
            listener: PostgresListener(
                configuration: runtime.postgres(connections: 1, direct: true),
                logger: runtime.logger
            ),
            exchange: { await gates.exchange(with: health) },
            turns: { gates.turns },
            settings: WorkerSettings(
                concurrency: config.worker.concurrency,
                batch: config.worker.batch,
                lease: config.worker.lease,
                untilIdle: untilIdle,
                host: ProcessInfo.processInfo.hostName,
                pid: ProcessInfo.processInfo.processIdentifier,
                version: Build.version,
                mode: config.decision.mode.rawValue,
                retention: .init(
                    eventDays: config.retention.eventDays,
                    historyDays: config.retention.historyDays
                ),
                backgroundCheck: config.decision.backgroundCheck
            ),
            ignoresPause: config.decision.mode == .observe,
            logger: runtime.logger
        )
        gauges = WorkerGauges(queue: JobQueue(pool: pool), laws: InvariantMonitor(pool: pool), gates: gates)
    }
}
