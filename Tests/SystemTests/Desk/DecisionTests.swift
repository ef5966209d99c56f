import Entitlements
import Foundation
import Postgres
import SupportDesk
import Testing
import UserRequests

/// Who may decide a case, on what, and what undoes a decision.
@Suite struct DecisionTests {
    @Test func `138: the owner renews after the approvals: they are void, and the ticket is looked at again`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                try await scene.world.change("owner", Self.owner(ends: "+60d"))
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

    @Test func `138: found before anybody executes, it voids the approvals as well`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                try await scene.world.change("owner", Self.owner(ends: "+60d"))
                try await scene.collect(ticket)
            }
            #expect(try await scene.state(ticket) == "new")
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "state")
        }
    }

    @Test func `139: the owner's subscription lapses while the ticket waits: it closes by itself`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.world.change("owner", Self.owner(state: "expired", ends: "-1d"))
                try await scene.collect(ticket)
            }
            #expect(try await scene.state(ticket) == "auto_resolved")
            #expect(try await scene.facts(ticket).contains("lapsed"))
            #expect(try await CaseRecords(pool: scene.world.pool).tell() == 1)
            let told = try await Self.told(scene.world)
            #expect(told.count == 1 && told.first?.hasPrefix("claimant ticket.decided") == true, "\(told)")
            #expect(told.first?.contains("auto_resolved") == true)
        }
    }

    @Test func `116: the purchase of somebody who is banned for good is claimed in vain, and a senior's to decide`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.pool.query("UPDATE users SET status = 'banned_final' WHERE id = 'owner'")
            let again = try await scene.world.restore("claimant", proofs: DeskCase.proof, clientError: "7")
            try await scene.world.working(scene.setup) {
                try await scene.world.until(
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
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
                try await world.until("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
                // The former owner comes.
                let job = try await world.restore("owner", proofs: DeskCase.proof, clientError: "7")
                try await world.until(
                    "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.id = \(job) AND j.state = 'done'"
                )
                let back = try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
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
                try await world.until("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'subscriber'")
                try await world.until("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'free'")
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
                try await scene.world.change("owner", Self.owner(state: state, ends: "+20d"))
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

    @Test func `60: what was charged back once is moved for nobody, whoever agreed and whatever was paid since`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            @Sendable func noteChargeback() async throws {
                // Of a number that the purchase had before.
                try await world.pool.query(
                    """
                    WITH former AS (
                        INSERT INTO entitlement_sync.purchase (id, observed_at, source, store, environment, kind, status, ownership,
                                                               owner_rule, merged_into)
                        SELECT p.id + 1000, p.observed_at, p.source, p.store, p.environment, p.kind, p.status, p.ownership,
                               p.owner_rule, p.id
                          FROM entitlement_sync.purchase AS p RETURNING id
                    )
                    INSERT INTO entitlement_sync.chargeback (purchase_id, at) SELECT f.id, now() FROM former AS f
                    """
                )
            }
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                try await noteChargeback()
                #expect(
                    try await scene.act(scene.bea, .transfer, on: ticket) == "hindrance",
                    "before evidence tells of it"
                )
                #expect(try await scene.calls() == 0)
                try await scene.collect(ticket)
            }
            #expect(try await scene.facts(ticket).isSuperset(of: ["charged_back", "refunded"]))
            #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.cid, ticket) == "hindrance")
            #expect(try await world.type(of: "owner") == "subscriber", "who pays again has what they pay for")
        }
    }

    @Test func `60: what was charged back is moved for nobody who typed what it is called either`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
            }
            try await world.pool.query(
                "INSERT INTO entitlement_sync.chargeback (purchase_id, at) SELECT t.purchase_id, now() FROM entitlement_sync.ticket AS t"
            )
            // No claim names it: it was found by a look-up.
            try await world.pool.query(
                "UPDATE entitlement_sync.ticket SET subject_id = purchase_id, purchase_id = NULL"
            )
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "hindrance")
        }
    }

    @Test
    func `60: what a list gave as charged back before it was known here is moved for nobody, until a person lifts it`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            /// Lists one charge as Google's list does, by its names.
            @Sendable func list(_ names: String...) async throws {
                try await world.pool.query(
                    """
                    SELECT entitlement_sync.note_chargebacks(ARRAY[jsonb_build_object('charged_back', 0, 'purchases', (
                               SELECT jsonb_agg(jsonb_build_object('store', 'app_store', 'value', n.name) ORDER BY n.number)
                                 FROM unnest(\(names)) WITH ORDINALITY AS n(name, number)))::text])
                    """
                )
            }
            @Sendable func isMarked() async throws -> Bool {
                try await world.working(scene.setup) { try await scene.collect(ticket) }
                return try await scene.facts(ticket).contains("charged_back")
            }
            try await list("another")
            #expect(try await !isMarked())
            let name = try #require(
                try await world.texts(
                    "SELECT x.value FROM entitlement_sync.purchase_identifier AS x WHERE x.store = 'app_store'"
                ).first
            )
            try await list(name)
            // As if it had been listed before anybody met it.
            try await world.pool.query("DELETE FROM entitlement_sync.chargeback")
            #expect(try await isMarked())
            #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.cid, ticket) == "hindrance")
            try await list(name)
            let lifted = try await world.number("SELECT entitlement_sync.lift_chargeback(\(name), 'The bank said so.')")
            #expect(lifted == 2, "the purchase's mark and the name's")
            let words = try await world.texts(
                """
                SELECT lifted_for FROM entitlement_sync.chargeback
                 UNION SELECT lifted_for FROM entitlement_sync.chargeback_name WHERE lifted_by = session_user
                """
            )
            #expect(words == ["The bank said so."])
            try await list(name)
            #expect(try await !isMarked(), "listed again, it is no later")
            await expectRefusal("22023") {
                try await world.pool.query("SELECT entitlement_sync.lift_chargeback(\(name), 'Once more.')")
            }
            await expectRefusal("22023") {
                try await world.pool.query("SELECT entitlement_sync.lift_chargeback('another', ' ')")
            }
            let other = try await world.number("SELECT entitlement_sync.lift_chargeback('another', 'It was ours.')")
            #expect(other == 1, "what nobody has met has a name alone")
            // Of another order, told late: nobody who lifted the first one knew of it.
            try await list(name, "a later order")
            #expect(try await isMarked(), "the next one counts")
            // By a name of the same entry that the ledger does not know.
            let later = try await world.number("SELECT entitlement_sync.lift_chargeback('a later order', 'Won.')")
            #expect(later == 3, "the purchase's mark and two names")
            #expect(try await !isMarked())
        }
    }

    @Test func `60: what was charged back does not move along with what was not`() async throws {
        let owner = """
            {id: owner, subscriptions: [
              {state: active, store_subscription_identifier: "200000070000001"},
              {state: active, id: sub-else, store_subscription_identifier: "200000070000009"}]}
            """
        try await DeskCase.with(customers: [owner, "{id: claimant, state: none}"]) { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                #expect(try await !scene.facts(ticket).contains("charged_back"))
                try await world.pool.query(
                    """
                    INSERT INTO entitlement_sync.chargeback (purchase_id, at)
                    SELECT p.id, now() FROM entitlement_sync.purchase AS p
                     WHERE p.id <> (SELECT t.purchase_id FROM entitlement_sync.ticket AS t WHERE t.id = \(ticket))
                    """
                )
                try await scene.collect(ticket)
                let facts = try await scene.facts(ticket)
                #expect(facts.contains("charged_back") && !facts.contains("refunded"), "it was not refunded itself")
            }
        }
    }

    @Test func `154: what happened to a ticket, what was found and who agreed is never changed`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
            }
            for table in ["ticket_event", "ticket_evidence", "transfer_step", "operator_event"] {
                for change in [
                    "UPDATE entitlement_sync.\(table) SET id = DEFAULT", "DELETE FROM entitlement_sync.\(table)",
                ] {
                    await expectRefusal(SQLState.insufficientPrivilege) {
                        try await scene.world.pool.query(PostgresQuery(rawSQL: change))
                    }
                }
            }
            #expect(try await scene.act(scene.bea, .refuse(how: "refuse", words: "no"), on: ticket) == "state")
            #expect(try await scene.act(scene.bea, .note("a correction"), on: ticket) == nil)
        }
    }

    @Test func `A blank remark is none, and a note needs words`() async throws {
        try await DeskCase.with { scene, ticket in
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            for words in ["", " \n", String(repeating: "x", count: 4001)] {
                await expectRefusal("22023") { _ = try await scene.act(scene.ann, .note(words), on: ticket) }
            }
            let long = String(repeating: "x", count: 4001)
            await expectRefusal("22023") {
                _ = try await scene.act(scene.ann, .refuse(how: "refuse", words: long), on: ticket)
            }
            let refusal = try await scene.act(scene.ann, .refuse(how: "refuse", words: " \n"), on: ticket)
            #expect(refusal == nil)
            #expect(try await scene.world.number("SELECT count(*) FROM entitlement_sync.ticket_note") == 0)
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

    @Test func `136: two claimants of one purchase: one gets it, the other's ticket closes as a duplicate`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.add("other")
            try await world.working(scene.setup) {
                let job = try await world.restore("other", proofs: DeskCase.proof, clientError: "7")
                try await world.until(
                    "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.id = \(job) AND j.state = 'done'"
                )
                let second = try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
                #expect(second > ticket)
                for id in [ticket, second] {
                    try await scene.collect(id)
                    try await scene.approveAll(id)
                }
                async let one = scene.act(scene.bea, .transfer, on: ticket)
                async let two = scene.act(scene.cid, .transfer, on: second)
                let answers = try await [one, two]
                #expect(answers.filter { $0 == nil }.count == 1 && answers.contains("busy"), "\(answers)")
                let winner = answers[0] == nil ? ticket : second
                try await scene.untilEnded(winner)
                #expect(try await scene.state(winner) == "transferred")
                #expect(try await scene.state(winner == ticket ? second : ticket) == "duplicate")
            }
            #expect(try await scene.calls() == 1)
        }
    }

    @Test func `The owner has time to object: nothing is moved before it is over`() async throws {
        try await DeskCase.with { scene, ticket in
            var setup = scene.setup
            setup.variables["TRANSFER_OWNER_HOURS"] = "1"
            try await scene.world.working(setup) { [setup] in
                try await scene.collect(ticket)
                _ = setup
                #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
                #expect(try await scene.approve(scene.bea, ticket) == nil)
                #expect(try await scene.approve(scene.cid, ticket) == nil)
                #expect(try await scene.state(ticket) == "waiting_owner")
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "waiting_owner")
                // The owner hears of it, once, and not who asks.
                #expect(try await CaseRecords(pool: scene.world.pool).tell() == 1)
                let told = try await Self.told(scene.world)
                #expect(told.count == 1 && told.first?.hasPrefix("owner ticket.owner_asked") == true, "\(told)")
                #expect(told.first?.contains("claimant") == false && told.first?.contains("200000070000001") == true)
                try await scene.world.pool.query(
                    "UPDATE entitlement_sync.owner_window SET ends_at = clock_timestamp() WHERE ticket_id = \(ticket)"
                )
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
            }
            #expect(try await scene.state(ticket) == "transferred")
            #expect(try await CaseRecords(pool: scene.world.pool).tell() == 2)
            let told = try await Self.told(scene.world).suffix(2)
            #expect(told.first?.hasPrefix("claimant ticket.decided") == true)
            #expect(told.last?.hasPrefix("owner ticket.decided") == true && told.last?.contains("claimant") == false)
            #expect(told.allSatisfy { $0.contains("transferred") })
        }
    }

    @Test func `189: a refused ticket is touched for 90 days, and opened again where the evidence is another`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            @Sendable func tap() async throws -> String? {
                let job = try await world.restore("claimant", proofs: DeskCase.proof, clientError: "7")
                try await world.until(
                    "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.id = \(job) AND j.state = 'done'"
                )
                return try await world.status(job).outcome
            }
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
                #expect(try await scene.act(scene.ann, .refuse(how: "guide_to_login", words: nil), on: ticket) == nil)
                #expect(try await tap() == "store_account_mismatch")
                #expect(try await world.tickets(of: "claimant").map(\.touches) == [1])
                try await scene.collect(ticket)
                #expect(try await scene.state(ticket) == "refused")
                // The owner's account is erased: now there may be something to decide.
                try await world.pool.query("UPDATE users SET status = 'to_be_deleted' WHERE id = 'owner'")
                #expect(try await tap() == "store_account_mismatch")
                try await scene.collect(ticket)
                #expect(try await scene.state(ticket) == "new")
                #expect(try await world.tickets(of: "claimant").map(\.touches) == [2])
                // After 90 days it is a case of its own.
                #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
                #expect(try await scene.act(scene.ann, .refuse(how: "refuse", words: nil), on: ticket) == nil)
                try await world.pool.query(
                    "UPDATE entitlement_sync.ticket SET closed_at = closed_at - interval '91 days'"
                )
                #expect(try await tap() == "store_account_mismatch")
                #expect(try await world.tickets(of: "claimant").map(\.state) == ["refused", "new"])
            }
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
                try await world.until("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
            }
        }
    }

    @Test func `A case that the claimant does not see is over without a word to them`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.pool.query("UPDATE entitlement_sync.ticket SET visible = false")
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            #expect(try await scene.act(scene.ann, .refuse(how: "refuse", words: nil), on: ticket) == nil)
            #expect(try await CaseRecords(pool: scene.world.pool).tell() == 0)
        }
    }

    private static func told(_ world: World) async throws -> [String] {
        try await world.texts(
            """
            SELECT concat_ws(' ', u.user_id, o.topic, o.data::text) FROM entitlement_sync.outbox AS o
              JOIN entitlement_sync.user_sync AS u ON u.user_key = o.user_key WHERE o.topic LIKE 'ticket.%' ORDER BY o.id
            """
        )
    }

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

    @Test func `Who a user is stays masked, until somebody asks for it on record`() async throws {
        try await DeskCase.with { scene, ticket in
            let masked = try #require(try await scene.tickets(scene.ann).show(ticket))
            #expect(masked.contains(#""claimant": "cl…nt""#) && !masked.contains("claimant\"}"))
            let rows = try await scene.tickets(scene.ann).list(states: nil)
            #expect(rows.map(\.userID) == ["cl…nt"] && rows.map(\.ownerID) == ["…r"])
            let revealed = try #require(try await scene.tickets(scene.ann).show(ticket, reveal: true))
            #expect(revealed.contains(#""claimant": "claimant""#) && revealed.contains(#""owner": "owner""#))
            #expect(try await scene.tickets(scene.ann).list(states: nil, reveal: true).map(\.userID) == ["claimant"])
            #expect(try await scene.world.number("SELECT count(*) FROM entitlement_sync.ticket_reveal") == 2)
            // Asked for and shown at once, it could be undone together.
            try await scene.world.pool.query("ALTER TABLE entitlement_sync.ticket_reveal DISABLE TRIGGER append_only")
            try await scene.world.pool.query("DELETE FROM entitlement_sync.ticket_reveal")
            let session = PostgresBytes(scene.ann.token.digest)
            let shown = try await scene.world.pool.withTransaction { connection in
                try await connection.query("SELECT entitlement_sync.reveal_ticket(\(session), \(ticket))")
                return try await connection.query(
                    "SELECT t.claimant FROM entitlement_sync.show_ticket(\(session), \(ticket), true) AS t"
                ).first?.decode(String.self, at: 0)
            }
            #expect(shown == "cl…nt")
        }
    }

    private static func owner(state: String = "active", ends: String) -> String {
        """
        {"subscriptions":[{"state":"\(state)","ends":"\(ends)","store_subscription_identifier":"200000070000001"}]}
        """
    }
}
