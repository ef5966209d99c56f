import Foundation
import Postgres
@testable import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What a user may be written, of what the records say.
@Suite struct StandingTests {
    private static func standing(_ user: String, _ world: World) async throws -> UserStanding {
        let json = try #require(try await Timeline(pool: world.pool).standing(of: user))
        // Of nobody else: not their id, nor what was bought, nor which of our rows it is.
        for word in ["owner", "claimant", "200000070000001", "key", "app_store", "bea", "ann"] {
            #expect(!json.contains("\"\(word)") && !json.contains(word), "\(user): \(json)")
        }
        return try UserStanding(json: json)
    }

    @Test func `Of a purchase that somebody else owns, neither side hears of the other`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let claimant = try await Self.standing("claimant", world)
            // As the app calls the case.
            let known = try await world.texts(
                "SELECT s.reference FROM entitlement_sync.job_status AS s WHERE s.outcome = 'store_account_mismatch'"
            )
            let reference = try #require(known.first)
            #expect(claimant.case == .init(reference: reference, state: "new"))
            #expect(claimant.reply(in: "en").reason == "case_open")
            let owner = try await Self.standing("owner", world)
            #expect(owner.subscriber && owner.case == nil && !owner.moved)
            #expect(owner.reply(in: "de").reason == "active_until")
            let others = ["owner", "claimant", "200000070000001"]
            for user in [claimant, owner] {
                for language in Replies.languages {
                    #expect(!others.contains { user.reply(in: language).text.contains($0) })
                }
            }
            // The console says the same.
            let desk = DeskUsers(pool: world.pool, session: scene.ann.token.digest)
            for (name, expected) in [("claimant", claimant), ("owner", owner)] {
                let key = try await world.number(
                    "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = \(name)"
                )
                let shown = try #require(try await desk.show(key))
                #expect(try DeskUser(json: shown).standing == expected)
            }
            // A case that its claimant knows nothing of is not told of, open or decided.
            try await world.pool.query("UPDATE entitlement_sync.ticket SET visible = false")
            #expect(try await Self.standing("claimant", world).reply(in: "en").reason == "nothing_found")
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            #expect(try await scene.act(scene.ann, .refuse(how: "store_refund", words: nil), on: ticket) == nil)
            #expect(try await Self.standing("claimant", world).case == nil)
            try await world.pool.query("UPDATE entitlement_sync.ticket SET visible = true")
            #expect(try await Self.standing("claimant", world).reply(in: "en").reason == "store_refund")
        }
    }

    @Test func `After a transfer each hears of their own side, the owner as far as they were asked`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.transfer(ticket)
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
                try await world.waitUntil("SELECT (count(*) = 0)::int FROM entitlement_sync.queue")
            }
            #expect(try await Self.standing("claimant", world).reply(in: "en").reason == "active_until")
            // Nobody asked this owner.
            #expect(try await !Self.standing("owner", world).moved)
            try await world.pool.query(
                """
                UPDATE entitlement_sync.owner_window
                   SET asked_at = now() - interval '3 days', ends_at = now() - interval '1 day',
                       notified_at = now() - interval '3 days'
                """
            )
            #expect(try await Self.standing("owner", world).reply(in: "en").reason == "owner_moved")
        }
    }

    @Test func `Users without a history, banned ones and those who are gone`() async throws {
        try await World.with(customers: []) { world in
            try await world.add("new")
            try await world.add("bad", status: "banned")
            #expect(try await Timeline(pool: world.pool).standing(of: "nobody") == nil)
            #expect(try await Self.standing("new", world) == UserStanding())
            #expect(try await Self.standing("bad", world) == UserStanding(account: .barred))
            let job = try await world.restore("new")
            let waiting = try await Self.standing("new", world)
            let reference = try await world.status(job).reference
            #expect(waiting.waiting && waiting.reference == reference)
            let grant = "INSERT INTO entitlement_sync.\"grant\" (user_key, until, reason)"
            try await world.pool.query(
                PostgresQuery(
                    rawSQL: grant + " SELECT u.user_key, '2999-12-31', 'x' FROM entitlement_sync.user_sync AS u"
                )
            )
            #expect(try await Self.standing("new", world).until == "2999-12-31")
            try await world.pool.query("DELETE FROM users WHERE id = 'new'")
            #expect(try await Self.standing("new", world).account == .gone)
        }
    }
}
