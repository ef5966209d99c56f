import Configuring
@testable import Composition
import Entitlements
import Foundation
import HTTPTypes
import Logging
import Outbox
import Postgres
import Queue
import RateLimits
import Reconciliation
import Runs
import StoreClients
import StoreEvents
import TestSupport
import Testing
import Transport
import UserRequests

/// How the worker of a test is configured; as the program, but with short waits.
struct WorkerSetup: Sendable {
    var decision = DecisionSettings()
    var brake = DemotionBrake(percent: 0.5, minimum: 100)
    var retry = RetryPolicy(
        maxAttempts: 8,
        backoffBase: .milliseconds(10),
        backoffCap: .milliseconds(50),
        maxAge: .seconds(86_400)
    )
    var lease = Duration.seconds(10)
    var drain = Duration.seconds(5)
    var untilIdle = true
    var assetBatch = 1000
    /// The time that finding a reported id takes at least; a test compares ids under the program's own.
    var reportedIDTime = Duration.milliseconds(20)
    /// Jobs that are held at once.
    var concurrency = 64
    /// The stores' variables, as the program is told of them; RevenueCat alone where there are none.
    var stores: [String: String]?
    /// Whether it works for the support desk as well.
    var servesDesk = false
    /// How far ahead it plans runs; `nil`: not at all.
    var plans: Planner.Limits?
    /// Whether others hear of what it changes.
    var tells = false
    /// Whether it keeps users' custom claims.
    var keepsClaims = false
    /// How it reaches the database, where that is not the world's own way.
    var database: String?
    /// In whose name it is at the database; the owner's where there is none.
    var role: String?
    /// Further variables.
    var variables: [String: String] = [:]
    /// Who waits in the worker's process.
    var audience: (any RestoreAudience)?
}

struct WorkerTookTooLong: Error {}

extension PostgresConfiguration {
    /// The way of a worker to its database; its services ask at the same time, and wait for each other's connections.
    static func worker(at url: String, role: String? = nil) -> PostgresConfiguration {
        PostgresConfiguration(
            connectionString: url,
            maxConnections: 4,
            maxWaiters: 4096,
            sessionSettings: SessionSettings.ordinary.merging(role.map { ["role": $0] } ?? [:]) { $1 }
        )
    }
}

extension World {
    /// Runs one worker, composed as the program composes it, until nothing is left to do.
    ///
    /// - Throws: `WorkerTookTooLong` when it has not ended in time.
    func work(_ setup: WorkerSetup = WorkerSetup(), within limit: Duration = .seconds(60)) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await runWorker(setup) }
            group.addTask {
                try await Task.sleep(for: limit)
                throw WorkerTookTooLong()
            }
            try await group.next()
            group.cancelAll()
        }
    }

    /// Runs a worker that is not told when to stop until the body has returned; then it is cancelled.
    func working(_ setup: WorkerSetup = WorkerSetup(), while body: @Sendable () async throws -> Void) async throws {
        var setup = setup
        setup.untilIdle = false
        try await withThrowingTaskGroup(of: Void.self) { [setup] group in
            group.addTask { try await runWorker(setup) }
            try await body()
            group.cancelAll()
        }
    }

    /// Plans and queues scheduled checks.
    func checks(background: Duration? = nil) -> CheckScheduler {
        CheckScheduler(pool: pool, background: background, dequeue: DequeueSignal(), logger: .quiet)
    }

    private func runWorker(_ setup: WorkerSetup) async throws {
        let configuration = PostgresConfiguration.worker(at: setup.database ?? database.url, role: setup.role)
        let isOwn = setup.database != nil || setup.role != nil
        let pool = isOwn ? PostgresPool(configuration: configuration, logger: .quiet) : workerPool
        let transport = HTTPTransport(
            configuration: HTTPTransportConfiguration(maxConnectionsPerHost: 64),
            logger: .quiet
        )
        try await run {
            let dequeue = DequeueSignal()
            let worker = try worker(setup, pool, transport, dequeue)
            let listener = AppListener(
                PostgresListener(configuration: configuration, logger: .quiet),
                dequeue: dequeue,
                logger: .quiet
            )
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { await listener.run() }
                defer { group.cancelAll() }
                try await worker.run()
            }
        } finally: {
            await transport.shutdown()
            if isOwn { await pool.close() }
        }
    }

    private func worker(
        _ setup: WorkerSetup,
        _ pool: PostgresPool,
        _ transport: HTTPTransport,
        _ dequeue: DequeueSignal
    ) throws -> Worker {
        var environment = setup.stores ?? revenueCat
        environment["DATABASE_URL"] = setup.database ?? database.url
        if setup.keepsClaims { environment.merge(firebase) { $1 } }
        environment.merge(setup.variables) { $1 }
        let config = try Config.load(environment: environment)
        let signals = Applier.Signals(dequeue: dequeue)
        var stores = StoreComposition(
            try StoreSettings(config),
            config: config,
            pool: pool,
            transport: transport,
            salesSignal: signals.sales,
            reportedIDTime: setup.reportedIDTime,
            logger: .quiet
        ).workerStores(publishes: setup.tells)
        if !setup.servesDesk { (stores.desk, stores.dryRunReader) = ([], nil) }
        var work = Worker.Settings(
            concurrency: setup.concurrency,
            batch: 100,
            lease: setup.lease,
            process: LeaseKeeper.Process(
                host: "test",
                pid: ProcessInfo.processInfo.processIdentifier,
                version: "test"
            ),
            apply: ApplySettings(
                decision: setup.decision,
                brake: setup.brake,
                retry: setup.retry,
                assetBatch: setup.assetBatch,
                publishes: setup.tells
            )
        )
        // All tests at once leave little time to each.
        work.apply.countLimit = .seconds(20)
        work.drain = setup.drain
        work.untilIdle = setup.untilIdle
        work.readsRuns = setup.plans != nil
        work.apply.keepsClaims = setup.keepsClaims
        return Worker(
            work,
            pool: pool,
            stores: stores,
            signals: signals,
            planner: setup.plans.map { limits in
                Planner(
                    lead: Leadership(pool: pool, duty: .planner, holder: "test", duration: setup.lease),
                    planning: RunPlanning(pool: pool, brake: setup.brake),
                    forecast: RunForecast(requestsPerMinute: nil),
                    limits: limits,
                    onFed: { dequeue.raise() },
                    logger: .quiet
                )
            },
            claims: try FirebaseAccounts(config, transport).map {
                ClaimsWriter(lead: claimsLead(pool), queue: ClaimsQueue(pool: pool), accounts: $0, logger: .quiet)
            },
            audience: setup.audience,
            logger: .quiet
        )
    }

    /// The lead of the one who keeps custom claims.
    func claimsLead(_ pool: PostgresPool, for duration: Duration = ClaimsWriter.lead) -> Leadership {
        Leadership(pool: pool, duty: .claims, holder: "test", duration: duration)
    }
}
