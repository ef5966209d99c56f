import Entitlements
import Postgres
import SupportDesk
import TestSupport
import Testing

/// Which purchase a case is about, as the ids that were reported for it lead to one.
@Suite struct LookupSubjectTests {
    @Test(arguments: [LookupCase.order, LookupCase.play, "2000000100000001"])
    func `An order says which purchase is meant, and proves nothing about who named it`(_ id: String) async throws {
        try await LookupCase.with { at in
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
        try await LookupCase.with { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open("MFORGED0001", by: "owner")
                try await at.name(LookupCase.order, for: ticket)
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
        try await LookupCase.with { at in
            let proof = try at.world.transactionProof("2000000100000001")
            _ = try await at.world.restored("writer", proofs: proof, setup: at.asking)
            try await at.world.working(at.setup) {
                let ticket = try await at.open(LookupCase.order)
                #expect(ticket != 1)
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).facts.contains("purchase_unknown"))
                try await at.name(LookupCase.play, for: ticket)
                try await at.scene.collect(ticket)
                let evidence = try await at.evidence(ticket)
                #expect(evidence.lookups.filter { $0.result == .found }.count == 2)
                #expect(evidence.facts.contains("purchase_unknown"))
            }
        }
    }

    @Test func `An agent says which of a claimant's purchases is meant, and no silent store takes that away`()
        async throws
    {
        try await LookupCase.with { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open(nil)
                for id in [LookupCase.order, LookupCase.play] { try await at.name(id, for: ticket) }
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
                try await at.note(LookupCase.play, for: ticket)
                try await at.scene.collect(ticket)
                #expect(try await subject() == "google_play")
                try await at.note("MFORGED0001", for: ticket)
                try await at.scene.collect(ticket)
                #expect(try await subject() == "google_play", "what leads nowhere changes nothing")
                try await at.note(LookupCase.order, for: ticket)
                try await at.world.inject(#"{"endpoint":"app_store.lookup","status":500}"#)
                try await at.scene.collect(ticket)
                #expect(try await subject() == "google_play")
                try await at.world.heal()
                // A store that was silent is asked again within seconds, not at once.
                try await eventually("the order that the agent gave is not found", within: .seconds(10)) {
                    try await at.scene.collect(ticket)
                    return try await subject() == "app_store"
                }
            }
        }
    }

    @Test func `What people have agreed to outlasts a store that does not say what an id leads to`() async throws {
        try await LookupCase.with { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open(LookupCase.order)
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

    @Test func `139: a case that people have agreed to closes, whoever named the purchase`() async throws {
        try await LookupCase.with { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open(LookupCase.order)
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

    @Test func `A number that was known when the ticket was opened closes nobody's case either`() async throws {
        try await LookupCase.with { at in
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

    @Test func `A number alone closes nobody's case, however the purchase stands`() async throws {
        try await LookupCase.with { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open(LookupCase.order)
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
}
