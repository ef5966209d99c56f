import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// Which operators may act on a case, and whose approvals count.
@Suite struct ApproverTests {
    @Test func `Roles do what they may, and nothing else; a sign-in that is too old approves nothing`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) { try await scene.collect(ticket) }
            let view = try await scene.desk.enter("vic", .viewer, by: scene.admin)
            let audit = try await scene.desk.enter("aud", .auditor, by: scene.admin)
            for person in [view, audit, scene.admin] {
                for act in [DeskTickets.Act.claim, .note("x"), .refuse(how: "refuse", words: nil), .transfer] {
                    await expectRefusal { _ = try await scene.act(person, act, on: ticket) }
                }
                #expect(try await scene.tickets(person).show(ticket) != nil)
            }
            await expectRefusal { _ = try await scene.approve(scene.ann, ticket) }
            await expectRefusal { _ = try await scene.tickets(view).show(ticket, reveal: true) }
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.operator_session SET proved_at = proved_at - interval '10 minutes'"
            )
            await expectRefusal("ES007") { _ = try await scene.approve(scene.bea, ticket) }
            let noted = try await scene.world.number(
                "SELECT count(*) FROM entitlement_sync.operator_event AS e WHERE e.kind = 'refused'"
            )
            #expect(noted == 3 * 4 + 3)
        }
    }

    @Test(arguments: ["claimant", "owner"])
    func `145: nobody acts on a case of their own account, or sees it; an alarm tells of it`(_ side: String)
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) { try await scene.collect(ticket) }
            let eve = try await scene.desk.enter("eve", .senior, by: scene.admin, user: side)
            let hash = try await scene.hash(ticket)
            for act in [
                DeskTickets.Act.claim, .release, .refresh, .note("mine"), .refuse(how: "refuse", words: nil), .withdraw,
                .approve(hash: hash, confirmed: []), .transfer,
            ] { #expect(try await scene.act(eve, act, on: ticket) == "own_case") }
            #expect(try await scene.tickets(eve).show(ticket) == nil)
            #expect(try await scene.tickets(eve).list(states: nil).isEmpty)
            #expect(try await scene.world.alarms().contains("operator_own_case"))
            // To have the account erased opens nothing.
            _ = try await Erasure(pool: scene.world.pool).erase(side)
            #expect(try await scene.act(eve, .claim, on: ticket) == "own_case")
        }
    }

    @Test func `155: a claim is one operator's until it ends; others see whose`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            for act in [DeskTickets.Act.claim, .release, .refuse(how: "refuse", words: nil)] {
                #expect(try await scene.act(scene.bea, act, on: ticket) == "held")
            }
            let shown = try #require(try await scene.tickets(scene.bea).show(ticket))
            #expect(shown.contains(#""holder": "ann""#))
            #expect(try await scene.act(scene.bea, .note("I know them"), on: ticket) == nil)
            try await world.pool.query(
                "UPDATE entitlement_sync.ticket SET assigned_until = clock_timestamp() WHERE id = \(ticket)"
            )
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.act(scene.ann, .refuse(how: "refuse", words: nil), on: ticket) == "held")
            // Nobody's any more when the lease ends.
            try await world.pool.query(
                "UPDATE entitlement_sync.ticket SET assigned_until = clock_timestamp() WHERE id = \(ticket)"
            )
            _ = try await CaseRecords(pool: world.pool).tend()
            #expect(try await scene.state(ticket) == "new")
            #expect(try await scene.act(scene.ann, .refuse(how: "refuse", words: nil), on: ticket) == "not_claimed")
            let both = try await withThrowingTaskGroup(of: String?.self) { group in
                for person in [scene.ann, scene.bea, scene.cid] {
                    group.addTask { try await scene.act(person, .claim, on: ticket) }
                }
                return try await group.reduce(into: [String?]()) { $0.append($1) }
            }
            #expect(both.filter { $0 == nil }.count == 1, "\(both)")
        }
    }

    @Test func `144: who has approved approves no second time, from wherever`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) { try await scene.collect(ticket) }
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.bea, ticket) == nil)
            guard case .signedIn(let token, _) = try await scene.desk.signIn(scene.bea) else {
                Issue.record("bea can't sign in again")
                return
            }
            let elsewhere = DeskPeople.Person(
                name: "bea",
                token: token,
                device: scene.bea.device,
                client: scene.bea.client
            )
            #expect(try await scene.approve(elsewhere, ticket) == "approved_already")
            async let one = scene.approve(scene.cid, ticket)
            async let two = scene.approve(scene.cid, ticket)
            let answers = try await [one, two]
            #expect(answers.filter { $0 == nil }.count == 1, "\(answers)")
            #expect(try await scene.state(ticket) == "approved")
            let refusals = try await scene.world.number(
                "SELECT count(*) FROM entitlement_sync.operator_event AS e WHERE e.kind = 'refused'"
            )
            #expect(refusals == 2)
        }
    }

    @Test(arguments: ["disabled", "role", "reset"])
    func `146: an approver who lost the role before the execution stops it`(_ how: String) async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                switch how {
                case "disabled": try await scene.desk.operators.disable("bea", by: scene.admin.token.digest)
                case "role":
                    try await world.pool.query("UPDATE entitlement_sync.operator SET role = 'agent' WHERE name = 'bea'")
                default:
                    let initial = try PasswordKey(new: "initial password", for: "", cost: .least)
                    try await scene.desk.operators.reset("bea", password: initial.shown, by: scene.admin.token.digest)
                }
                // A worker may have found it out before.
                let refusal = try await scene.act(scene.cid, .transfer, on: ticket)
                #expect(refusal == "approvals" || refusal == "state")
                #expect(try await scene.state(ticket) == "new")
                // It begins anew, with others.
                let dan = try await scene.desk.enter("dan", .approver, by: scene.admin)
                #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
                #expect(try await scene.approve(scene.cid, ticket) == nil)
                #expect(try await scene.approve(dan, ticket) == nil)
                #expect(try await scene.state(ticket) == "approved")
            }
            #expect(try await scene.calls() == 0)
        }
    }

    @Test func `146: a role that is lost while it waits for its turn stops the execution as well`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
            }
            #expect(try await scene.act(scene.cid, .transfer, on: ticket) == nil)
            try await scene.desk.operators.disable("bea", by: scene.admin.token.digest)
            try await scene.world.working(scene.setup) { try await scene.untilEnded(ticket) }
            #expect(try await scene.state(ticket) == "new")
            #expect(try await scene.calls() == 0)
        }
    }

    @Test func `116: the purchase of somebody who is banned for good is claimed in vain, and a senior's to decide`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.pool.query("UPDATE users SET status = 'banned_final' WHERE id = 'owner'")
            let again = try await scene.world.restore("claimant", proofs: DeskCase.proof, clientError: "7")
            try await scene.world.working(scene.setup) {
                try await scene.world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.id = \(again) AND j.state = 'done'"
                )
                try await scene.collect(ticket)
            }
            #expect(try await scene.world.status(again).outcome == "store_account_mismatch")
            #expect(try await scene.facts(ticket).contains("owner_banned"))
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.bea, ticket) == "needs_senior")
            #expect(try await scene.act(scene.bea, .release, on: ticket) == nil)
            #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.cid, ticket) == nil)
        }
    }
}
