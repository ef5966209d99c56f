package import Configuring
import Diagnostics
import Entitlements
package import Logging
package import Outbox
package import Postgres
package import Queue
package import RateLimits
package import Reconciliation
package import Runs
package import ServiceLifecycle
package import StoreEvents
import SupportDesk
package import UserRequests

/// One worker process: an ordered list of services.
///
/// A shutdown ends them from the last to the first: the dequeuer stops and its reads end, what is read is applied, callers
/// are notified. Services that are still at work after `drain` are cancelled. Once none runs any more the lease is returned.
package struct Worker: Service {
    /// How a worker works.
    package struct Settings: Sendable {
        /// Slots: jobs that are dequeued and not yet applied, at most; postponed jobs take none.
        package var concurrency: Int
        /// Jobs in one apply transaction, at most.
        package var batch: Int
        package var lease: Duration
        /// How long work in flight may go on after a shutdown was requested.
        package var drain = Duration.seconds(5)
        /// End as soon as nothing is queued, running or unfinished.
        package var untilIdle = false
        package var process: LeaseKeeper.Process
        package var apply: ApplySettings
        package var retention = Config.Retention()
        /// The time within which users without an expected change are checked; `nil`: not at all.
        package var backgroundCheck: Duration? = .seconds(30 * 86_400)
        /// Whether it reads for dry runs of many users.
        package var readsRuns = true

        package init(concurrency: Int, batch: Int, lease: Duration, process: LeaseKeeper.Process, apply: ApplySettings)
        {
            self.concurrency = concurrency
            self.batch = batch
            self.lease = lease
            self.process = process
            self.apply = apply
        }
    }

    /// How a worker reads the stores, and what it does at them.
    package struct Stores: Sendable {
        package var reader: JobReader
        /// Reads for agents and operators, on support's share of the limits; `nil`: dry runs are not answered.
        package var dryRunReader: JobReader?
        /// Reads what files name; `nil`: imports wait for other workers.
        package var namedReader: ImportReader.Read?
        package var limiters: StoreRateLimiters
        /// What stores can list of what they sent.
        package var lists: [StoreList] = []
        package var acknowledger: Acknowledger?
        /// Goes on beside the reads, and ends after them.
        package var beside: [any Service] = []
        /// Goes on for the support desk.
        package var desk: [any Service] = []

        package init(reader: JobReader, limiters: StoreRateLimiters) {
            self.reader = reader
            self.limiters = limiters
        }
    }

    private let lease: WorkerLease
    private let drain: Duration
    private let services: [any Service]
    private let last: any Service
    /// What is left to do once no service runs any more.
    private let leave: @Sendable () async -> Void
    private let scope: ServiceScope
    private let logger: Logger

    /// Whether this process holds a lease and may work.
    package var isLeased: Bool { lease.epoch != nil }

    /// Puts a worker together; without a `planner`, another process plans runs; `share`: what background jobs may use.
    package init(
        _ settings: Settings,
        pool: PostgresPool,
        stores: Stores,
        signals: Applier.Signals,
        planner: Planner? = nil,
        sender: WebhookSender? = nil,
        claims: ClaimsWriter? = nil,
        audience: (any RestoreAudience)? = nil,
        scope: ServiceScope = ServiceScope(),
        share: BackgroundShare = BackgroundShare(),
        logger: Logger
    ) {
        self.scope = scope
        let lease = WorkerLease()
        self.lease = lease
        drain = settings.drain
        self.logger = logger
        var applySettings = settings.apply
        if let audience { applySettings.wantsAnswer = { audience.awaits($0) } }
        let limiters = stores.limiters
        let queue = JobQueue(pool: pool, ignoresPause: settings.apply.decision.mode == .observe)
        let leases = Leases(pool: pool, duration: settings.lease)
        let reader = stores.reader
        let jobs = InFlightJobs()
        let dequeue = signals.dequeue
        let notifier = OutcomeNotifier(pool: pool, audience: audience, logger: logger)
        let apply = Apply(pool: pool, settings: applySettings, logger: logger)
        let inbox = Inbox(pool: pool)
        let acknowledger = stores.acknowledger
        let accountSearch = AccountSearch(pool: pool, publishes: settings.apply.publishes, logger: logger)
        // What only observes opens no ticket.
        let searchesAccounts = settings.apply.decision.mode != .observe
        let isIdle: @Sendable () async throws -> Bool = {
            // The inbox first: what leaves it stands in the queue with the same commit.
            if try await inbox.hasNew(orAsks: reader.resolve != nil) { return false }
            guard try await queue.isIdle() else { return false }
            if searchesAccounts, try await accountSearch.hasOpen() { return false }
            return try await acknowledger?.records.hasOpen() != true
        }
        let dequeuer = Dequeuer(
            queue,
            reader: reader,
            lease: lease,
            jobs: jobs,
            dequeue: dequeue,
            slots: settings.concurrency,
            batch: settings.batch,
            share: share,
            limiter: { limiters.occupancy },
            isIdle: settings.untilIdle ? isIdle : nil,
            logger: logger
        )
        last = dequeuer
        var process = settings.process
        process.lists = stores.lists.map(\.name)
        let pause = settings.untilIdle ? Duration.milliseconds(200) : .seconds(1)
        let keeper = LeaseKeeper(leases, lease: lease, process: process, dequeue: dequeue, logger: logger)
        let exchange = LimitExchange(limiters, health: StoreHealth(pool: pool), logger: logger)
        leave = {
            async let notified: Void = notifier.notify()
            await keeper.end()
            await notified
            // What the last requests taught about the stores would be lost for other workers.
            await exchange.exchange()
            try? await apply.keepAbsences()
        }
        let beforeReads: [(any Service)?] = [
            keeper, notifier, exchange,
            leases.rescuer(dequeue: dequeue, logger: logger),
        ]
        let applier = Applier(
            apply,
            queue: queue,
            lease: lease,
            jobs: jobs,
            notifier: notifier,
            signals: signals,
            batch: settings.batch,
            restoreTook: { share.restoreEnded(after: $0) },
            logger: logger
        )
        var work: [(any Service)?] = [
            AssetRuns(
                pool: pool,
                mode: settings.apply.decision.mode,
                publishes: settings.apply.publishes,
                logger: logger
            )
            .service(wokenBy: signals.assets),
            acknowledger,
            searchesAccounts ? accountSearch.service(wokenBy: signals.accounts) : nil,
            InboxProcessor(
                inbox,
                dequeue: dequeue,
                longestPause: pause,
                rest: { share.rest(after: $0) },
                logger: logger
            ),
            reader.resolve.map { EventResolver(inbox, longestPause: pause, logger: logger, resolve: $0) },
            sender.map { OutboxDispatcher(outbox: OutboxQueue(pool: pool), sender: $0, logger: logger) },
            claims,
            BackfillReader(Listings(pool: pool), lists: stores.lists, retry: settings.apply.retry, logger: logger),
            CheckScheduler(pool: pool, background: settings.backgroundCheck, dequeue: dequeue, logger: logger),
            planner,
            stores.dryRunReader.map {
                DryRunner(DryRuns(pool: pool), reader: $0, apply: apply, lease: lease, logger: logger)
            },
        ]
        let upkeep: [any Service] = [
            apply.absenceKeeper(),
            Partitions(pool: pool, historyDays: settings.retention.historyDays).maintainer(logger: logger),
            RetentionCleaner(pool: pool, retention: settings.retention, logger: logger),
            queue.compactor(logger: logger),
            BrakeStore.subscriberCounter(pool, logger: logger),
            InvariantMonitor(pool: pool).service(logger: logger),
            CommitWatch(pool: pool).service(logger: logger),
        ]
        if settings.readsRuns {
            work.append(
                stores.namedReader.map {
                    ImportReader(
                        ImportLines(pool: pool, ignoresPause: settings.apply.decision.mode == .observe),
                        read: $0,
                        apply: apply,
                        retry: settings.apply.retry,
                        lease: lease,
                        slots: { dequeuer.backgroundSlots },
                        logger: logger
                    )
                }
            )
            work.append(
                RunPartReader(
                    RunParts(pool: pool),
                    reader: reader,
                    apply: apply,
                    lease: lease,
                    inFlight: jobs,
                    batch: settings.batch,
                    slots: { dequeuer.backgroundSlots },
                    limiter: { limiters.occupancy },
                    logger: logger
                )
            )
        }
        services =
            beforeReads.compactMap(\.self) + stores.beside + [applier] + work.compactMap(\.self) + upkeep
            + stores.desk
    }

    /// Works until a graceful shutdown, or until idle where the settings say so.
    package func run() async throws {
        typealias Part = ServiceGroupConfiguration.ServiceConfiguration
        var configuration = ServiceGroupConfiguration(
            services: services.map { Part(service: NamedService($0), successTerminationBehavior: .ignore) } + [
                Part(service: NamedService(last), successTerminationBehavior: .gracefullyShutdownGroup)
            ],
            logger: logger
        )
        configuration.maximumGracefulShutdownDuration = drain
        let group = ServiceGroup(configuration: configuration)
        let result: Result<Void, any Error>
        do {
            try await withGracefulShutdownHandler {
                try await ServiceScope.$current.withValue(scope) { try await group.run() }
            } onGracefulShutdown: {
                scope.stop()
            }
            result = .success(())
        } catch {
            // Cancelled services end in any order, which the group reports as a fault.
            result = Task.isCancelled ? .success(()) : .failure(error)
        }
        // Not before: a lease that ends while a batch is written would count as this process's crash.
        await finish(within: .seconds(2), leave)
        try result.get()
    }
}
