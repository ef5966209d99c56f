import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// What is put back into the queue begins again, and a wait in which no store was asked ends nothing.
struct PutBackTests {
    /// Makes every dead job one that was asked for some hours ago.
    ///
    /// - Returns: their ids.
    private static func age(_ world: World, hours: Int32 = 25) async throws -> [UUID] {
        try await world.pool.query(
            """
            UPDATE entitlement_sync.job_history AS h
               SET id = encode(overlay(uuid_send(h.id) PLACING substring(int8send(
                        (extract(epoch FROM now() - make_interval(hours => \(hours))) * 1000)::bigint) FROM 3)
                        FROM 1 FOR 6), 'hex')::uuid
             WHERE h.state = 'dead'
            RETURNING h.id
            """
        ).map { try $0.decode(UUID.self, at: 0) }
    }

    /// Takes the meaning of the entitlement away.
    private static func unmap(_ world: World) async throws {
        try await world.pool.query("DELETE FROM entitlement_sync.product")
    }

    private static func map(_ world: World) async throws {
        try await world.pool.query(
            """
            INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
            VALUES ('revenuecat', 'premium', 'premium', true)
            """
        )
    }

    private static var once: WorkerSetup {
        var setup = WorkerSetup()
        setup.retry.maxAttempts = 1
        return setup
    }

    @Test func `300 dead by an unmapped product, mapped a day later under a limit: all are restored`() async throws {
        let users = (1...300).map { "user-\($0)" }
        try await World.with(customers: users.map { "{id: \($0), state: active}" }) { world in
            try await Self.unmap(world)
            for user in users {
                try await world.add(user)
                _ = try await world.restore(user)
            }
            try await world.work(Self.once)
            let dead = try await Self.age(world)
            #expect(dead.count == 300)
            try await Self.map(world)
            var setup = WorkerSetup()
            setup.variables = ["REVENUECAT_REQUESTS_PER_MINUTE": "480"]
            // More than the limit serves while a request waits at the gate.
            setup.concurrency = 400
            try await world.work(setup, within: .seconds(180))
            let answers = try await world.pool.query(
                """
                SELECT j.state || ' ' || coalesce(j.outcome, '') || ' ' || coalesce(j.last_error, ''), count(*)
                  FROM entitlement_sync.job_status AS j GROUP BY 1
                """
            ).map { try $0.decode(String.self, Int64.self) }
            #expect(answers.map(\.0) == ["done restored "] && answers.map(\.1) == [300], "\(answers)")
        }
    }

    @Test(arguments: JobKind.allCases)
    func `A job of yesterday that is put back outlives a failed read`(kind: JobKind) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.inject(#"{"status":500}"#)
            _ = kind == .restore ? try await world.restore("ann") : try await world.reconcile("ann")
            try await world.work(Self.once)
            let old = try #require(try await Self.age(world).first)
            try await world.heal()
            try await world.inject(#"{"status":500,"times":1}"#)
            #expect(try await world.commands.retry(old))
            try await world.work()
            let status = try await world.status(old)
            #expect(status.state == "done" && status.attempt == 1, "\(status)")
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test(arguments: JobKind.allCases)
    func `A dead reconcile is settled by a later reading of its user, a dead restore is not`(kind: JobKind)
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.inject(#"{"status":500}"#)
            let job = kind == .restore ? try await world.restore("ann") : try await world.reconcile("ann")
            try await world.work(Self.once)
            let requests = Requests(pool: world.pool)
            #expect(try await requests.dead(limit: 10).map(\.id) == [job])
            #expect(try await world.commands.stats().dead == 1)
            try await world.heal()
            _ = try await world.reconcile("ann")
            try await world.work()
            #expect(try await world.status(job).state == "dead")
            let isLeft = kind == .restore
            #expect(try await requests.dead(limit: 10).map(\.id) == (isLeft ? [job] : []))
            #expect(try await world.commands.stats().dead == (isLeft ? 1 : 0))
            #expect(try await world.commands.retryAll(error: "store_unavailable") == 0)
        }
    }

    @Test func `A job that waits for a product begins again when it is mapped`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await Self.unmap(world)
            let job = try await world.restore("ann")
            var setup = WorkerSetup()
            setup.retry.maxAttempts = 2
            setup.retry.backoffBase = .seconds(600)
            setup.retry.backoffCap = .seconds(600)
            try await world.working(setup) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND attempt = 1 AND state = 'queued'"
                )
            }
            try await world.inject(#"{"status":500,"times":1}"#)
            try await Self.map(world)
            setup.retry.backoffBase = .milliseconds(10)
            try await world.work(setup)
            let status = try await world.status(job)
            #expect(status.outcome == "restored" && status.attempt == 1, "\(status)")
        }
    }

    @Test func `A job put back behind one that runs is as old as its turn`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.inject(#"{"status":500}"#)
            _ = try await world.restore("ann")
            try await world.work(Self.once)
            let old = try #require(try await Self.age(world).first)
            let running = try await world.restore("ann")
            let queue = JobQueue(pool: world.pool)
            let epoch = try await Leases(pool: world.pool, duration: .seconds(3600))
                .register(.init(host: "test", pid: 1, version: "test"))
            let limits = [JobQueue.LaneLimit(lane: .restore, limit: 10)]
            #expect(try await queue.claim(limits, upTo: 1, for: epoch).map(\.id) == [running])
            #expect(try await world.commands.retry(old))
            #expect(try await world.status(old).state == "queued")
            let key = try await world.number("SELECT user_key FROM entitlement_sync.queue")
            try await world.pool.withTransaction { connection in
                let end = JobEnd(
                    id: running,
                    userKey: key,
                    kind: .restore,
                    state: .dead,
                    outcome: .storeUnavailable,
                    attempt: 1
                )
                try await connection.send(JobEnds.finish([end]))
            }
            let next = try #require(try await queue.claim(limits, upTo: 1, for: epoch).first)
            #expect(next.id == old && next.age > .seconds(86_400) && next.queuedFor < .seconds(3600))
        }
    }
}
