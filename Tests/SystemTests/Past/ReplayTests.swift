import Diagnostics
import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing

/// States of the past and decisions made again, from the records of a real database.
@Suite struct ReplayTests {
    @Test func `A user's state at any moment is rebuilt: before a lapse, after it, and after the comeback`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let start = try await world.now()
            _ = try await world.reconciled("ann")
            let paying = try await world.now()
            try await world.change("ann", #"{"state":"expired"}"#)
            _ = try await world.reconciled("ann")
            let lapsed = try await world.now()
            _ = try await world.controls.grant("ann", until: PostgresTimestamp(.now + 3600), reason: "a gift")
            let granted = try await world.now()
            try await world.work()
            try await world.change("ann", #"{"state":"active"}"#)
            _ = try await world.restored("ann")
            let back = try await world.now()

            // People who audit may look.
            try await world.with(role: "entitlement_sync_auditor") { pool in
                let histories = Histories(pool: pool)
                func state(_ at: Instant) async throws -> PastState { try await histories.state(of: "ann", at: at) }
                let first = try await state(start)
                #expect(first.type == nil && first.purchases.isEmpty)
                let before = try await state(paying)
                #expect(before.type == .subscriber && before.verdict?.rule == "store_access")
                #expect(
                    before.purchases.map(\.purchase.status.raw) == ["active"]
                        && before.purchases.map(\.owner) == [.thisUser]
                )
                let after = try await state(lapsed)
                #expect(after.type == .free && after.verdict?.outcome == "demoted" && after.grants.isEmpty)
                #expect(
                    after.purchases.map(\.purchase.status.raw) == ["expired"]
                        && after.purchases.map(\.purchase.accessState) == [.ended]
                )
                let gift = try await state(granted)
                #expect(gift.type == .free && gift.grants.map(\.reason) == ["a gift"])
                let last = try await state(back)
                #expect(last.type == .subscriber && last.purchases.map(\.purchase.givesAccess) == [true])
                let unknowns = [before, after, gift, last].flatMap(\.unknowns)
                #expect(unknowns == [])
                #expect(try await histories.state(of: "nobody", at: back).unknowns == [.undecided(next: nil)])
            }
        }
    }

    @Test func `However long a history is, a moment long ago is told as it was`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            _ = try await world.reconciled("ann")
            let paying = try await world.now()
            for state in ["expired", "active", "expired", "active", "expired"] {
                try await world.change("ann", #"{"state":"\#(state)"}"#)
                _ = try await world.reconciled("ann")
            }
            let histories = Histories(pool: world.pool, mostDecisions: 2, mostItems: 2)
            let then = try await histories.state(of: "ann", at: paying)
            #expect(then.type == .subscriber && then.verdict?.outcome == "promoted", "\(then)")
            #expect(then.purchases.map(\.purchase.status.raw) == ["active"] && then.unknowns == [], "\(then)")
            let before = try await histories.state(of: "ann", at: paying - .seconds(3600))
            #expect(before.verdict == nil && before.purchases.isEmpty)
            guard case .undecided(let next?) = before.unknowns.first else {
                Issue.record("\(before)")
                return
            }
            #expect(next.outcome == "promoted" && before.unknowns.count == 1, "\(before)")
            let last = try await histories.state(of: "ann", at: try await world.now())
            #expect(last.type == .free && last.unknowns == [.cut], "\(last)")
        }
    }

    @Test func `Whoever had a purchase between two others is known to have had it`() async throws {
        let held =
            #"{"subscriptions":[{"id":"sub_1","state":"active","store_subscription_identifier":"2000000777000001"}]}"#
        try await World.with { world in
            for user in ["ann", "bob", "cid"] { try await world.add(user) }
            var moments: [Instant] = []
            for user in ["ann", "bob", "cid"] {
                for other in ["ann", "bob", "cid"] {
                    try await world.change(other, other == user ? held : #"{"state":"none"}"#)
                }
                _ = try await world.reconciled(user)
                try await world.work()
                moments.append(try await world.now())
            }
            let histories = Histories(pool: world.pool)
            func owner(_ user: String, _ moment: Int) async throws -> PastState.Held.Owner? {
                try await histories.state(of: user, at: moments[moment]).purchases.first?.owner
            }
            #expect(try await owner("ann", 0) == .thisUser)
            #expect(try await owner("ann", 1) == .anotherUser)
            #expect(try await owner("bob", 1) == .thisUser)
            #expect(try await owner("bob", 2) == .anotherUser)
            #expect(try await owner("cid", 2) == .thisUser)
        }
    }

    @Test func `A product that gives no access any more: replay lists exactly who would differ, and writes nothing`()
        async throws
    {
        let users = ["ann", "bob", "cid", "dan", "eve"]
        let customers = [
            "{id: ann, state: active}", "{id: bob, subscriptions: [{state: active, entitlements: [plus]}]}",
            "{id: cid, state: expired}", "{id: dan, state: none}", "{id: eve, state: active}",
        ]
        try await World.with(customers: customers) { world in
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
                VALUES ('revenuecat', 'plus', 'premium', true)
                """
            )
            for user in users {
                try await world.add(user, user == "cid" ? .subscriber : .free)
                _ = try await world.reconcile(user)
            }
            try await world.work()
            _ = try await world.controls.grant("eve", until: PostgresTimestamp(.now + 3600), reason: "a gift")
            try await world.work()
            let unchanged = try await world.replayed()
            #expect(unchanged.users == [] && unchanged.totals.decisions == 5 && unchanged.totals.agreeing == 5)

            try await world.pool.query(
                "UPDATE entitlement_sync.product SET grants_access = false WHERE product_id = 'plus'"
            )
            let requests = try await world.storeRequests(for: "bob")
            let records = try await world.records()
            let changed = try await world.replayed()
            #expect(changed.users == ["bob"])
            #expect(changed.totals.differing == 1 && changed.totals.agreeing == 4 && changed.totals.unreplayable == [:])
            let bob = try #require(changed.differences.first)
            #expect(bob.then.outcome == "promoted" && bob.then.rule == "store_access" && bob.now.outcome == nil)
            #expect(bob.now.why.contains("plus"))
            let pairs = changed.totals.pairs.map { "\($0.key.then) -> \($0.key.now): \($0.value)" }
            #expect(pairs == ["store_access -> incomplete: 1"])
            #expect(try await world.storeRequests(for: "bob") == requests)
            #expect(try await world.records() == records)

            // Whoever is named alone, and who is nobody.
            let some = try await Replay(pool: world.pool, settings: DecisionSettings())(
                of: ["ann", "nobody"],
                since: nil
            ) { _ in Issue.record("ann differs") }
            #expect(some.totals.users == 1 && some.unknown == ["nobody"])
            // The lapse of a subscription that could never give access ends nothing.
            try await world.pool.query("UPDATE entitlement_sync.product SET grants_access = false")
            let none = try await world.replayed()
            #expect(none.users == ["ann", "bob", "cid", "eve"], "dan has nothing to lose")
            let eve = none.differences.first { $0.userID == "eve" }?.now
            #expect(eve?.rule == "grant_access" && eve?.outcome == "unchanged", "another rule, and the same access")
        }
    }

    @Test(arguments: [1, 2, 3])
    func `Replayed under unchanged rules, a mixed history differs nowhere`(seed: UInt64) async throws {
        let users = (1...6).map { "user-\($0)" }
        try await World.with(customers: users.map { "{id: \($0), state: active}" }) { world in
            var generator = SeededGenerator(seed: seed)
            var setup = WorkerSetup()
            setup.decision.absenceMargin = .milliseconds(generator.pick(0, 400, 86_400_000))
            for user in users { try await world.add(user, generator.pick(.free, .subscriber)) }
            for round in 1...6 {
                setup.decision.mode = generator.pick(.full, .full, .promoteOnly)
                try await world.controls.set("demotions", paused: generator.oneIn(4))
                for user in users {
                    let state = generator.pick(
                        "active",
                        "cancelled",
                        "expired",
                        "none",
                        "refunded",
                        "billing_retry",
                        "grace"
                    )
                    try await world.change(user, #"{"state":"\#(state)"}"#)
                    if generator.oneIn(6) {
                        _ = try await world.controls.grant(user, until: PostgresTimestamp(.now + 3600), reason: "r")
                    }
                    if generator.oneIn(2) {
                        _ = try await world.reconcile(user)
                    } else {
                        _ = try await world.restore(user)
                    }
                    if generator.oneIn(8) {
                        try await world.pool.query("UPDATE users SET type = 'subscriber' WHERE id = \(user)")
                    }
                }
                try await world.work(setup)
                #expect(try await world.number("SELECT count(*) FROM entitlement_sync.decision") >= round)
            }
            let (_, totals, differences) = try await world.replayed(since: .negativeInfinity, setup.decision)
            #expect(differences.map { "\($0.then.rule) -> \($0.now)" } == [])
            #expect(totals.decisions >= 36 && totals.agreeing == totals.decisions, "\(totals)")
        }
    }

    @Test func `History that is longer than is looked at is said to be cut`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            for _ in 1...3 { _ = try await world.restored("ann") }
            let state = try await Histories(pool: world.pool, mostDecisions: 2, mostItems: 2).state(
                of: "ann",
                at: try await world.now()
            )
            #expect(state.type == .subscriber && state.unknowns.contains(.cut))
        }
    }
}

extension World {
    /// What a replay comes to.
    fileprivate func replayed(
        since: PostgresTimestamp? = nil,
        _ settings: DecisionSettings = DecisionSettings()
    ) async throws -> (users: [String], totals: Replay.Totals, differences: [Replay.Difference]) {
        var differences: [Replay.Difference] = []
        let (totals, _) = try await Replay(pool: pool, settings: settings)(of: nil, since: since) {
            differences.append($0)
        }
        return (Set(differences.compactMap(\.userID)).sorted(), totals, differences)
    }

    /// The database's clock.
    fileprivate func now() async throws -> Instant {
        Instant(try #require(try await pool.query("SELECT clock_timestamp()").first).decode(PostgresTimestamp.self))
    }

    /// A hash over what a replay must leave alone.
    fileprivate func records() async throws -> String {
        let rows = try await pool.query(
            """
            SELECT md5(string_agg(t.words, ' ' ORDER BY t.words))
              FROM (SELECT u::text AS words FROM entitlement_sync.user_sync AS u
                     UNION ALL SELECT d::text FROM entitlement_sync.decision AS d
                     UNION ALL SELECT o::text FROM entitlement_sync.observation AS o
                     UNION ALL SELECT p::text FROM entitlement_sync.purchase AS p
                     UNION ALL SELECT q::text FROM entitlement_sync.queue AS q
                     UNION ALL SELECT h::text FROM users AS h) AS t
            """
        )
        return try #require(rows.first).decode(String.self)
    }

    /// Looks at the records in a role's name.
    func with(role: String, _ body: (PostgresPool) async throws -> Void) async throws {
        let configuration = PostgresConfiguration(
            connectionString: database.url,
            maxConnections: 2,
            sessionSettings: ["role": role]
        )
        try await withPool(configuration, body)
    }
}
