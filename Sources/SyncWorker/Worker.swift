import Diagnostics
import Ledger
package import Logging
package import Postgres
import Queue
package import RateLimits
package import Reconciliation
package import Runs
import ServiceLifecycle
import StoreEvents

/// One worker process: claim, read, decide, apply, answer, until it is told to stop.
///
/// Each duty is a child task. A shutdown stops claiming, lets what is in flight end for a bounded time, and gives back
/// the rest.
package struct Worker: Service {
    let queue: JobQueue
    let leases: Leases
    let reader: StoreReader
    let apply: Apply
    let assets: AssetRuns
    let housekeeping: Housekeeping
    let partitions: Partitions
    let notices: EndNotices
    let laws: InvariantMonitor
    let inbox: Inbox
    let acknowledger: Acknowledger?
    let messenger: Messenger?
    let desk: DeskWork?
    let dryRunWork: DryRunWork?
    let runParts: RunParts?
    let lister: ListingWork?
    let credentials: CredentialCheck?
    let planner: Planner?
    let listener: PostgresListener?
    let exchange: @Sendable () async -> Void
    let turns: @Sendable () -> LimiterOccupancy?
    let settings: WorkerSettings
    let logger: Logger
    let shared = WorkerShared()

    /// Creates a worker.
    ///
    /// `exchange`: called about once a second to trade the stores' limits and health with other workers.
    /// `turns`: who waits at the store that everybody is asked at; `nil`: nothing limits them.
    /// `runParts`: dry runs of many users that it reads for; `lister`: stores' lists that it reads for runs; `planner`: plans runs where no other process does.
    /// `listener`: hears of new restores at once; without one they are found by polling.
    package init(
        pool: PostgresPool,
        reader: StoreReader,
        apply: Apply,
        assets: AssetRuns,
        acknowledger: Acknowledger? = nil,
        messenger: Messenger? = nil,
        desk: DeskWork? = nil,
        dryRunWork: DryRunWork? = nil,
        runParts: RunParts? = nil,
        lister: ListingWork? = nil,
        credentials: CredentialCheck? = nil,
        planner: ((_ onFed: @escaping @Sendable () -> Void) -> Planner)? = nil,
        listener: PostgresListener?,
        exchange: @escaping @Sendable () async -> Void,
        turns: @escaping @Sendable () -> LimiterOccupancy? = { nil },
        settings: WorkerSettings,
        ignoresPause: Bool = false,
        logger: Logger
    ) {
        queue = JobQueue(pool: pool, ignoresPause: ignoresPause)
        leases = Leases(pool: pool, duration: settings.lease)
        self.reader = reader
        self.apply = apply
        self.assets = assets
        self.acknowledger = acknowledger
        self.messenger = messenger
        self.desk = desk
        self.dryRunWork = dryRunWork
        self.runParts = runParts
        self.lister = lister
        self.credentials = credentials
        let wake = shared.wake
        self.planner = planner.map { $0 { wake.raise() } }
        housekeeping = Housekeeping(pool: pool, retention: settings.retention)
        partitions = Partitions(pool: pool, historyDays: settings.retention.historyDays)
        notices = EndNotices(pool: pool)
        laws = InvariantMonitor(pool: pool)
        inbox = Inbox(pool: pool)
        self.listener = listener
        self.exchange = exchange
        self.turns = turns
        self.settings = settings
        self.logger = logger
    }

    /// Whether this process holds a lease and may work.
    package var isLeased: Bool { shared.epoch != nil }

    /// Looks for due jobs at once.
    package func look() { shared.wake.raise() }

    /// Whoever queues restores in this process does it under this name, and calls `look()`.
    package var asker: String { shared.asker }

    /// Works until a graceful shutdown, or until idle where the settings say so.
    package func run() async throws {
        await withGracefulShutdownHandler {
            await work()
        } onGracefulShutdown: {
            logger.info("draining: no more jobs are claimed", metadata: ["jobs.in_flight": "\(shared.flight.count)"])
            shared.stop()
        }
    }

    private func work() async {
        await withTaskGroup(of: Void.self) { duties in
            duties.addTask { await heartbeatDuty() }
            duties.addTask { await rescueDuty() }
            duties.addTask { await housekeepingDuty() }
            duties.addTask { await assetDuty() }
            duties.addTask { await exchangeDuty() }
            duties.addTask { await credentialsDuty() }
            duties.addTask { await listenDuty() }
            duties.addTask { await announceDuty() }
            duties.addTask { await acknowledgeDuty() }
            if let background = reader.background { duties.addTask { await background() } }
            duties.addTask { await inboxDuty() }
            duties.addTask { await askDuty() }
            duties.addTask { await outboxDuty() }
            duties.addTask { await evidenceDuty() }
            duties.addTask { await transferDuty() }
            duties.addTask { await tokenDuty() }
            duties.addTask { await dryRunDuty() }
            // Two, so that one asks the stores while the other one decides.
            for _ in 0..<2 { duties.addTask { await runPartDuty() } }
            duties.addTask { await listingDuty() }
            duties.addTask { await planner?.go() }
            await pipelineWithin(drain: settings.drain)
            shared.stop()
            duties.cancelAll()
        }
        // A task of its own, because a cancelled worker has leases to return as well.
        await Task { await leave() }.value
    }

    /// Gives back what this process still holds, and tells what is still untold, within two seconds.
    private func leave() async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                guard let epoch = shared.epoch else { return await announce() }
                async let announced: Void = announce()
                do {
                    try await leases.end(epoch)
                    logger.info("stopped: leases are returned", metadata: ["worker.epoch": "\(epoch)"])
                } catch {
                    logger.error("leases could not be returned; they end by themselves", metadata: describe(error))
                }
                await announced
                // What the last requests taught about the stores would be lost for others.
                await exchange()
                try? await apply.keepAbsences()
            }
            group.addTask { try? await Task.sleep(for: .seconds(2)) }
            await group.next()
            group.cancelAll()
        }
    }

    /// Runs the pipeline; once a shutdown was asked for it has `drain` to end by itself, then it is cancelled.
    private func pipelineWithin(drain: Duration) async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await pipeline() }
            group.addTask {
                await shared.untilStopped()
                try? await Task.sleep(for: drain)
            }
            await group.next()
            group.cancelAll()
        }
    }

    private func pipeline() async {
        await withTaskGroup(of: Void.self) { stages in
            for _ in 0..<2 { stages.addTask { await applyDuty() } }
            stages.addTask {
                await withDiscardingTaskGroup { readers in await claimDuty(&readers) }
                shared.endReading()
            }
        }
    }

    /// An error for the log: its kind, never its payload.
    func describe(_ error: any Error) -> Logger.Metadata {
        if let error = error as? PostgresError {
            return [
                "error.code": "\(error.code.rawValue)", "error.sqlstate": "\(error.sqlState ?? "")",
                "error.message": "\(error)",
            ]
        }
        if let fault = error as? AdapterFault {
            return ["error.code": "\(AdapterFault.alarm)", "error.message": "\(fault)"]
        }
        return ["error.code": "\(type(of: error))"]
    }
}
