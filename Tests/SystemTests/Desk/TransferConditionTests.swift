import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What a transfer may move, and what makes its approvals void.
@Suite struct TransferConditionTests {
    @Test func `138: the owner renews after the approvals: they are void, and the ticket is looked at again`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                try await scene.changeOwner(ends: "+60d")
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
            }
            #expect(try await scene.state(ticket) == "new")
            let reasons = try await scene.world.texts(
                "SELECT a.ended_by FROM entitlement_sync.ticket_approval AS a ORDER BY a.id"
            )
            #expect(reasons == ["evidence_changed", "evidence_changed"])
            #expect(try await scene.calls() == 0)
            #expect(try await scene.world.type(of: "owner") == "subscriber")
        }
    }

    @Test func `A transfer that a fact stops says which`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                try await scene.world.pool.query("UPDATE users SET status = 'banned' WHERE id = 'claimant'")
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
            }
            let shown = try DeskTicket(json: try #require(try await scene.tickets(scene.ann).show(ticket)))
            let stop = try #require(shown.events.first { $0.kind == "transfer_stopped" }?.detail)
            #expect(stop.reason == "hindrance")
            #expect(stop.why == "The claimant's account is banned, being deleted, or gone.")
        }
    }

    @Test func `138: found before anybody executes, it voids the approvals as well`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                try await scene.changeOwner(ends: "+60d")
                try await scene.collect(ticket)
            }
            #expect(try await scene.state(ticket) == "new")
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "state")
        }
    }

    @Test func `119: a case whose claimant has gone can still be decided, and moves nothing to nobody`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.pool.query("DELETE FROM assets WHERE user_id = 'claimant'")
            try await scene.world.pool.query("DELETE FROM users WHERE id = 'claimant'")
            _ = try await Erasure(pool: scene.world.pool).erase("claimant")
            try await scene.world.working(scene.setup) { try await scene.collect(ticket) }
            #expect(try await scene.facts(ticket).contains("claimant_ineligible"))
            #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.cid, ticket) == "hindrance")
            #expect(try await scene.act(scene.cid, .refuse(how: "refuse", words: nil), on: ticket) == nil)
            #expect(try await scene.state(ticket) == "refused")
        }
    }

    @Test
    func `118: nobody is waited for where the owner's account is gone, and the purchase is moved from what is left`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.pool.query("DELETE FROM users WHERE id = 'owner'")
            _ = try await Erasure(pool: world.pool).erase("owner")
            var setup = scene.setup
            setup.variables["TRANSFER_OWNER_HOURS"] = "72"
            try await world.working(setup) {
                try await scene.collect(ticket)
                #expect(try await scene.facts(ticket).contains("owner_erased"))
                try await scene.approveAll(ticket)
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
                #expect(try await scene.state(ticket) == "transferred")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
            }
        }
    }

    @Test func `143: what else the transfer moves is listed, and confirmed one by one`() async throws {
        let owner = """
            {id: owner, subscriptions: [{state: active, store_subscription_identifier: "200000070000001"},
             {state: active, store_subscription_identifier: "200000070000002"}]}
            """
        try await DeskCase.with(customers: [owner, "{id: claimant, state: none}"]) { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
                for confirmed in [[], ["200000070000001"], ["200000070000002", "another"]] {
                    #expect(try await scene.approve(scene.bea, ticket, confirming: confirmed) == "not_confirmed")
                }
                try await scene.approveAll(ticket, confirming: ["200000070000002"])
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
            }
            let owned = try await scene.world.number(
                """
                SELECT count(*) FROM entitlement_sync.purchase AS p
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key
                 WHERE u.user_id = 'claimant' AND p.transferred_at IS NOT NULL
                """
            )
            #expect(owned == 2)
        }
    }

    @Test func `147, 153: what was moved lately is moved back by seniors alone, with approvals of its own`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let dan = try await scene.desk.enter("dan", .senior, by: scene.admin)
            try await world.working(scene.setup) {
                try await scene.transfer(ticket)
                let back = try await scene.askedBack()
                #expect(back > ticket)
                try await scene.collect(back)
                #expect(try await scene.facts(back).contains("moved_lately"))
                #expect(try await scene.act(scene.bea, .claim, on: back) == nil)
                #expect(try await scene.approve(scene.bea, back) == "needs_senior")
                #expect(try await scene.act(scene.bea, .release, on: back) == nil)
                #expect(try await scene.act(scene.cid, .claim, on: back) == nil)
                #expect(try await scene.approve(scene.cid, back) == nil)
                #expect(try await scene.approve(dan, back) == nil)
                #expect(try await scene.act(dan, .transfer, on: back) == nil)
                try await scene.untilEnded(back)
                #expect(try await scene.state(back) == "transferred")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'subscriber'")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'free'")
            }
        }
    }

    @Test(arguments: [
        ("family_shared", "family_shared"), ("promotional", "promotional"), ("refunded", "lapsed"),
    ])
    func `148: what is family-shared, refunded or given is moved for nobody`(_ state: String, _ fact: String)
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.changeOwner(state: state, ends: "+20d")
                try await scene.collect(ticket)
            }
            #expect(try await scene.facts(ticket).contains(fact))
            // A refund ends the access: then there is nothing to transfer at all.
            guard try await scene.state(ticket) != "auto_resolved" else {
                #expect(state == "refunded")
                return
            }
            #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.cid, ticket) == "hindrance")
        }
    }
}
