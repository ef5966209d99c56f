import Entitlements
import Foundation
import Postgres
import SupportDesk
import Testing
import UserRequests

/// Ids that claimants and agents name for a case, looked up in the stores.
@Suite struct LookupTests {
    private static let order = "MABCDEFGH1"
    private static let play = "GPA.1234-5678-9012-34567"

    private static let scenario = """
        api_keys: [sk_move, {key: sk_test, write: false}]
        app_store:
          customers:
            - id: owner
              transactions:
                - {original: "2000000100000001", product: premium_monthly, expires: +20d, order_id: \(order)}
        google_play:
          purchases:
            - {token: tok-owner, order_id: \(play), state: active}
        """

    /// An owner who has shown both purchases, somebody else who writes to support, and who decides.
    private func world(_ body: @Sendable (LookupCase) async throws -> Void) async throws {
        try await World.with(scenario: Self.scenario) { world in
            for user in ["owner", "writer"] { try await world.add(user) }
            try await world.addProducts()
            var setup = try world.asking(world.revenueCat, world.appStore, world.googlePlay)
            for proof in [try world.transactionProof("2000000100000001"), world.tokenProof("tok-owner")] {
                _ = try await world.restored("owner", proofs: proof, setup: setup)
            }
            for id in ["2000000100000001", "tok-owner"] { #expect(try await world.owner(of: id) == "owner") }
            setup.servesDesk = true
            setup.variables = DeskCase.variables.merging(["TRANSFER_APPROVALS": "1"]) { $1 }
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            try await body(
                LookupCase(
                    scene: DeskCase(
                        world: world,
                        desk: desk,
                        admin: admin,
                        ann: try await desk.enter("ann", .agent, by: admin),
                        bea: try await desk.enter("bea", .approver, by: admin),
                        cid: try await desk.enter("cid", .senior, by: admin)
                    ),
                    setup: setup
                )
            )
        }
    }

    @Test func `150: an order that no store knows is a proof that failed, is put on record and raises the risk`()
        async throws
    {
        try await world { at in
            let proof = try at.world.transactionProof("2000000100000001")
            let job = try await at.world.restored("writer", proofs: proof, setup: at.asking)
            #expect(job.outcome == "store_account_mismatch")
            let ticket = try await at.world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
            try await at.world.working(at.setup) {
                try await at.scene.collect(ticket)
                let before = try await at.evidence(ticket)
                #expect(before.approvals == 1 && before.facts.contains("proof_verified") && before.lookups.isEmpty)
                for (id, store) in [("GPA.9999-9999-9999-99999", "google_play"), ("MFORGED0001", "app_store")] {
                    try await at.world.pool.query("DELETE FROM entitlement_sync.ticket_reported_id")
                    try await at.name(id, for: ticket)
                    try await at.scene.collect(ticket)
                    let after = try await at.evidence(ticket)
                    #expect(after.lookups.contains { $0.store == store && $0.result == .unknown }, "\(after.lookups)")
                    #expect(after.facts.isSuperset(of: ["proof_failed", "proof_verified"]))
                    #expect(after.approvals == 2, "the risk is raised")
                    #expect(after.hash != before.hash)
                    #expect(!after.document.contains(id), "nothing that was typed stands where nothing is changed")
                }
                let doubts = try await at.world.number(
                    "SELECT count(*) FROM entitlement_sync.ticket_event AS e WHERE e.kind = 'doubted'"
                )
                #expect(doubts == 1)
            }
        }
    }

    @Test func `150: what a claimant typed with a restore is looked up as well, and kept no longer than the claimant`()
        async throws
    {
        try await world { at in
            let proofs = #"""
                [{"store":"app_store","kind":"order_id","value":"MFORGED0001"},
                 {"store":"google_play","kind":"order_id","value":"GPA.9999-9999-9999-99999"},
                 {"store":"onside","kind":"onside_order_id","value":"5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33"}]
                """#
            let job = try await at.world.restored("writer", proofs: proofs, clientError: "7", setup: at.asking)
            #expect(job.outcome == "store_account_mismatch")
            let claims: PostgresQuery = "SELECT count(*) FROM entitlement_sync.ticket_reported_id"
            #expect(try await at.world.number(claims) == 3)
            try await at.world.working(at.setup) {
                try await at.scene.collect(1)
                let evidence = try await at.evidence(1)
                let said = Set(evidence.lookups.map { "\($0.store ?? "") \($0.result.rawValue)" })
                #expect(
                    said == [
                        "app_store unknown", "google_play unknown", "revenuecat unknown", "onside lookup_impossible",
                    ]
                )
                #expect(evidence.facts == ["proof_failed", "purchase_unknown"])
            }
            _ = try await Erasure(pool: at.world.pool).erase("writer")
            #expect(try await at.world.number(claims) == 0)
        }
    }

    @Test func `150: an outage is no word against anybody, and is asked again`() async throws {
        try await world { at in
            try await at.world.working(at.setup) {
                try await at.world.inject(#"{"endpoint":"app_store.lookup","status":500}"#)
                let ticket = try await at.open(nil)
                try await at.name("MFORGED0001", for: ticket)
                try await at.scene.collect(ticket)
                let during = try await at.evidence(ticket)
                #expect(during.lookups.map(\.result) == [.unavailable] && !during.facts.contains("proof_failed"))
                let again: PostgresQuery = """
                    SELECT count(*) FROM entitlement_sync.evidence_request AS r
                     WHERE r.ticket_id = \(ticket) AND r.due_at BETWEEN now() + interval '50 minutes' AND now() + interval '61 minutes'
                    """
                try await at.world.until(again, comment: "nobody asks again")
                try await at.world.heal()
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).facts.contains("proof_failed"))
            }
        }
    }

    @Test func `What people have agreed to outlasts a store that does not say what an id leads to`() async throws {
        try await world { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open(Self.order)
                try await at.scene.collect(ticket)
                #expect(try await at.scene.act(at.scene.bea, .claim, on: ticket) == nil)
                #expect(try await at.scene.approve(at.scene.bea, ticket) == nil)
                #expect(try await at.scene.state(ticket) == "approved")
                try await at.world.inject(#"{"endpoint":"app_store.lookup","status":500}"#)
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).lookups.map(\.result) == [.unavailable])
                #expect(try await at.scene.state(ticket) == "approved")
                // Nothing that a claimant types meanwhile ends it, but what is found false.
                try await at.world.heal()
                try await at.name("no id of any store", for: ticket)
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).lookups.count == 2)
                #expect(try await at.scene.state(ticket) == "approved", "the same findings, the same evidence")
                try await at.name("MFORGED0001", for: ticket)
                try await at.scene.collect(ticket)
                #expect(try await at.scene.state(ticket) == "new")
            }
        }
    }

    @Test func `150: what was found false stays, whatever else is typed, and while a store is silent`() async throws {
        try await world { at in
            let forged = #"[{"store":"google_play","kind":"order_id","value":"GPA.9999-9999-9999-99999"}]"#
            _ = try await at.world.restored("writer", proofs: forged, clientError: "7", setup: at.asking)
            try await at.world.working(at.setup) {
                try await at.scene.collect(1)
                #expect(try await at.evidence(1).facts.contains("proof_failed"))
            }
            for number in 0..<5 {
                let junk = (0..<3).map {
                    #"{"store":"app_store","kind":"transaction_id","value":"x-\#(number)-\#($0)"}"#
                }
                let proofs = "[" + junk.joined(separator: ",") + "]"
                _ = try await at.world.restored("writer", proofs: proofs, clientError: "7", setup: at.asking)
            }
            #expect(try await at.world.number("SELECT count(*) FROM entitlement_sync.ticket_reported_id") == 10)
            try await at.world.working(at.setup) {
                try await at.scene.collect(1)
                let after = try await at.evidence(1)
                #expect(after.lookups.count == 11 && after.facts.contains("proof_failed"), "\(after.lookups)")
                try await at.world.inject(#"{"endpoint":"google_play.order","status":500}"#)
                try await at.scene.collect(1)
                let during = try await at.evidence(1)
                #expect(during.lookups.contains { $0.result == .unavailable })
                #expect(during.hash == after.hash, "what a store said before still counts")
            }
        }
    }

    @Test func `150: a slip of an agent's is no word against the claimant, and another number takes its place`()
        async throws
    {
        try await world { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open("MFORGED0001")
                try await at.scene.collect(ticket)
                let evidence = try await at.evidence(ticket)
                #expect(evidence.lookups.map(\.result) == [.unknown] && !evidence.facts.contains("proof_failed"))
                for id in [Self.order, Self.play, Self.order] {
                    try await at.note(id, for: ticket)
                    try await at.scene.collect(ticket)
                    let subject = try #require(try await at.evidence(ticket).lookups.first { $0.isSubject })
                    #expect(subject.store == (id == Self.play ? "google_play" : "app_store"), "\(id)")
                }
                // The claimant sends it as well.
                let proof = #"[{"store":"app_store","kind":"order_id","value":"MFORGED0001"}]"#
                _ = try await at.world.restored("writer", proofs: proof, clientError: "7", setup: at.asking)
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).facts.contains("proof_failed"))
                #expect(try await at.evidence(ticket).lookups.contains { $0.isSubject && $0.store == "app_store" })
            }
        }
    }

    @Test func `An agent says which of a claimant's purchases is meant, and no silent store takes that away`()
        async throws
    {
        try await world { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open(nil)
                for id in [Self.order, Self.play] { try await at.name(id, for: ticket) }
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).facts.contains("purchase_unknown"))
                func subject() async throws -> String? {
                    try await at.evidence(ticket).lookups.first { $0.isSubject }?.store
                }
                // One of two that a silent store leaves is not the one that is meant.
                try await at.world.inject(#"{"endpoint":"google_play.order","status":500}"#)
                try await at.scene.collect(ticket)
                #expect(try await subject() == nil)
                try await at.world.heal()
                try await at.note(Self.play, for: ticket)
                try await at.scene.collect(ticket)
                #expect(try await subject() == "google_play")
                try await at.note("MFORGED0001", for: ticket)
                try await at.scene.collect(ticket)
                #expect(try await subject() == "google_play", "what leads nowhere changes nothing")
                try await at.note(Self.order, for: ticket)
                try await at.world.inject(#"{"endpoint":"app_store.lookup","status":500}"#)
                try await at.scene.collect(ticket)
                #expect(try await subject() == "google_play")
                try await at.world.heal()
                // A store that was silent is asked again in a moment, not at once.
                for _ in 0..<20 where try await subject() != "app_store" {
                    try await Task.sleep(for: .milliseconds(300))
                    try await at.scene.collect(ticket)
                }
                #expect(try await subject() == "app_store")
            }
        }
    }

    @Test func `139: a case that people have agreed to closes, whoever named the purchase`() async throws {
        try await world { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open(Self.order)
                try await at.scene.collect(ticket)
                #expect(try await at.scene.act(at.scene.bea, .claim, on: ticket) == nil)
                #expect(try await at.scene.approve(at.scene.bea, ticket) == nil)
                try await at.world.pool.query(
                    """
                    UPDATE entitlement_sync.purchase AS p SET owner_key = t.claimant_key
                      FROM entitlement_sync.ticket AS t WHERE t.id = \(ticket) AND p.id = t.subject_id
                    """
                )
                try await at.scene.collect(ticket)
                #expect(try await at.scene.state(ticket) == "auto_resolved")
            }
        }
    }

    @Test func `Agents name so many numbers for a ticket, and none that no mail has`() async throws {
        try await world { at in
            let ticket = try await at.open("number-0")
            for number in 1..<10 { #expect(try await at.open("number-\(number)") == ticket) }
            await expectRefusal("22023") { _ = try await at.open("number-10") }
            #expect(try await at.open("number-9") == ticket, "known ones are no further ones")
            for bad in ["", "with blanks", String(repeating: "7", count: 256)] {
                await expectRefusal("22023") { try await at.note(bad, for: ticket) }
            }
            _ = try await Erasure(pool: at.world.pool).erase("writer")
            try await at.note("later", for: ticket)
            #expect(try await at.world.number("SELECT count(*) FROM entitlement_sync.ticket_reported_id") == 0)
            #expect(
                try await at.world.number(
                    "SELECT count(*) FROM entitlement_sync.ticket AS t WHERE t.original_id IS NOT NULL"
                ) == 0,
                "it stood in the ticket as well"
            )
        }
    }

    @Test func `A number that was known when the ticket was opened closes nobody's case either`() async throws {
        try await world { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open("2000000100000001")
                #expect(
                    try await at.world.number(
                        "SELECT count(*) FROM entitlement_sync.ticket AS t WHERE t.purchase_id IS NOT NULL"
                    ) == 1
                )
                try await at.world.pool.query(
                    """
                    UPDATE entitlement_sync.purchase AS p SET owner_key = t.claimant_key
                      FROM entitlement_sync.ticket AS t WHERE t.id = \(ticket) AND p.id = t.purchase_id
                    """
                )
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).facts.contains("owned_by_claimant"))
                #expect(try await at.scene.state(ticket) == "new")
            }
        }
    }

    @Test func `What was typed long ago is forgotten, also where it stands in the ticket`() async throws {
        try await world { at in
            let ticket = try await at.open("Somebody.Real@example.com")
            try await at.world.pool.query(
                "SELECT entitlement_sync.move_ticket(\(ticket), 'expire')"
            )
            let claims: PostgresQuery = "SELECT count(*) FROM entitlement_sync.ticket_reported_id"
            for change in [
                "UPDATE entitlement_sync.ticket_reported_id SET at = at - interval '91 days'",
                "UPDATE entitlement_sync.ticket_reported_id SET at = now()",
            ] {
                try await at.world.pool.query(PostgresQuery(rawSQL: change))
                try await at.world.pool.query("SELECT entitlement_sync.forget_questions()")
                #expect(try await at.world.number(claims) == 1, "one of the two is no quarter of a year ago")
                try await at.world.pool.query(
                    "UPDATE entitlement_sync.ticket SET closed_at = now() - interval '91 days'"
                )
            }
            try await at.world.pool.query("UPDATE entitlement_sync.ticket_reported_id SET at = at - interval '91 days'")
            try await at.world.pool.query("SELECT entitlement_sync.forget_questions()")
            #expect(try await at.world.number(claims) == 0)
            _ = try await Erasure(pool: at.world.pool).erase("writer")
            #expect(
                try await at.world.number(
                    "SELECT count(*) FROM entitlement_sync.ticket AS t WHERE t.id = \(ticket) AND t.original_id IS NULL"
                ) == 1
            )
        }
    }

    @Test func `A number alone closes nobody's case, however the purchase stands`() async throws {
        try await world { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open(Self.order)
                try await at.scene.collect(ticket)
                #expect(!(try await at.evidence(ticket).facts.contains("purchase_unknown")))
                try await at.world.pool.query(
                    """
                    UPDATE entitlement_sync.purchase AS p SET owner_key = t.claimant_key
                      FROM entitlement_sync.ticket AS t WHERE t.id = \(ticket) AND p.id = t.subject_id
                    """
                )
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).facts.contains("owned_by_claimant"))
                #expect(try await at.scene.state(ticket) == "new")
            }
        }
    }

    @Test(arguments: [order, play, "2000000100000001"])
    func `An order says which purchase is meant, and proves nothing about who named it`(_ id: String) async throws {
        try await world { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open(id)
                try await at.scene.collect(ticket)
                let evidence = try await at.evidence(ticket)
                let store = id.hasPrefix("GPA") ? "google_play" : "app_store"
                let found = try #require(evidence.lookups.first { $0.store == store })
                #expect(found.result == .found && found.isSubject && found.purchases.count == 1)
                #expect(evidence.facts.isDisjoint(with: ["purchase_unknown", "proof_verified", "proof_failed"]))
                #expect(evidence.suggested != "transfer")
                let owner = try await at.world.texts(
                    """
                    SELECT u.user_id FROM entitlement_sync.ticket AS t
                      JOIN entitlement_sync.user_sync AS u ON u.user_key = t.owner_key WHERE t.id = \(ticket)
                    """
                )
                #expect(owner == ["owner"])
            }
        }
    }

    @Test func `A purchase of the claimant's own is shown, and does not close the case`() async throws {
        try await world { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open("MFORGED0001", by: "owner")
                try await at.name(Self.order, for: ticket)
                try await at.scene.collect(ticket)
                let evidence = try await at.evidence(ticket)
                let found = try #require(evidence.lookups.first { $0.result == .found })
                #expect(!found.isSubject && found.purchases.count == 1)
                #expect(evidence.facts.contains("purchase_unknown"))
                #expect(try await at.scene.state(ticket) == "new")
            }
        }
    }

    @Test func `Of a claimant's cases one alone is about a purchase, and of two purchases none is meant`() async throws
    {
        try await world { at in
            let proof = try at.world.transactionProof("2000000100000001")
            _ = try await at.world.restored("writer", proofs: proof, setup: at.asking)
            try await at.world.working(at.setup) {
                let ticket = try await at.open(Self.order)
                #expect(ticket != 1)
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).facts.contains("purchase_unknown"))
                try await at.name(Self.play, for: ticket)
                try await at.scene.collect(ticket)
                let evidence = try await at.evidence(ticket)
                #expect(evidence.lookups.filter { $0.result == .found }.count == 2)
                #expect(evidence.facts.contains("purchase_unknown"))
            }
        }
    }

    @Test func `151: an order that the App Store calls invalid with status 200 is no outage`() async throws {
        try await world { at in
            try await at.world.working(at.setup) {
                let path = "GET /app-store/inApps/v1/lookup/{id}"
                let before = at.world.asked(path)
                let ticket = try await at.open("MNOTHERE99")
                try await at.scene.collect(ticket)
                let evidence = try await at.evidence(ticket)
                #expect(evidence.lookups.map(\.store) == ["app_store"])
                #expect(evidence.lookups.map(\.result) == [.unknown])
                #expect(at.world.asked(path) > before)
                let errors = try await at.world.number(
                    "SELECT count(*) FROM entitlement_sync.evidence_request AS r WHERE r.error IS NOT NULL"
                )
                #expect(errors == 0)
                let alarms = try await at.world.alarms()
                #expect(alarms.isEmpty, "\(alarms)")
            }
        }
    }

    @Test func `152: an order of the sandbox can't be looked up, which is said and held against nobody`() async throws {
        try await world { at in
            try await at.world.pool.query(
                "INSERT INTO entitlement_sync.sandbox_user (user_id, until) VALUES ('writer', now() + interval '1 day')"
            )
            try await at.world.working(at.setup) {
                let ticket = try await at.open("MSANDBOX01")
                try await at.scene.collect(ticket)
                let evidence = try await at.evidence(ticket)
                #expect(evidence.lookups.map(\.result) == [.lookupImpossible])
                #expect(evidence.lookups.map(\.obstacle) == [.sandbox])
                #expect(!evidence.facts.contains("proof_failed"))
                // One of production is found for a tester as well.
                try await at.note(Self.order, for: ticket)
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).lookups.contains { $0.result == .found && $0.isSubject })
            }
        }
    }
}

/// A world in which support looks ids up.
struct LookupCase: Sendable {
    var scene: DeskCase
    var setup: WorkerSetup

    var world: World { scene.world }

    /// The same stores for a worker that does nothing for the desk.
    var asking: WorkerSetup {
        var asking = setup
        asking.servesDesk = false
        return asking
    }

    func open(_ order: String?, by claimant: String = "writer") async throws -> Int64 {
        try #require(
            try await scene.tickets(scene.ann).open(claimant: claimant, orderID: order, reason: "wrote a mail")
        )
    }

    /// Has an agent give another order's number for a ticket.
    func note(_ order: String, for ticket: Int64) async throws {
        try await world.pool.query(
            "SELECT entitlement_sync.note_order(\(PostgresBytes(scene.ann.token.digest)), \(ticket), \(order))"
        )
    }

    /// Has another order looked up for a ticket, as when somebody writes again.
    func name(_ order: String, for ticket: Int64) async throws {
        try await world.pool.query(
            """
            INSERT INTO entitlement_sync.ticket_reported_id (ticket_id, kind, value, by_claimant)
            VALUES (\(ticket), 'order_id', \(order), true)
            """
        )
    }

    struct Evidence: Sendable {
        var facts: Set<String>
        var approvals: Int
        var suggested: String?
        var document: String
        var hash: [UInt8]
        var lookups: [CaseLookup]
    }

    /// What the desk shows.
    func evidence(_ ticket: Int64) async throws -> Evidence {
        struct Document: Decodable { var lookups: [CaseLookup] }
        let rows = try await world.pool.query(
            """
            SELECT array_to_string(e.facts, ' '), e.approvals, e.suggested, e.document::text, e.hash
              FROM entitlement_sync.ticket AS t
              JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id WHERE t.id = \(ticket)
            """
        )
        let (facts, approvals, suggested, document, hash) = try #require(rows.first).decode(
            String.self,
            Int16.self,
            String?.self,
            String.self,
            PostgresBytes.self
        )
        return Evidence(
            facts: Set(facts.split(separator: " ").map(String.init)),
            approvals: Int(approvals),
            suggested: suggested,
            document: document,
            hash: hash.bytes,
            lookups: try JSONDecoder().decode(Document.self, from: Data(document.utf8)).lookups
        )
    }
}
