import Diagnostics
import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// Checks that come to what is on record already.
@Suite struct ConfirmationTests {
    private static let rows: PostgresQuery = """
        SELECT (SELECT count(*) FROM entitlement_sync.decision) || ' decisions, '
               || (SELECT count(*) FROM entitlement_sync.observation) || ' observations, '
               || (SELECT string_agg(u.confirmed::text, ',') FROM entitlement_sync.user_sync AS u) || ' confirmed'
        """

    private static func check(_ world: World, _ outcome: String) async throws {
        #expect(try await world.reconciled("ann").outcome == outcome)
    }

    @Test func `A check that confirms a decision writes none, and every job has its line in the log`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await Self.check(world, "promoted")
            for _ in 1...3 { try await Self.check(world, "unchanged") }
            #expect(try await world.texts(Self.rows) == ["1 decisions, 1 observations, 3 confirmed"])
            let log = try await world.decisions(about: "ann")
            #expect(log.map(\.outcome) == ["promoted", "unchanged", "unchanged", "unchanged"])
            #expect(log.map(\.before) == ["free", "subscriber", "subscriber", "subscriber"])
            #expect(Set(log.dropFirst().map(\.after)) == ["subscriber"])
            #expect(log.last?.explanation.contains("so the user stays a subscriber") == true)
            let done = try await world.texts(
                """
                SELECT count(DISTINCT d.id) || ' ' || count(DISTINCT d.job_id)
                  FROM entitlement_sync.decision_log AS d JOIN entitlement_sync.job_status AS j ON j.id = d.job_id
                """
            )
            #expect(done == ["4 4"])
            let purchase = try await world.texts(
                "SELECT (p.observed_at = u.read_at)::text FROM entitlement_sync.purchase AS p, entitlement_sync.user_sync AS u"
            )
            #expect(purchase == ["true"], "the ledger has the newest reading")
            #expect(
                await Doctor(pool: world.pool).checks().filter { $0.name.hasPrefix("law.") && !$0.ok }.map(\.name) == []
            )
        }
    }

    @Test(arguments: [
        (#"{"state":"grace"}"#, "unchanged"), (#"{"state":"expired"}"#, "demoted"),
    ])
    func `What differs from the record is written, and says how often the record was confirmed`(
        change: String,
        outcome: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await Self.check(world, "promoted")
            for _ in 1...2 { try await Self.check(world, "unchanged") }
            try await world.change("ann", change)
            try await Self.check(world, outcome)
            let kept = try await world.texts(
                """
                SELECT d.outcome || ' after ' || p.outcome || ' with ' || d.confirmed || ', ' || (d.confirmed_id > p.id) || ' '
                       || (d.confirmed_id < d.id) || ' ' || (d.confirmed_first_at < d.confirmed_at) || ', ' || u.confirmed
                  FROM entitlement_sync.decision AS d JOIN entitlement_sync.decision AS p ON p.id = d.previous_id,
                       entitlement_sync.user_sync AS u
                """
            )
            #expect(kept == ["\(outcome) after promoted with 2, true true true, 0"])
        }
    }

    @Test func `Assets that come back, a restore, a grant and half a year make a decision of its own`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await Self.check(world, "promoted")
            try await world.pool.query(
                "INSERT INTO assets (user_id, frozen_reasons, frozen_at) VALUES ('ann', '{subscription_lapsed}', now())"
            )
            try await Self.check(world, "unchanged")
            #expect(try await world.texts(Self.rows) == ["2 decisions, 2 observations, 0 confirmed"])
            #expect(try await world.restored("ann").outcome == "already_subscriber")
            #expect(try await world.texts(Self.rows) == ["3 decisions, 3 observations, 0 confirmed"])
            try await Self.check(world, "unchanged")
            #expect(try await world.texts(Self.rows) == ["3 decisions, 3 observations, 1 confirmed"])
            try await world.pool.query(
                "UPDATE entitlement_sync.user_sync SET confirmed_first_at = now() - interval '7 months'"
            )
            try await Self.check(world, "unchanged")
            #expect(try await world.texts(Self.rows) == ["4 decisions, 4 observations, 0 confirmed"])
        }
    }

    @Test func `What waits is confirmed as waiting`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann", .subscriber)
            for _ in 1...3 { try await Self.check(world, "deferred") }
            #expect(try await world.texts(Self.rows) == ["1 decisions, 1 observations, 2 confirmed"])
            #expect(try await world.decisions(about: "ann").map(\.rule) == Array(repeating: "unexplained", count: 3))
        }
    }

    @Test func `An explanation has each check, and after the jobs' retention a line for all of them`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await Self.check(world, "promoted")
            for _ in 1...3 { try await Self.check(world, "unchanged") }
            let timeline = Timeline(pool: world.pool)
            func lines() async throws -> [String] {
                try await timeline.events(of: "ann", until: nil)?.map(\.text).filter { $0.contains("confirmed") } ?? []
            }
            let each = try await lines()
            #expect(each.count == 3 && each.allSatisfy { $0.hasSuffix("rests on, and it was confirmed.") }, "\(each)")
            try await world.pool.query("DELETE FROM entitlement_sync.job_history AS h WHERE h.confirms IS NOT NULL")
            let folded = try await lines()
            #expect(
                folded.count == 1 && folded.allSatisfy { $0.contains("was confirmed 3 times, first at ") },
                "\(folded)"
            )
        }
    }
}
