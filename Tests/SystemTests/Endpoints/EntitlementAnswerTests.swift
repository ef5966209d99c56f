import Entitlements
import Foundation
import Postgres
import Queue
@testable import RateLimits
import TestSupport
import Testing
import UserRequests

/// What users' apps are told at their launch.
@Suite struct EntitlementAnswerTests {
    @Test func `Nobody is told anything about whoever is no user`() async throws {
        try await World.with { world in
            try await world.add("ann")
            #expect(try await world.app.entitlement(of: "nobody") == nil)
            #expect(try await world.app.entitlement(of: "ANN") == nil)
            #expect(try await world.app.entitlement(of: "") == nil)
        }
    }

    @Test func `A restore is suggested to whoever was never read, and no more once nothing was found`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            let before = try #require(try await world.app.entitlement(of: "ann"))
            #expect(before.type == "free" && before.until == nil && before.suggestsRestore)
            #expect(before.tickets.isEmpty && before.stores.isEmpty)
            // Asking makes nobody known.
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.user_sync") == 0)
            #expect(try await world.restored("ann").outcome == "nothing_to_restore")
            let after = try #require(try await world.app.entitlement(of: "ann"))
            #expect(after.type == "free" && after.until == nil && !after.suggestsRestore)
        }
    }

    private static let ends: [(String, String?)] = [
        ("{id: ann, subscriptions: [{state: active, ends: 1924992000000}]}", "2031-01-01T00:00:00Z"),
        (
            "{id: ann, subscriptions: [{state: active, ends: 1924992000000}, {state: active, ends: 1956528000000}]}",
            "2032-01-01T00:00:00Z"
        ),
        (
            "{id: ann, subscriptions: [{state: active, ends: 1924992000000}, {state: sandbox, ends: 1956528000000}]}",
            "2031-01-01T00:00:00Z"
        ),
        ("{id: ann, state: lifetime}", nil),
    ]

    @Test(arguments: ends)
    func `68: a subscriber is told the last known end; what lasts for ever has none`(
        _ customer: String,
        _ until: String?
    ) async throws {
        try await World.with(customers: [customer]) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").outcome == "restored")
            let answer = try #require(try await world.app.entitlement(of: "ann"))
            #expect(answer.type == "subscriber" && answer.until == until && !answer.suggestsRestore)
        }
    }

    @Test func `A grant has its end, alone and beside a purchase that ends before; one that is revoked has none`()
        async throws
    {
        let bob = "{id: bob, subscriptions: [{state: active, ends: 1924992000000}]}"
        try await World.with(customers: ["{id: ann, state: none}", bob]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            var grants: [Int64] = []
            for user in ["ann", "bob"] {
                let id = try await world.controls.grant(user, until: AppRequestTests.century, reason: "goodwill")
                grants.append(id)
            }
            try await world.work()
            for user in ["ann", "bob"] {
                let answer = try #require(try await world.app.entitlement(of: user))
                #expect(answer.type == "subscriber" && answer.until == "2100-01-01T00:00:00Z", "\(user)")
            }
            for grant in grants { #expect(try await world.controls.revoke(grant)) }
            #expect(try await world.app.entitlement(of: "ann")?.until == nil)
            #expect(try await world.app.entitlement(of: "bob")?.until == "2031-01-01T00:00:00Z")
        }
    }

    @Test func `Whoever is told of an end is the owner alone`() async throws {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: none}"]) { world in
            for user in ["ann", "bob"] {
                try await world.add(user)
                _ = try await world.restored(user)
            }
            #expect(try await world.app.entitlement(of: "ann")?.until != nil)
            #expect(try await world.app.entitlement(of: "bob")?.until == nil)
        }
    }

    @Test(arguments: ["dead", "done"])
    func `A restore is suggested after one that failed, until one succeeds`(_ state: String) async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").outcome == "nothing_to_restore")
            try await AppRequestTests.addHistory([.init(state: state)], of: "ann", in: world)
            #expect(try await world.app.entitlement(of: "ann")?.suggestsRestore == true)
            #expect(try await world.restored("ann").outcome == "nothing_to_restore")
            #expect(try await world.app.entitlement(of: "ann")?.suggestsRestore == false)
        }
    }

    @Test func `A restore is suggested to whoever has a purchase that should give access, and to no subscriber`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: expired}"]) { world in
            for user in ["ann", "bob"] {
                try await world.add(user)
                _ = try await world.restored(user)
            }
            try await world.add("comped", .subscriber)
            #expect(try await world.app.entitlement(of: "comped")?.suggestsRestore == false)
            #expect(try await world.app.entitlement(of: "ann")?.suggestsRestore == false)
            #expect(try await world.app.entitlement(of: "bob")?.suggestsRestore == false, "what is over is over")
            // Somebody put it aside by mistake.
            try await world.pool.query("UPDATE users SET type = 'free'")
            #expect(try await world.app.entitlement(of: "ann")?.suggestsRestore == true)
            #expect(try await world.app.entitlement(of: "bob")?.suggestsRestore == false)
        }
    }

    @Test func `Tickets are shown to their claimant, and those alone that claimants may see`() async throws {
        let owner = "{id: owner, subscriptions: [{state: active, store_subscription_identifier: \"200000070000001\"}]}"
        try await World.with(customers: [owner, "{id: ann, state: none}", "{id: bob, state: none}"]) { world in
            for user in ["owner", "ann", "bob"] { try await world.add(user) }
            // A typed id of somebody else's opens a ticket that nobody is told of.
            let claim = #"[{"store":"app_store","kind":"transaction_id","value":"200000070000001"}]"#
            _ = try await world.ask(RestoreWish(userID: "bob", proofs: claim))
            let mismatch = try await world.ask(RestoreWish(userID: "ann", clientError: "7"))
            try await world.work()
            #expect(try await world.tickets(of: "bob").map(\.kind) == ["needs_proof"])
            let shown = try #require(try await world.app.entitlement(of: "ann")).tickets
            #expect(shown.map(\.state) == ["open"])
            let reference = try await world.answer(mismatch).reference
            #expect(
                shown.map(\.reference) == [reference],
                "the restore's: what there is inside depends on what was found"
            )
            #expect(shown.first?.createdAt.hasSuffix("Z") == true)
            #expect(try await world.app.entitlement(of: "bob")?.tickets.isEmpty == true)
            #expect(try await world.app.entitlement(of: "owner")?.tickets.isEmpty == true)
            // Another tap tells of the same case, until support is through with it.
            _ = try await world.ask(RestoreWish(userID: "ann", clientError: "7"))
            try await world.work()
            #expect(try await world.app.entitlement(of: "ann")?.tickets.map(\.reference) == [reference])
            for event in ["claim", "refuse"] {
                try await world.pool.query(
                    "SELECT entitlement_sync.move_ticket(t.id, \(event)) FROM entitlement_sync.ticket AS t WHERE t.visible"
                )
            }
            #expect(try await world.app.entitlement(of: "ann")?.tickets.map(\.state) == ["closed"])
        }
    }

    @Test func `A store is down while its last word is an error of the last minutes`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let health = StoreHealth(pool: world.pool)
            try await health.note("revenuecat", .init(hasAnswered: true, error: nil, skewSeconds: 0))
            try await health.note("app_store", .init(hasAnswered: false, error: "timeout", skewSeconds: nil))
            #expect(try await Self.stores(world) == ["app_store down", "revenuecat ok"])
            // Both answer and fail at once: whoever answers is there.
            try await health.note("revenuecat", .init(hasAnswered: true, error: "throttled", skewSeconds: nil))
            #expect(try await Self.stores(world) == ["app_store down", "revenuecat ok"])
            try await health.note("revenuecat", .init(hasAnswered: false, error: "unavailable", skewSeconds: nil))
            #expect(try await Self.stores(world) == ["app_store down", "revenuecat down"])
            try await health.note("revenuecat", .init(hasAnswered: true, error: nil, skewSeconds: nil))
            // An error of long ago says nothing of now.
            try await world.pool.query(
                """
                UPDATE entitlement_sync.store_health SET last_error_at = now() - interval '6 minutes'
                 WHERE store = 'app_store'
                """
            )
            #expect(try await Self.stores(world) == ["app_store ok", "revenuecat ok"])
        }
    }

    private static func stores(_ world: World) async throws -> [String] {
        try #require(try await world.app.entitlement(of: "ann")).stores.map { "\($0.store) \($0.state)" }
    }
}
