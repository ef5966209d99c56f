import Diagnostics
import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// Users who pay elsewhere: through the team's own shop, by invoice, through another app.
@Suite struct OtherPayerTests {
    private static let lapsed = ["{id: ann, state: expired}"]

    @Test func `Who pays elsewhere stays a subscriber whatever the stores say, and no longer than that`() async throws {
        try await World.with(customers: Self.lapsed) { world in
            try await world.add("ann", .subscriber)
            let id = try await world.put("ann", "stripe", "sub_1", "1 day")
            try await world.work()
            #expect(try await world.type(of: "ann") == "subscriber")
            let decision = try #require(try await world.decisions(about: "ann").last)
            #expect(decision.rule == "grant_access" && decision.outcome == "unchanged", "\(decision)")
            #expect(decision.explanation.contains("the user has access from stripe"), "\(decision)")
            #expect(try await world.restored("ann").outcome == "already_subscriber")

            // A payment that moves the end is the same access.
            #expect(try await world.put("ann", "stripe", "sub_1", "2 days") == id)
            try await world.work()
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.\"grant\" AS g WHERE g.version_of IS NULL"
                ) == 1
            )
            #expect(
                try await world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.user_sync AS u
                     WHERE u.user_id = 'ann' AND u.next_check_at BETWEEN now() + interval '2 days' AND now() + interval '3 days'
                    """
                ) == 1,
                "no check is scheduled for the end"
            )

            #expect(try await world.end("stripe", "sub_1"))
            #expect(try await !world.end("stripe", "sub_1"), "it has ended")
            try await world.work()
            #expect(try await world.decisions(about: "ann").last?.outcome == "demoted")
            #expect(try await world.type(of: "ann") == "free")
            let told = try await world.told(of: "ann")
            #expect(
                told.count == 3 && told.allSatisfy { $0.hasPrefix("Access from stripe was recorded until ") },
                "\(told)"
            )
            let replayed = try await Replayed(world)
            #expect(replayed.differing == 0 && replayed.agreeing == 4, "\(replayed)")
        }
    }

    @Test func `What a payer has ended is in no set, though the type waits for a second silence of the stores`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            var setup = WorkerSetup()
            setup.tells = true
            let id = try await world.put("ann", "stripe", "sub_1", "300 days")
            try await world.work(setup)
            #expect(try await world.held(by: "ann") == ["stripe"])
            #expect(try await world.end("stripe", "sub_1"))
            try await world.work(setup)
            #expect(try await world.decisions(about: "ann").last?.rule == "first_absence")
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await world.held(by: "ann") == [])
            #expect(
                try await world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.outbox AS o
                     WHERE o.topic = 'entitlements.changed' AND o.data -> 'after' = '[]'
                    """
                ) == 1
            )

            // What our own people have revoked stays on record once the payer gives it again.
            try await world.put("ann", "stripe", "sub_1", "300 days")
            try await world.work(setup)
            #expect(try await world.controls.revoke(id))
            try await world.work(setup)
            #expect(try await world.held(by: "ann") == [])
            try await world.put("ann", "stripe", "sub_1", "300 days")
            let told = try await world.told(of: "ann").filter { $0 == "Grant \(id) was revoked." }
            #expect(told.count == 1)
        }
    }

    @Test func `Erasing one payer's access leaves the other's`() async throws {
        try await World.with(customers: Self.lapsed) { world in
            try await world.add("ann", .subscriber)
            try await world.put("ann", "stripe", "sub_1", "1 day")
            try await world.put("ann", "paddle", "p-1", "2 days")
            try await world.work()
            let both = try #require(try await world.decisions(about: "ann").last)
            #expect(both.explanation.contains("from paddle and stripe"), "\(both)")
            #expect(try await world.end("stripe", "sub_1"))
            try await world.work()
            #expect(try await world.type(of: "ann") == "subscriber")
            try await world.pool.query("DELETE FROM users AS u WHERE u.id = 'ann'")
            try await world.pool.query("SELECT * FROM entitlement_sync.erase_user('ann')")
            #expect(
                try await world.number("SELECT count(g.external_id) FROM entitlement_sync.\"grant\" AS g") == 0
            )
        }
    }

    /// A call that is refused, and what the error names.
    private static let refused = [
        ("'ann', 'app_store', 'x', now()", "ES006 source"), ("'ann', 'grant', 'x', now()", "ES006 source"),
        ("'ann', 'Stripe', 'x', now()", "ES006 source"), ("'ann', '', 'x', now()", "ES006 source"),
        ("'ann', NULL, 'x', now()", "ES006 source"),
        ("'ann', 'abcdefghijklmnopqrstuvwxyz0123456', 'x', now()", "ES006 source"),
        ("'ann', 'stripe', '', now()", "ES006 external_id"), ("'ann', 'stripe', NULL, now()", "ES006 external_id"),
        ("'ann', 'stripe', repeat('x', 256), now()", "ES006 external_id"),
        ("'ann', 'stripe', 'x', NULL", "ES006 until"), ("'ann', 'stripe', 'x', '-infinity'", "ES006 until"),
        ("'ann', 'stripe', 'x', now(), 'gold'", "ES006 entitlement"), ("'eve', 'stripe', 'x', now()", "ES001 user_id"),
        ("'ben', 'stripe', 'taken', now()", "ES006 external_id"),
    ]

    @Test func `What can't be meant is refused by the argument's name, and nothing is recorded`() async throws {
        try await World.with { world in
            try await world.add("ann")
            try await world.add("ben")
            try await world.put("ann", "stripe", "taken", "1 day")
            let before = try await world.number("SELECT count(*) FROM entitlement_sync.\"grant\"")
            for (arguments, named) in Self.refused {
                let error = await #expect(throws: PostgresError.self, "\(arguments)") {
                    try await world.pool.query("SELECT entitlement_sync.put_access(\(rawSQL: arguments))")
                }
                let words = named.split(separator: " ")
                #expect(error?.sqlState == String(words[0]), "\(arguments): \(String(describing: error))")
                #expect(error?.message.hasPrefix("\(words[1]):") == true, "\(arguments): \(String(describing: error))")
            }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.\"grant\"") == before)
            #expect(try await !world.end("stripe", "unheard-of"))
        }
    }

    @Test func `An end that is past is recorded and gives nothing, one for ever needs no check`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            try await world.put("ann", "invoice", "2026-7", "-1 day")
            try await world.work()
            #expect(try await world.type(of: "ann") == "free")
            #expect(try await !world.end("invoice", "2026-7"), "it has ended")
            try await world.pool.query(
                "SELECT entitlement_sync.put_access('ann', 'invoice', '2026-7', 'infinity', 'premium')"
            )
            try await world.work()
            #expect(try await world.type(of: "ann") == "subscriber")
            let held = try await world.texts(
                "SELECT concat_ws(' ', s.entitlement, s.store, s.source, s.ends_at) FROM entitlement_sync.entitlement_status AS s"
            )
            #expect(held == ["premium invoice"])
            try await world.pool.query(
                "SELECT entitlement_sync.put_access('ann', 'invoice', '2026-7', '294276-12-31', 'premium')"
            )
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.\"grant\" AS g WHERE g.version_of IS NULL AND g.until = 'infinity'"
                ) == 1
            )
            #expect(try await world.end("invoice", "2026-7", at: "now() + interval '1 hour'"))
            try await world.work()
            #expect(try await world.type(of: "ann") == "subscriber", "the hour is not over")
            try await world.put("ann", "shop", "order-1", "3 seconds")
            try await world.work()
            // Its check comes later, and the record of the last decision has it until then.
            try await eventually("what is over is still said to give access") {
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.entitlement_status AS s WHERE s.source = 'shop'"
                ) == 0
            }
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.user_sync AS u WHERE u.entitlements::text LIKE '%shop%'"
                ) == 1
            )
        }
    }

    @Test func `Two transactions that record the same access at once make one`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            let ids = try await withThrowingTaskGroup(of: Int64.self) { group in
                for day in 1...12 { group.addTask { try await world.put("ann", "stripe", "sub_1", "\(day) days") } }
                return try await group.reduce(into: Set<Int64>()) { $0.insert($1) }
            }
            #expect(ids.count == 1)
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.\"grant\" AS g WHERE g.revoked_at IS NULL"
                ) == 1
            )
        }
    }

    @Test func `The host's backend may call both functions in its own transaction, and nothing behind them`()
        async throws
    {
        try await World.with { world in
            try await world.add("ann")
            try await world.with(role: "entitlement_sync_client") { pool in
                try await pool.query(
                    "SELECT entitlement_sync.put_access('ann', 'stripe', 'sub_1', now() + interval '1 day')"
                )
                try await pool.query("SELECT entitlement_sync.end_access('stripe', 'sub_1')")
                for call in [
                    "record_access(1, 'stripe', 'x', now(), NULL, '')", "note_other_access('{}', '{}', '{}', '{}')",
                ] {
                    await #expect(throws: PostgresError.self) {
                        try await pool.query("SELECT entitlement_sync.\(rawSQL: call)")
                    }
                }
            }
        }
    }

    // MARK: Hosts that are asked

    @Test func `A host that is asked gives access as long as it says so`() async throws {
        try await World.with(customers: Self.lapsed) { world in
            try await world.add("ann", .subscriber)
            try await world.answerAbout("SELECT 'ann', 'invoice', now() + interval '1 day'")
            #expect(try await world.reconciled("ann").outcome == "unchanged")
            let decision = try #require(try await world.decisions(about: "ann").last)
            #expect(decision.rule == "grant_access" && decision.explanation.contains("from invoice"), "\(decision)")
            #expect(try await world.reconciled("ann").outcome == "unchanged")
            let asked = try await world.number(
                "SELECT g.id FROM entitlement_sync.\"grant\" AS g WHERE g.is_asked AND g.revoked_at IS NULL"
            )
            #expect(try await world.controls.revoke(asked) == false)
            #expect(try await world.controls.isAsked(asked))
            // Left out: the host's word that there is none.
            try await world.answerAbout("SELECT 'ann', 'invoice', now() WHERE false")
            #expect(try await world.reconciled("ann").outcome == "demoted")
            let told = try await world.told(of: "ann")
            #expect(told.last?.contains("no longer says") == true, "\(told)")
            let replayed = try await Replayed(world)
            #expect(replayed.differing == 0, "\(replayed)")
        }
    }

    @Test(arguments: [
        "SELECT NULL::text, 'invoice', now()", "SELECT 'ann', NULL, now()",
        "SELECT 'ann', 'invoice', NULL::timestamptz",
        "SELECT 'ann', 'Invoice', 'infinity'::timestamptz", "SELECT 'ann', (1 / 0)::text, now()",
        "SELECT 'ann', 'invoice', now() FROM pg_sleep(3)", "SELECT 'ANN', 'invoice', 'infinity'::timestamptz",
    ])
    func `A host without an answer leaves every subscriber one, and an alarm names the function`(_ answer: String)
        async throws
    {
        try await World.with(customers: Self.lapsed) { world in
            try await world.add("ann", .subscriber)
            try await world.answerAbout(answer)
            let job = try await world.reconcile("ann")
            await #expect(throws: WorkerTookTooLong.self) { try await world.work(within: .seconds(5)) }
            #expect(try await world.type(of: "ann") == "subscriber")
            let state = try await world.status(job).state
            #expect(["queued", "running"].contains(state))
            let alarm = try await world.texts(
                "SELECT a.detail FROM entitlement_sync.alarm AS a WHERE a.name = 'adapter_refused'"
            )
            #expect(alarm.first?.contains("other_access") == true, "\(alarm)")
            try await world.answerAbout("SELECT 'ann', 'invoice', now() + interval '1 day'")
            try await world.work()
            #expect(try await world.status(job).outcome == "unchanged")
        }
    }

    @Test func `What a host can't say of one user holds up no other`() async throws {
        try await World.with(customers: ["{id: ann, state: expired}", "{id: ben, state: expired}"]) { world in
            for user in ["ann", "ben"] { try await world.add(user, .subscriber) }
            try await world.answerAbout(
                "SELECT w.id, 'invoice', CASE WHEN w.id = 'ben' THEN now() + interval '1 day' END FROM unnest(ids) AS w(id)"
            )
            let (ann, ben) = (try await world.reconcile("ann"), try await world.reconcile("ben"))
            await #expect(throws: WorkerTookTooLong.self) { try await world.work(within: .seconds(5)) }
            #expect(try await world.status(ben).outcome == "unchanged")
            #expect(try await world.status(ann).outcome == nil)
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }
}

/// What a replay of everything comes to.
private struct Replayed: CustomStringConvertible {
    var agreeing: Int
    var differing: Int
    var description: String

    init(_ world: World) async throws {
        let (totals, _) = try await Replay(pool: world.pool, settings: DecisionSettings())(
            of: nil,
            since: .negativeInfinity
        ) {
            _ in
        }
        (agreeing, differing, description) = (totals.agreeing, totals.differing, "\(totals)")
    }
}

extension World {
    /// Who gives a user access now, and has sold nothing for it.
    fileprivate func held(by user: String) async throws -> [String] {
        try await pool.query("SELECT e.source FROM entitlement_sync.entitlement_status AS e WHERE e.user_id = \(user)")
            .map { try $0.decode(String.self) }
    }

    /// Records access as the host's backend does.
    @discardableResult
    fileprivate func put(_ user: String, _ source: String, _ id: String, _ time: String) async throws -> Int64 {
        try await number("SELECT entitlement_sync.put_access(\(user), \(source), \(id), now() + \(time)::interval)")
    }

    /// What the user's timeline says of grants, oldest first.
    fileprivate func told(of user: String) async throws -> [String] {
        try await texts(
            """
            SELECT e.words FROM entitlement_sync.user_sync AS u CROSS JOIN LATERAL entitlement_sync.user_events(u.user_key) AS e
             WHERE u.user_id = \(user) AND e.kind = 'grant' ORDER BY e.at, e.place
            """
        )
    }

    fileprivate func end(_ source: String, _ id: String, at moment: String = "now()") async throws -> Bool {
        try await pool.query("SELECT entitlement_sync.end_access(\(source), \(id), \(rawSQL: moment))").one.decode(
            Bool.self
        )
    }

    /// Has the adapter answer so about every user.
    fileprivate func answerAbout(_ query: String) async throws {
        try await pool.query(
            """
            CREATE OR REPLACE FUNCTION entitlement_sync_host.other_access(ids text[])
            RETURNS TABLE (id text, source text, until timestamptz) LANGUAGE sql SECURITY DEFINER AS $$ \(rawSQL: query) $$
            """
        )
    }
}
