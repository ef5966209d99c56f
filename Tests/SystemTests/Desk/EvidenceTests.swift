import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What is found out about a case.
@Suite struct EvidenceTests {
    @Test func `What the desk shows of a ticket and of a user names the app that the purchase was seen in`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            #expect(try await scene.shown(ticket).storeApp == "proj0a1b2c3d", "only RevenueCat has spoken of it")
            try await scene.world.pool.query("UPDATE entitlement_sync.purchase SET store_app = 'com.example.second'")
            #expect(try await scene.shown(ticket).storeApp == "com.example.second")
            let key = try await scene.world.number(
                "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'owner'"
            )
            let users = DeskUsers(pool: scene.world.pool, session: scene.ann.token.digest)
            let user = try DeskUser(json: try #require(try await users.show(key)))
            #expect(user.purchases.map(\.storeApp) == ["com.example.second"])
        }
    }

    private static let subject = #"{state: active, store_subscription_identifier: "200000070000001"}"#

    /// A purchase of the owner's by our records that RevenueCat has for somebody else.
    private func holder(_ customer: String, users: [String] = []) async throws -> Set<String> {
        let facts = Facts()
        try await DeskCase.with(customers: [DeskCase.owner]) { scene, ticket in
            for user in users { try await scene.world.add(user) }
            try await scene.world.change("owner", #"{"state":"none"}"#)
            try await scene.world.change(
                "holder",
                #"""
                {"aliases":["\#(customer)"],"subscriptions":[{"state":"active","store_subscription_identifier":"200000070000001"}]}
                """#
            )
            try await scene.world.working(scene.setup) { try await scene.collect(ticket) }
            await facts.set(try await scene.facts(ticket))
        }
        return await facts.facts
    }

    private actor Facts {
        private(set) var facts: Set<String> = []
        func set(_ facts: Set<String>) { self.facts = facts }
    }

    @Test func `A third user of ours under another name of RevenueCat's customer forbids the transfer`() async throws {
        let facts = try await holder("third", users: ["third"])
        #expect(facts.contains("held_elsewhere"))
    }

    @Test func `A customer who is nobody of ours stands in for an owner by our records`() async throws {
        let facts = try await holder("stranger")
        #expect(!facts.contains("held_elsewhere") && !facts.contains("sources_disagree"))
    }

    @Test func `The claimant under another name is asked for no transfer`() async throws {
        let facts = try await holder("claimant")
        #expect(facts.contains("sources_disagree"))
    }

    @Test func `What our records give to a third user is not moved along`() async throws {
        let owner = #"""
            {id: owner, subscriptions: [\#(Self.subject),
             {state: active, store_subscription_identifier: "200000070000009"}]}
            """#
        try await DeskCase.with(customers: [owner, "{id: claimant, state: none}"]) { scene, ticket in
            let world = scene.world
            try await world.add("third")
            let key = try await world.meet("third")
            try await world.pool.query(
                """
                UPDATE entitlement_sync.purchase AS p SET owner_key = \(key)
                  FROM entitlement_sync.purchase_identifier AS i
                 WHERE i.purchase_id = p.id AND i.value = '200000070000009'
                """
            )
            try await world.working(scene.setup) { try await scene.collect(ticket) }
            #expect(try await scene.facts(ticket).contains("moves_foreign"))
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.bea, ticket, confirming: ["200000070000009"]) == "hindrance")
        }
    }

    @Test func `The same findings make the same hash, however often they are made`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                let first = try await scene.hash(ticket)
                for _ in 0..<3 {
                    try await scene.collect(ticket)
                    #expect(try await scene.hash(ticket) == first)
                }
                // Whether somebody is still new here decides nothing.
                try await scene.world.pool.query("UPDATE users SET status = 'onboarding'")
                try await scene.collect(ticket)
                #expect(try await scene.hash(ticket) == first)
                try await scene.world.pool.query("UPDATE users SET status = 'banned' WHERE id = 'owner'")
                try await scene.collect(ticket)
                #expect(try await scene.hash(ticket) != first)
                #expect(try await scene.facts(ticket).contains("owner_banned"))
            }
        }
    }

    /// What a source answered by the newest evidence, and when it is asked again in seconds.
    private func source(_ store: String, _ ticket: Int64, in scene: DeskCase) async throws -> String? {
        try await scene.world.texts(
            """
            SELECT concat_ws(' ', s.source ->> 'result', s.source ->> 'error', CASE WHEN s.source ? 'since' THEN 'since' END)
              FROM entitlement_sync.ticket AS t
              JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id
             CROSS JOIN jsonb_array_elements(e.document -> 'sources') AS s(source)
             WHERE t.id = \(ticket) AND s.source ->> 'store' = \(store)
            """
        ).first
    }

    @Test
    func
        `A source that does not answer is part of the evidence, forbids a transfer, and is asked again later and later`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.world.inject(#"{"endpoint":"subscriptions","customer":"owner","status":500}"#)
                try await scene.collect(ticket)
                #expect(try await self.source("revenuecat", ticket, in: scene)?.hasPrefix("unavailable ") == true)
                #expect(try await self.source("app_store", ticket, in: scene) == "not_configured")
                #expect(try await scene.facts(ticket).contains("unseen"))
                #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
                #expect(try await scene.approve(scene.bea, ticket) == "hindrance")
                let asked: PostgresQuery = """
                    SELECT extract(epoch FROM r.due_at - now())::bigint FROM entitlement_sync.evidence_request AS r
                     WHERE r.ticket_id = \(ticket)
                    """
                #expect((10...15).contains(try await scene.world.number(asked)))
                // As after ten minutes of silence.
                try await scene.world.pool.withTransaction { connection in
                    // Past the guard that keeps evidence as it was.
                    try await connection.execute(script: "SET LOCAL session_replication_role = replica")
                    try await connection.query(
                        """
                        UPDATE entitlement_sync.ticket_evidence AS e
                           SET document = jsonb_set(e.document, '{sources,0,since}',
                                                    to_jsonb((extract(epoch FROM now() - interval '10 minutes') * 1000000)::bigint))
                         WHERE e.ticket_id = \(ticket)
                        """
                    )
                }
                try await scene.collect(ticket)
                #expect((590...620).contains(try await scene.world.number(asked)), "twice as late")
                try await scene.world.heal()
                try await scene.collect(ticket)
                #expect(try await self.source("revenuecat", ticket, in: scene) == "found")
                #expect(try await scene.facts(ticket).isEmpty)
                #expect(
                    try await scene.world.number("SELECT count(r.due_at) FROM entitlement_sync.evidence_request AS r")
                        == 0
                )
            }
        }
    }

    @Test func `Evidence in which a source is missing is kept together with the time at which it is collected again`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            // What each commit of evidence leaves of the time.
            try await scene.world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE TABLE public.kept (due timestamptz);
                        CREATE FUNCTION public.note_due() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
                        BEGIN
                            INSERT INTO public.kept
                            SELECT r.due_at FROM entitlement_sync.evidence_request AS r WHERE r.ticket_id = NEW.ticket_id;
                            RETURN NULL;
                        END $$;
                        CREATE CONSTRAINT TRIGGER note_due AFTER INSERT ON entitlement_sync.ticket_evidence
                            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_due();
                        """
                )
            }
            try await scene.world.inject(#"{"endpoint":"subscriptions","customer":"owner","status":500}"#)
            try await scene.world.working(scene.setup) { try await scene.collect(ticket) }
            #expect(try await scene.world.number("SELECT count(*) FROM public.kept") > 0)
            #expect(try await scene.world.number("SELECT count(*) FROM public.kept WHERE due IS NULL") == 0)
        }
    }

    @Test func `Evidence in which nothing was missing outlasts a source that does not answer, and so do approvals`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                let hash = try await scene.hash(ticket)
                #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
                #expect(try await scene.approve(scene.bea, ticket) == nil)
                try await scene.world.inject(#"{"endpoint":"subscriptions","customer":"owner","status":500}"#)
                try await scene.world.pool.query(
                    "SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t"
                )
                try await scene.world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.evidence_request AS r WHERE r.error IS NOT NULL"
                )
                #expect(try await scene.hash(ticket) == hash)
                #expect(try await scene.state(ticket) == "needs_second")
                try await scene.world.heal()
                try await scene.collect(ticket)
                #expect(try await scene.state(ticket) == "needs_second")
            }
        }
    }

    @Test func `A purchase that only its store's id names comes into our records first`() async throws {
        let customers = [DeskCase.owner, "{id: claimant, state: none}"]
        try await World.with(customers: customers, scenario: DeskCase.scenario) { world in
            for user in ["owner", "claimant"] { try await world.add(user) }
            _ = try await world.restore("claimant", proofs: DeskCase.proof, clientError: "7")
            try await world.work()
            #expect(
                try await world.number("SELECT count(*) FROM entitlement_sync.ticket WHERE purchase_id IS NULL") == 1
            )
            let desk = DeskPeople(world: world)
            let ann = try await desk.enter("ann", .agent, by: try await desk.enter("root", .admin))
            let jobs: PostgresQuery = "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.kind = 'reconcile'"
            try await world.working(WorkerSetup(servesDesk: true, variables: DeskCase.variables)) {
                // Before anybody looks nobody is read for it.
                try await world.pool.query(
                    "SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t"
                )
                try await world.waitUntil("SELECT count(*) FROM entitlement_sync.ticket_evidence")
                #expect(try await world.number(jobs) == 0)
                let tickets = DeskTickets(pool: world.pool, session: ann.token.digest)
                #expect(try await tickets.act(.claim, on: 1) == nil)
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.ticket AS t
                      JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id
                     WHERE t.subject_id IS NOT NULL AND e.hindrance = 'none'
                    """
                )
                #expect(try await world.number(jobs) == 1)
                // Who taps again is known by what the first tap knew.
                let again = try await world.restore("claimant", proofs: DeskCase.proof, clientError: "7")
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.id = \(again) AND j.state = 'done'"
                )
                #expect(try await world.tickets(of: "claimant").map(\.touches) == [1])
            }
        }
    }

    @Test func `An agent opens a ticket for whoever wrote, once; what a claimant has already is refused`() async throws
    {
        try await DeskCase.with { scene, ticket in
            let desk = scene.tickets(scene.ann)
            try await scene.world.add("writer")
            let order = "200000070000001"
            let id = try #require(try await desk.open(claimant: "writer", orderID: order, reason: "wrote a mail"))
            #expect(try await desk.open(claimant: "writer", orderID: order, reason: "wrote again") == id)
            #expect(try await desk.open(claimant: "claimant", orderID: order, reason: "wrote as well") == ticket)
            #expect(try await desk.open(claimant: "owner", orderID: order, reason: "owns it") == nil)
            let kinds = try await scene.world.texts(
                "SELECT t.kind FROM entitlement_sync.ticket AS t WHERE t.id = \(id)"
            )
            #expect(kinds == ["owner_mismatch"])
            await expectRefusal("ES001") { _ = try await desk.open(claimant: "nobody", orderID: nil, reason: "x") }
            await expectRefusal("22023") { _ = try await desk.open(claimant: "writer", orderID: "a b", reason: "x") }
            await expectRefusal("22023") { _ = try await desk.open(claimant: "writer", orderID: nil, reason: "") }
            let view = try await scene.desk.enter("vic", .viewer, by: scene.admin)
            await expectRefusal {
                _ = try await scene.tickets(view).open(claimant: "writer", orderID: nil, reason: "x")
            }
        }
    }

    @Test func `What people wrote is for those who work on cases or audit them, and not for whoever looks`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            #expect(try await scene.act(scene.ann, .note("call me Joe"), on: ticket) == nil)
            try await scene.world.pool.query(
                """
                INSERT INTO entitlement_sync.ticket_reply (ticket_id, user_key, side, words)
                SELECT t.id, t.claimant_key, 'claimant', 'I live at 1 Main St' FROM entitlement_sync.ticket AS t
                 WHERE t.id = \(ticket)
                """
            )
            let audit = try await scene.desk.enter("aud", .auditor, by: scene.admin)
            let view = try await scene.desk.enter("vic", .viewer, by: scene.admin)
            for (person, reads) in [(scene.ann, true), (audit, true), (view, false)] {
                let shown = try #require(try await scene.tickets(person).show(ticket))
                #expect(shown.contains("Joe") == reads, "\(person.name)")
                let replies = try await scene.world.texts(
                    """
                    SELECT r.words FROM entitlement_sync.ticket_replies(\(PostgresBytes(person.token.digest)), \(ticket)) AS r
                    """
                )
                #expect(replies == (reads ? ["I live at 1 Main St"] : []), "\(person.name)")
            }
        }
    }

    @Test func `What an operator wrote about somebody is gone when they are erased`() async throws {
        try await DeskCase.with { scene, ticket in
            #expect(try await scene.act(scene.ann, .note("call me Joe"), on: ticket) == nil)
            _ = try await Erasure(pool: scene.world.pool).erase("claimant")
            let words = try await scene.world.number(
                "SELECT count(*) FROM entitlement_sync.ticket_note AS n WHERE n.words IS NOT NULL"
            )
            #expect(words == 0)
            let shown = try #require(try await scene.tickets(scene.ann).show(ticket))
            #expect(!shown.contains("Joe"))
        }
    }

    @Test func `A proof that is the first word of a purchase speaks for its claimant at once`() async throws {
        let scenario = """
            customers:
              - {id: sister, subscriptions: [{state: active, store_subscription_identifier: "2000000100000001"}]}
            app_store:
              customers:
                - id: claimant
                  transactions:
                    - {original: "2000000100000001", product: premium_monthly, expires: +20d}
            """
        try await World.with(scenario: scenario) { world in
            try await world.add("claimant")
            try await world.addProducts()
            var setup = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("2000000100000001")
            let restored = try await world.restored("claimant", proofs: proof, setup: setup)
            #expect(restored.outcome == "store_account_mismatch")
            let ticket = try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
            setup.servesDesk = true
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            let ann = try await desk.enter("ann", .agent, by: admin)
            let scene = DeskCase(world: world, desk: desk, admin: admin, ann: ann, bea: ann, cid: ann)
            try await world.working(setup) {
                try await scene.collect(ticket)
                #expect(try await scene.facts(ticket).contains("proof_verified"))
            }
        }
    }
}
