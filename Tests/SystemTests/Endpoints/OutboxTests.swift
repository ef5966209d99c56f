import FoundationEssentials
import Outbox
import Postgres
import Queue
import TestSupport
import Testing

/// What others must hear, one message of a user after the other.
@Suite struct OutboxTests {
    /// Writes messages about users, in their order.
    private static func write(_ users: [String], in world: World) async throws {
        for (place, user) in users.enumerated() {
            let key = try await world.meet(user)
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.outbox (user_key, topic, data)
                VALUES (\(key), 'restore.finished', jsonb_build_object('place', \(Int32(place))))
                """
            )
        }
    }

    private static func due(in world: World) async throws -> Int64 {
        try await world.number(
            "SELECT count(*) FROM entitlement_sync.outbox WHERE NOT is_dead AND due <= clock_timestamp()"
        )
    }

    @Test func `One message of each user goes at a time, in order, and to one process alone`() async throws {
        try await World.with { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await Self.write(["ann", "ann", "bob"], in: world)
            let outbox = OutboxQueue(pool: world.pool)
            let first = try await outbox.take(upTo: 10, for: .seconds(60))
            #expect(first.map(\.userID) == ["ann", "bob"])
            #expect(first.map(\.data) == [#"{"place": 0}"#, #"{"place": 2}"#])
            #expect(first.allSatisfy { $0.attempt == 1 && $0.topic == "restore.finished" })
            #expect(try await outbox.take(upTo: 10, for: .seconds(60)).isEmpty, "others have them")
            try await outbox.end(first.map(\.number))
            let second = try await outbox.take(upTo: 10, for: .seconds(60))
            #expect(second.map(\.data) == [#"{"place": 1}"#])
            try await outbox.end(second.map(\.number))
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.outbox") == 0)
        }
    }

    @Test(arguments: [true, false])
    func `A restore that is canceled by hand is told of where there is somebody to tell`(_ tells: Bool) async throws {
        try await World.with { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            let restore = try await world.restore("ann")
            let reconcile = try await world.reconcile("bob")
            for job in [restore, reconcile] {
                #expect(
                    try await world.commands.cancel(
                        job,
                        publish: { tells ? OutboxWrites.insert([.restoreFinished($0)]) : [] }
                    ) == .canceled
                )
            }
            let told = try await OutboxQueue(pool: world.pool).take(upTo: 10, for: .seconds(60))
            #expect(told.map(\.userID) == (tells ? ["ann"] : []))
            #expect(told.allSatisfy { $0.topic == "restore.finished" && $0.data.contains(#""state": "canceled""#) })
            #expect(told.allSatisfy { $0.data.contains(restore.uuidString.lowercased()) })
        }
    }

    @Test func `132: what others have to hear is written with the verdict that it tells of, or neither is`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(2, of: "ann", frozenFor: ["subscription_lapsed"])
            var telling = WorkerSetup()
            telling.tells = true
            try await world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE SEQUENCE tries;
                        CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$
                        BEGIN PERFORM nextval('public.tries'); RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$;
                        CREATE TRIGGER no_room BEFORE INSERT ON entitlement_sync.outbox
                            FOR EACH ROW EXECUTE FUNCTION no_room();
                        """
                )
            }
            let job = try await world.restore("ann")
            try await world.working(telling) {
                try await world.waitUntil("SELECT s.is_called::int FROM tries AS s", comment: "nothing was tried")
                #expect(try await world.type(of: "ann") == "free")
                #expect(try await world.assets(of: "ann", frozenFor: ["subscription_lapsed"]) == 2)
                #expect(try await world.decisions(about: "ann").isEmpty)
                try await world.pool.query("DROP TRIGGER no_room ON entitlement_sync.outbox")
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND outcome = 'restored'"
                )
            }
            let told = try await world.texts(
                """
                SELECT concat_ws(' ', o.topic, o.data ->> 'to', o.data ->> 'count', o.created_at = d.at)
                  FROM entitlement_sync.outbox AS o JOIN entitlement_sync.decision AS d ON d.user_key = o.user_key
                 ORDER BY o.id
                """
            )
            #expect(
                told == [
                    "user.type_changed subscriber t", "entitlements.changed t", "assets.unfrozen 2 t",
                    "restore.finished t",
                ]
            )
        }
    }

    @Test func `What whoever died had taken goes to another, with the same id`() async throws {
        try await World.with { world in
            try await world.add("ann")
            try await Self.write(["ann"], in: world)
            let outbox = OutboxQueue(pool: world.pool)
            let taken = try #require(try await outbox.take(upTo: 10, for: .seconds(0)).first)
            let again = try #require(try await outbox.take(upTo: 10, for: .seconds(60)).first)
            #expect(again.id == taken.id && again.number == taken.number && again.attempt == 2)
        }
    }

    @Test func `A message that is put off takes those behind it along, and nobody else's`() async throws {
        try await World.with { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await Self.write(["ann", "ann", "ann", "bob"], in: world)
            let outbox = OutboxQueue(pool: world.pool)
            let head = try #require(try await outbox.take(upTo: 1, for: .seconds(60)).first)
            try await outbox.postpone(head.number, for: .seconds(30), error: "status_500")
            #expect(try await Self.due(in: world) == 1, "bob's alone")
            #expect(try await outbox.take(upTo: 10, for: .seconds(60)).map(\.userID) == ["bob"])
            // Once it has gone, the next is not kept waiting.
            try await world.pool.query("UPDATE entitlement_sync.outbox SET due = now() WHERE id = \(head.number)")
            #expect(try await outbox.take(upTo: 10, for: .seconds(60)).map(\.number) == [head.number])
            try await outbox.end([head.number])
            #expect(try await outbox.take(upTo: 10, for: .seconds(60)).map(\.data) == [#"{"place": 1}"#])
        }
    }

    @Test func `A message that is given up lets the next one go, and can be revived`() async throws {
        try await World.with { world in
            try await world.add("ann")
            try await Self.write(["ann", "ann"], in: world)
            let outbox = OutboxQueue(pool: world.pool)
            let head = try #require(try await outbox.take(upTo: 10, for: .seconds(60)).first)
            try await outbox.postpone(head.number, for: .seconds(30), error: "status_500")
            try await outbox.postpone(head.number, for: nil, error: "status_410")
            let next = try await outbox.take(upTo: 10, for: .seconds(60))
            #expect(next.map(\.data) == [#"{"place": 1}"#])
            let dead = try await world.texts(
                "SELECT is_dead || ' ' || last_error FROM entitlement_sync.outbox WHERE id = \(head.number)"
            )
            #expect(dead == ["true status_410"])
            try await outbox.end(next.map(\.number))
            try await world.pool.query("UPDATE entitlement_sync.outbox SET is_dead = false, due = now()")
            #expect(try await outbox.take(upTo: 10, for: .seconds(60)).map(\.id) == [head.id])
        }
    }
}
