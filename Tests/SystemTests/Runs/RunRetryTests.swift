import Entitlements
import Postgres
import Queue
import Runs
import TestSupport
import Testing

/// Users that a store's outage or a row lock keeps out of a run have another try in it.
@Suite struct RunRetryTests {
    @Test func `Whom no store could be asked about has another turn; all others are written meanwhile`() async throws {
        try await RunScene.with { scene in
            var scene = scene
            scene.setup.retry.maxAttempts = 2
            let world = scene.world
            let dry = try await scene.run(isDry: true)
            try await world.inject(#"{"customer":"ended-1","status":503}"#)
            // Fewer at a time than there are, so that the first part ends before the last is planned.
            scene.setup.plans?.batch = 3
            scene.setup.plans?.jobs = 3
            let id = try await scene.runs.release(dry.id, hash: try #require(dry.hash), by: "ann")
            try await world.working(scene.setup) {
                try await world.waitUntil(
                    "SELECT (count(*) = 5)::int FROM users AS u WHERE u.id LIKE 'ended-%' AND u.type = 'free'"
                )
                try await world.waitUntil(
                    "SELECT (r.late <> '{}' AND r.ended >= 9)::int FROM entitlement_sync.run AS r WHERE r.id = \(id)"
                )
            }
            let waiting = try #require(try await scene.runs.run(id))
            #expect(waiting.state == .applying && waiting.ended == 9, "\(waiting)")
            try await world.heal()
            try await world.pool.query("UPDATE entitlement_sync.run SET late_due = now() WHERE id = \(id)")
            let done = try await scene.followed(id)
            #expect(done.state == .done && done.ended == 10 && done.outcomes["demoted"] == 6, "\(done)")
            #expect(try await scene.count("ended", .free) == 6)
        }
    }

    @Test func `Whoever a transaction of the host holds has another turn in the same run`() async throws {
        try await RunScene.with { scene in
            let world = scene.world
            let id = try #require(try await scene.runs.ask(.all, isDry: false, by: "test"))
            for n in 1...6 { _ = try await world.number("SELECT entitlement_sync.user_key_of(\("ended-\(n)"))") }
            try await world.pool.withConnection { host in
                try await host.query("BEGIN")
                for n in 1...6 { try await host.query("SELECT entitlement_sync.request_restore(\("ended-\(n)"))") }
                try await world.working(scene.setup) {
                    try await world.waitUntil(
                        "SELECT count(*) FROM entitlement_sync.run AS r WHERE r.id = \(id) AND r.is_paged AND r.late <> '{}'"
                    )
                    try await host.query("COMMIT")
                    try await world.waitUntil(RunScene.hasEnded(id))
                }
            }
            let run = try #require(try await scene.runs.run(id))
            #expect(run.state == .done && run.ended == 18, "\(run)")
            #expect(try await scene.count("ended", .free) == 6)
        }
    }

    @Test
    func
        `75 91 92 173 An outage in the middle of a run, then a flood of events: nobody is demoted wrongly, all are read`()
        async throws
    {
        try await RunScene.with { scene in
            var scene = scene
            scene.setup.plans?.batch = 40
            scene.setup.plans?.jobs = 200
            // As many tries as six hours of it take, at the pace of this test.
            scene.setup.retry.maxAttempts = 1000
            let (world, runs) = (scene.world, scene.runs)
            try await world.pool.query(
                "INSERT INTO users (id, type) SELECT 'many-' || n, 'free' FROM generate_series(1, 600) AS n"
            )
            let id = try #require(try await runs.ask(.all, isDry: false, by: "test"))
            try await world.working(scene.setup) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.run_part AS p WHERE p.ended_at IS NOT NULL"
                )
                try await world.inject(#"{"status":503}"#)
                // Everything that was planned waits for another try, and no more is planned.
                try await world.waitUntil(
                    "SELECT (count(*) FILTER (WHERE q.reconcile_error IS NOT NULL) >= 100)::int FROM entitlement_sync.queue AS q"
                )
                let waiting = try await world.number("SELECT count(*) FROM entitlement_sync.queue")
                #expect(waiting <= 200, "\(waiting)")
                let demoted = try await world.number(
                    "SELECT count(*) FROM entitlement_sync.decision AS d WHERE d.outcome = 'demoted'"
                )
                #expect(demoted == 0)
                try await world.heal()
                try await world.pool.query(
                    """
                    SELECT entitlement_sync.enqueue(u.user_key, 1::smallint, 1::smallint, entitlement_sync.new_id())
                      FROM entitlement_sync.user_sync AS u WHERE u.user_id LIKE 'subscriber-%' OR u.user_id LIKE 'many-1%'
                    """
                )
                try await world.waitUntil(RunScene.hasEnded(id), comment: "the run does not end")
            }
            let run = try #require(try await runs.run(id))
            #expect(run.state == .done && run.ended == 618 && run.outcomes["store_unavailable"] == nil, "\(run)")
            #expect(try await scene.count("subscriber", .subscriber) == 5)
            #expect(try await scene.count("payer", .subscriber) == 4)
            #expect(try await scene.count("ended", .free) == 6)
        }
    }

    @Test func `A store's outage during a run is nobody's end`() async throws {
        try await RunScene.with { scene in
            for n in 1...RunScene.ended { try await scene.world.inject(#"{"customer":"ended-\#(n)","status":503}"#) }
            var scene = scene
            scene.setup.retry.maxAttempts = 3
            let dry = try await scene.run(isDry: true)
            #expect(dry.outcomes["store_unavailable"] == 6 && dry.outcomes["demoted"] == nil, "\(dry)")
            #expect(dry.errors.values.reduce(0, +) == 6)
            let run = try await scene.run()
            #expect(run.state == .done && run.outcomes["store_unavailable"] == 6, "\(run)")
            #expect(run.errors.values.reduce(0, +) == 6)
            #expect(try await scene.count("ended", .subscriber) == 6)
        }
    }
}
