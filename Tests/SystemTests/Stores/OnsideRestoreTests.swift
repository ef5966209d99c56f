import Entitlements
import Foundation
import HTTPTypes
import Postgres
import Queue
import Runs
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// Onside: every row of its decision table, shown by a signed history or claimed by an order id.
@Suite struct OnsideRestoreTests {
    static let order = "5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33"

    static func scenario(_ orders: String...) -> String {
        "onside:\n  orders:\n" + orders.map { "    - {\($0)}\n" }.joined()
    }

    static let rows: [(String, String, String, [String])] = [
        ("account: ann, expires: +20d", "restored", "restored", []),
        ("account: ann, expires: -1d", "nothing_to_restore", "nothing.expired", []),
        ("account: ann, expires: +20d, revoked: -1d", "nothing_to_restore", "nothing.refunded", []),
        ("account: ann, expires: +20d, revoked: +1d", "restored", "restored", []),
        ("account: ann, product: lifetime, type: NON_CONSUMABLE", "restored", "restored", []),
        ("account: ann, product: gems, type: CONSUMABLE", "nothing_to_restore", "nothing", []),
        ("account: bob, expires: +20d", "store_account_mismatch", "mismatch", ["owner_mismatch"]),
        ("account: stranger, expires: +20d", "store_account_mismatch", "mismatch", ["owner_mismatch"]),
    ]

    @Test(arguments: rows)
    func `Every row of the table has its outcome`(
        _ order: String,
        _ outcome: String,
        _ key: String,
        _ tickets: [String]
    ) async throws {
        try await World.with(scenario: Self.scenario("order: \(Self.order), \(order)")) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let account = order.contains("bob") ? "bob" : order.contains("stranger") ? "stranger" : "ann"
            let status = try await world.restored(
                "ann",
                proofs: world.historyProof(account),
                setup: world.asking(world.onside)
            )
            #expect(status.outcome == outcome && status.messageKey == key)
            #expect(try await world.tickets(of: "ann").map(\.kind) == tickets)
            #expect(try await world.type(of: "ann") == (outcome == "restored" ? "subscriber" : "free"))
        }
    }

    @Test func `An order without an account goes to people, and a bare claim does not tell that it exists`()
        async throws
    {
        try await World.with(scenario: Self.scenario("order: \(Self.order), expires: +20d")) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.onside)
            let claim = world.proof("onside", "onside_order_id", Self.order)
            let status = try await world.restored("ann", proofs: claim, setup: setup)
            #expect(status.outcome == "nothing_to_restore" && status.ticketID == nil)
            #expect(try await world.tickets(of: "ann").map(\.kind) == ["onside_unattributed"])
        }
    }

    @Test func `An order without an account whose ids stand on two records keeps both`() async throws {
        let first = "11111111-2c77-4c1b-8f9a-0e6a7c1d2b33"
        let scenario = Self.scenario("order: \(Self.order), original: \(first), expires: +20d")
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.onside)
            let claim = world.proof("onside", "onside_order_id", Self.order)
            _ = try await world.restored("ann", proofs: claim, setup: setup)
            try await world.pool.query(
                """
                WITH made AS (
                    INSERT INTO entitlement_sync.purchase
                           (id, owner_since, observed_at, source, store, environment, kind, status, ownership, owner_rule)
                    SELECT 900000000, p.owner_since, p.observed_at, p.source, p.store, p.environment, p.kind, p.status,
                           p.ownership, p.owner_rule
                      FROM entitlement_sync.purchase AS p
                    RETURNING id
                )
                UPDATE entitlement_sync.purchase_identifier AS i SET purchase_id = m.id
                  FROM made AS m WHERE i.value = (SELECT max(x.value) FROM entitlement_sync.purchase_identifier AS x)
                """
            )
            let status = try await world.restored("ann", proofs: claim, setup: setup)
            #expect(status.state == "done" && status.outcome == "nothing_to_restore")
            #expect(
                try await world.number("SELECT count(DISTINCT purchase_id) FROM entitlement_sync.purchase_identifier")
                    == 2
            )
        }
    }

    @Test func `111, 195: another's order id, one of another merchant and one that nobody knows are answered alike`()
        async throws
    {
        let foreign = "11111111-2c77-4c1b-8f9a-0e6a7c1d2b33"
        let scenario = Self.scenario(
            "order: \(Self.order), account: bob, expires: +20d",
            "order: \(foreign), account: ann, expires: +20d, foreign: true"
        )
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let setup = world.asking(world.onside)
            for id in [Self.order, foreign, "22222222-2c77-4c1b-8f9a-0e6a7c1d2b33", "no-uuid"] {
                let claim = world.proof("onside", "onside_order_id", id)
                let status = try await world.restored("ann", proofs: claim, setup: setup)
                #expect(
                    status.outcome == "nothing_to_restore" && status.messageKey == "nothing" && status.ticketID == nil
                )
            }
            let health = try await world.number(
                "SELECT count(*) FROM entitlement_sync.store_health WHERE last_error IS NOT NULL"
            )
            #expect(health == 0, "a 403 trips nothing")
            let own = world.proof("onside", "onside_order_id", Self.order)
            #expect(try await world.restored("bob", proofs: own, setup: setup).outcome == "restored")
        }
    }

    @Test func `Renewals are found by asking around the end`() async throws {
        try await World.with(scenario: Self.scenario("order: \(Self.order), account: ann, expires: +1h")) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.onside)
            let claim = world.proof("onside", "onside_order_id", Self.order)
            #expect(try await world.restored("ann", proofs: claim, setup: setup).outcome == "restored")
            let seconds = try await world.number(
                "SELECT round(extract(epoch FROM next_check_at - now()))::bigint FROM entitlement_sync.user_sync"
            )
            #expect((2_470...2_700).contains(seconds), "a quarter of the hour before the end")
            try await world.steer("/onside/orders/\(Self.order)", #"{"account":"ann","expires":"+30d"}"#)
            try await world.pool.query("UPDATE entitlement_sync.user_sync SET next_check_at = now()")
            try await world.working(setup) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.decision_log WHERE user_id = 'ann' AND outcome = 'unchanged'"
                )
            }
            let days = try await world.number(
                "SELECT round(extract(epoch FROM next_check_at - now()) / 3600)::bigint FROM entitlement_sync.user_sync"
            )
            #expect(days == 24, "a refund would be found within a day")
        }
    }

    @Test func `A proof of a store that is not configured is no nothing, and people hear of it`() async throws {
        try await World.with(scenario: Self.scenario("order: \(Self.order), account: ann, expires: +2d")) { world in
            try await world.add("ann")
            try await world.addProducts()
            let proof = try world.historyProof("ann")
            let status = try await world.restored("ann", proofs: proof, setup: world.asking(world.googlePlay))
            #expect(status.outcome == "store_unavailable" && status.state == "dead")
            #expect(try await world.alarms() == ["store_not_configured"])
            let claim = world.proof("onside", "onside_order_id", Self.order)
            let typed = try await world.restored("ann", proofs: claim, setup: world.asking(world.googlePlay))
            #expect(typed.outcome == "nothing_to_restore", "a claim proves nothing anywhere")
        }
    }

    @Test func `Whom a host's transaction holds is looked at again soon, and nobody waits for that`() async throws {
        try await World.with { world in
            for user in ["ann", "bob"] {
                try await world.add(user)
                _ = try await world.restored(user, setup: world.asking(world.onside))
            }
            try await world.pool.query("UPDATE entitlement_sync.user_sync SET next_check_at = now()")
            try await world.pool.withTransaction { host in
                try await host.query("SELECT entitlement_sync.request_reconcile('ann')")
                #expect(try await world.checks().queueDueChecks() == 1)
            }
            let soon = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE user_id = 'ann' AND next_check_at < now() + interval '2 minutes'"
            )
            #expect(soon == 1)
            let later = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE user_id = 'bob' AND next_check_at > now() + interval '5 hours'"
            )
            #expect(later == 1)
        }
    }

    @Test func `A look that comes to nothing is taken again`() async throws {
        try await World.with(scenario: Self.scenario("order: \(Self.order), account: ann, expires: +2d")) { world in
            try await world.add("ann")
            try await world.addProducts()
            let claim = world.proof("onside", "onside_order_id", Self.order)
            #expect(
                try await world.restored("ann", proofs: claim, setup: world.asking(world.onside)).outcome == "restored"
            )
            try await world.steer("/faults", #"{"endpoint":"onside.history","status":503}"#, method: .post)
            try await world.pool.query("UPDATE entitlement_sync.user_sync SET next_check_at = now()")
            let setup = world.asking(world.onside) { $0.retry.maxAttempts = 1 }
            try await world.working(setup) {
                try await world.waitUntil("SELECT count(*) FROM entitlement_sync.job_history WHERE state = 'dead'")
            }
            let hours = try await world.number(
                "SELECT round(extract(epoch FROM next_check_at - now()) / 3600)::bigint FROM entitlement_sync.user_sync"
            )
            #expect(hours == 6)
        }
    }

    @Test(arguments: ["hs256_public_key", "none", "other_key"])
    func `An answer that is not Onside's own is no answer`(_ way: String) async throws {
        try await World.with(scenario: Self.scenario("order: \(Self.order), account: ann, expires: +20d")) { world in
            try await world.add("ann")
            try await world.addProducts()
            try await world.steer("/onside/signing", #"{"sign_with":"\#(way)"}"#)
            let setup = world.asking(world.onside) { $0.retry.maxAttempts = 2 }
            let claim = world.proof("onside", "onside_order_id", Self.order)
            let status = try await world.restored("ann", proofs: claim, setup: setup)
            #expect(status.outcome == "store_unavailable")
            #expect(try await world.type(of: "ann") == "free")
        }
    }

    @Test func `An answer that is older than our records is a replay, and no answer`() async throws {
        try await World.with(scenario: Self.scenario("order: \(Self.order), account: ann, expires: -1d")) { world in
            try await world.add("ann")
            try await world.addProducts()
            let proof = try world.historyProof("ann")
            let once = world.asking(world.onside) { $0.retry.maxAttempts = 2 }
            #expect(try await world.restored("ann", proofs: proof, setup: once).messageKey == "nothing.expired")
            for (age, key) in [("-4m", "nothing.expired"), ("-6m", "unavailable")] {
                // Clocks of one store's servers differ by minutes at most.
                try await world.steer("/onside/signing", #"{"fetched":"\#(age)"}"#)
                let status = try await world.restored("ann", proofs: proof, setup: once)
                #expect(status.messageKey == key, "\(age)")
            }
        }
    }

    @Test func `A rotation of keys in the middle of a run is followed`() async throws {
        let other = "33333333-2c77-4c1b-8f9a-0e6a7c1d2b33"
        try await World.with(scenario: Self.scenario("order: \(Self.order), account: ann, expires: +20d")) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            try await world.steer("/onside/orders/\(other)", #"{"account":"bob","expires":"+20d"}"#)
            let setup = world.asking(world.onside) { $0.untilIdle = false }
            try await world.working(setup) {
                for (user, order) in [("ann", Self.order), ("bob", other)] {
                    // The old key is withdrawn while the worker holds it.
                    if user == "bob" { world.simulator.rotateOnsideKeys(keepOld: false) }
                    let job = try await world.restore(user, proofs: world.proof("onside", "onside_order_id", order))
                    try await world.waitUntil("SELECT count(*) FROM entitlement_sync.job_history WHERE id = \(job)")
                    let status = try await world.status(job); #expect(status.outcome == "restored", "\(status)")
                }
            }
        }
    }
}
