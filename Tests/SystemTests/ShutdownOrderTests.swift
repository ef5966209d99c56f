import Composition
import Entitlements
import Foundation
import Logging
import Postgres
import Queue
import RateLimits
import Reconciliation
import ServiceLifecycle
import Synchronization
import TestSupport
import Testing
import UserRequests

/// The order in which a worker's services end.
@Suite(.timeLimit(.minutes(5)))
struct ShutdownOrderTests {
    /// What happens from the shutdown on, a caller's answer included.
    private final class Order: RestoreAudience {
        private let noted = Mutex<[String]>([])

        var steps: [String] { noted.withLock(\.self) }

        func note(_ step: String) { noted.withLock { $0.append(step) } }

        func awaits(_ id: UUID) -> Bool { true }

        func take(_ answers: [RestoreAnswer]) -> Set<UUID> {
            note("answered")
            return Set(answers.map(\.id))
        }
    }

    /// Notes the ends of services, which their group logs by name, and the worker's own lines about its shutdown.
    private struct OrderLog: LogHandler {
        let order: Order
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.debug

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let message = "\(event.message)"
            if message == "Service finished", let service = event.metadata?["sl-service"] {
                order.note("\(service)")
            } else if message.hasPrefix("draining:") {
                order.note("draining")
            } else if message.hasPrefix("stopped:") {
                order.note("stopped")
            }
        }
    }

    @Test func `At a shutdown no job is claimed, what is read is applied and answered, and the lease is returned last`()
        async throws
    {
        try await World.with { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            let read = try await world.restore("ann")
            let order = Order()
            let (asked, ask) = AsyncStream.makeStream(of: Void.self)
            let (answered, answer) = AsyncStream.makeStream(of: Void.self)
            let reader = JobReader { job in
                if job.id == read {
                    ask.yield()
                    for await _ in answered { break }
                }
                return Reading(coverage: .full, askedAt: job.databaseTime(at: .now))
            }
            let worker = ServiceGroup(services: [Self.worker(world, reader, order)], logger: .quiet)
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await worker.run() }
                for await _ in asked { break }
                await worker.triggerGracefulShutdown()
                try await eventually { order.steps == ["draining"] }
                let late = try await world.restore("bob")
                #expect(try await Self.leases(world) == 1, "a job is still in flight")
                answer.yield()
                try await group.waitForAll()
                #expect(try await world.status(late).state == "queued")
            }
            let steps = order.steps
            let parts = ["draining", "Dequeuer", "Applier", "OutcomeNotifier", "LeaseKeeper", "stopped"]
            #expect(steps.filter(parts.contains) == parts, "\(steps)")
            // Everything else ends between the dequeuer and the lease keeper.
            let ends = steps.filter { $0 != "answered" }
            #expect(ends.starts(with: parts.prefix(2)) && ends.suffix(2) == parts.suffix(2), "\(steps)")
            let place = try #require(steps.firstIndex(of: "answered"))
            #expect(place < steps.firstIndex(of: "Applier") ?? 0, "\(steps)")
            // The pool is the caller's, who closes it only after this: all is in the database already.
            #expect(try await world.status(read).outcome == "nothing_to_restore")
            #expect(try await Self.leases(world) == 0)
            #expect(try await world.number("SELECT count(owner) FROM entitlement_sync.queue") == 0)
        }
    }

    private static func leases(_ world: World) async throws -> Int64 {
        try await world.number("SELECT count(*) FROM entitlement_sync.worker WHERE expires_at > now()")
    }

    private static func worker(_ world: World, _ reader: JobReader, _ order: Order) -> Worker {
        let setup = WorkerSetup()
        let logger = Logger(label: "shutdown") { _ in OrderLog(order: order) }
        var settings = Worker.Settings(
            concurrency: 4,
            batch: 100,
            lease: .seconds(60),
            process: LeaseKeeper.Process(host: "test", pid: 1, version: "test"),
            apply: ApplySettings(decision: setup.decision, brake: setup.brake, retry: setup.retry)
        )
        // Long enough for any machine: what is cancelled ends in no order.
        settings.drain = .seconds(120)
        settings.backgroundCheck = nil
        settings.readsRuns = false
        return Worker(
            settings,
            pool: world.pool,
            stores: Worker.Stores(reader: reader, limiters: StoreRateLimiters(logger: logger)),
            signals: Applier.Signals(dequeue: DequeueSignal()),
            audience: order,
            logger: logger
        )
    }
}
