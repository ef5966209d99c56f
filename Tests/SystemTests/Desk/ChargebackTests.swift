import Postgres
import SupportDesk
import TestSupport
import Testing

/// What was charged back is not transferred.
@Suite struct ChargebackTests {
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
}
