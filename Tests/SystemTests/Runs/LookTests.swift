import Entitlements
import Foundation
import Postgres
import Queue
import Runs
import TestSupport
import Testing
import UserRequests

/// When users are looked at again.
struct LookTests {
    @Test func `Whoever pays is asked about before their period ends, and whoever does not once a month`() async throws
    {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: none}"]) { world in
            try await world.add("ann")
            try await world.add("bob")
            #expect(try await world.reconciled("ann").outcome == "promoted")
            #expect(try await world.reconciled("bob").outcome == "unchanged")
            let before = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.user_sync AS u
                  JOIN entitlement_sync.purchase AS p ON p.owner_key = u.user_key
                 WHERE u.next_check_at BETWEEN p.period_ends_at - interval '30 hours' AND p.period_ends_at - interval '24 hours'
                """
            )
            #expect(before == 1)
            #expect(try await Self.within(world, "bob", "22 days", "30 days"))
            let planned = try await Self.look(world, "bob")
            #expect(try await world.reconciled("bob").outcome == "unchanged")
            #expect(try await Self.look(world, "bob") == planned, "one that is far enough away will do")
            try await world.pool.query(
                "UPDATE entitlement_sync.user_sync SET next_check_at = now() + interval '10 days'"
            )
            #expect(try await world.reconciled("bob").outcome == "unchanged")
            #expect(try await Self.within(world, "bob", "22 days", "30 days"), "the next one is a month from now")
        }
    }

    @Test func `A silence is read again when it counts, also of RevenueCat alone`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            _ = try await world.reconciled("ann")
            try await world.change("ann", #"{"state":"none"}"#)
            try await world.endPeriods()
            #expect(try await world.reconciled("ann").outcome == "deferred")
            // A day later, and up to a quarter more: not at the same hour.
            #expect(try await Self.within(world, "ann", "23 hours 59 minutes", "30 hours"))
            #expect(try await world.restored("ann").outcome == "already_subscriber")
            #expect(
                try await Self.within(world, "ann", "23 hours 59 minutes", "30 hours"),
                "whoever asks is not forgotten"
            )
        }
    }

    @Test func `Whoever is shut out waits, and is looked at soon once the account is let in again`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann", status: "banned")
            #expect(try await world.reconciled("ann").outcome == "not_eligible")
            #expect(try await Self.isShutOut(world, "ann"))
            #expect(try await world.checks(background: .seconds(86_400)).planChecks() == 0)
            #expect(try await Self.isShutOut(world, "ann"))
            try await world.pool.query("UPDATE users SET status = 'active'")
            #expect(try await world.checks(background: nil).planChecks() == 0, "the round is over")
            try await world.pool.query(
                "UPDATE entitlement_sync.check_round SET began_at = began_at - interval '10 minutes'"
            )
            #expect(try await world.checks(background: nil).planChecks() == 1)
            #expect(try await Self.within(world, "ann", "0 seconds", "5 minutes"))
            try await world.pool.query("UPDATE entitlement_sync.user_sync SET next_check_at = now()")
            #expect(try await world.checks().queueDueChecks() == 1)
            try await world.work()
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await !Self.isShutOut(world, "ann"))
            let waits = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE awaits_eligibility"
            )
            #expect(waits == 0)
        }
    }

    @Test func `Whoever is known and was never read gets a look within the month, a stretch at a time`() async throws {
        try await World.with { world in
            try await world.pool.query(
                """
                INSERT INTO users (id, status)
                SELECT 'u' || n, CASE WHEN n % 5 = 0 THEN 'banned' ELSE 'active' END FROM generate_series(1, 50) AS n
                """
            )
            try await world.pool.query("SELECT entitlement_sync.user_key_of(u.id) FROM users AS u ORDER BY u.id")
            // Two whom it is not about: one with a look, one who is nobody any more.
            try await world.pool.query(
                "UPDATE entitlement_sync.user_sync SET next_check_at = now() - interval '1 hour' WHERE user_id = 'u1'"
            )
            try await world.pool.query("UPDATE entitlement_sync.user_sync SET user_id = NULL WHERE user_id = 'u2'")
            var planned: [Int64] = []
            for _ in 1...8 {
                planned.append(try await world.number("SELECT entitlement_sync.plan_checks(10, 10, 30 * 86400)"))
            }
            #expect(planned.reduce(0, +) == 38 && planned.prefix(5).allSatisfy { $0 > 0 }, "\(planned)")
            #expect(planned.suffix(2) == [0, 0], "the round is over")
            let looks = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.user_sync
                 WHERE next_check_at BETWEEN now() AND now() + interval '30 days'
                """
            )
            let late = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE next_check_at > now() + interval '10 days'"
            )
            #expect(looks == 38 && late > 8, "\(looks) \(late): they are spread")
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.user_sync WHERE awaits_eligibility AND next_check_at IS NULL"
                ) == 10
            )
            #expect(try await Self.within(world, "u1", "-61 minutes", "-59 minutes"))
        }
    }

    @Test
    func `Two at once do not wait for one another, and without a background only those who were shut out get one`()
        async throws
    {
        try await World.with { world in
            try await world.add("ann")
            try await world.pool.query("SELECT entitlement_sync.user_key_of('ann')")
            try await world.pool.withTransaction { other in
                try await other.query("SELECT FROM entitlement_sync.check_round FOR UPDATE")
                #expect(try await world.checks(background: .seconds(60)).planChecks() == 0)
            }
            #expect(try await world.checks(background: nil).planChecks() == 0)
            #expect(try await Self.look(world, "ann") == nil)
        }
    }

    @Test func `What our own people gave is looked at when it ends`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            let until = PostgresTimestamp(Date.now.addingTimeInterval(3600))
            _ = try await Controls(pool: world.pool).grant("ann", until: until, reason: "test")
            try await world.work()
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await Self.within(world, "ann", "1 hour", "122 minutes"))
            try await world.pool.query("UPDATE entitlement_sync.\"grant\" SET until = now()")
            try await world.pool.query("UPDATE entitlement_sync.user_sync SET next_check_at = now()")
            #expect(try await world.checks().queueDueChecks() == 1)
            var setup = WorkerSetup()
            setup.decision.absenceMargin = .zero
            try await world.work(setup)
            #expect(try await world.decisions(about: "ann").last?.outcome != "unchanged")
        }
    }

    /// When a user is looked at, as the database writes it.
    private static func look(_ world: World, _ user: String) async throws -> String? {
        let rows = try await world.pool.query(
            "SELECT u.next_check_at::text FROM entitlement_sync.user_sync AS u WHERE u.user_id = \(user)"
        )
        return try rows.first?.decode(String?.self, at: 0)
    }

    private static func isShutOut(_ world: World, _ user: String) async throws -> Bool {
        try await world.number(
            """
            SELECT count(*) FROM entitlement_sync.user_sync AS u
             WHERE u.user_id = \(user) AND u.awaits_eligibility AND u.next_check_at IS NULL
            """
        ) == 1
    }

    /// Whether a user is looked at between two intervals from now on.
    private static func within(_ world: World, _ user: String, _ from: String, _ to: String) async throws -> Bool {
        try await world.number(
            """
            SELECT count(*) FROM entitlement_sync.user_sync AS u
             WHERE u.user_id = \(user) AND u.next_check_at BETWEEN now() + \(from)::text::interval AND now() + \(to)::text::interval
            """
        ) == 1
    }
}
