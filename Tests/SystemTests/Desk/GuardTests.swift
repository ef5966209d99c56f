import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing

/// What the database itself does not let happen, whoever asks it: each guard alone, without those that stand before it.
@Suite struct GuardTests {
    /// A case whose transfer is begun, and a worker that has taken it up.
    private static func begun(
        _ body: @Sendable (DeskCase, Int64, Transfers, Transfers.Due) async throws -> Void
    ) async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
            }
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            let transfers = Transfers(pool: scene.world.pool)
            let due = try #require(try await transfers.take(upTo: 1).first)
            try await body(scene, ticket, transfers, due)
        }
    }

    private static func steps(_ world: World) async throws -> [String] {
        try await world.texts("SELECT s.step FROM entitlement_sync.transfer_step AS s ORDER BY s.id")
    }

    // MARK: The saga

    @Test func `141: a call of which nobody knows what came is given ten minutes before another`() async throws {
        try await Self.begun { scene, ticket, transfers, due in
            func goOn() async throws -> Transfers.Leave {
                try await transfers.goOn(due, on: scene.evidenceAnew(ticket), moving: ["sub"])
            }
            #expect(try await goOn() == .given)
            #expect(try await transfers.settleCall(due, hasMoved: false, isRefused: false) == .begun)
            #expect(try await goOn() == .later("unsettled"))
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.transfer SET called_at = called_at - interval '9 minutes'"
            )
            #expect(try await goOn() == .later("unsettled"))
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.transfer SET called_at = called_at - interval '1 minute'"
            )
            #expect(try await goOn() == .given)
            // What RevenueCat refused is on its way nowhere.
            #expect(try await transfers.settleCall(due, hasMoved: false, isRefused: true) == .begun)
            #expect(try await goOn() == .given)
            #expect(try await scene.calls() == 3)
            let steps = ["calling", "not_moved", "calling", "not_moved", "calling"]
            #expect(try await Self.steps(scene.world) == steps)
        }
    }

    @Test(arguments: [false, true])
    func `60: what a list told of fraud after the evidence was collected stops the transfer`(isAlong: Bool) async throws
    {
        try await Self.begun { scene, ticket, transfers, due in
            let world = scene.world
            let fresh = try await scene.evidenceAnew(ticket)
            // The name of another one, by which RevenueCat calls it.
            try await world.pool.query(
                """
                WITH other AS (
                    INSERT INTO entitlement_sync.purchase (id, observed_at, source, store, environment, kind, status, ownership,
                                                           owner_rule)
                    SELECT p.id + 1000, p.observed_at, p.source, p.store, p.environment, p.kind, p.status, p.ownership, p.owner_rule
                      FROM entitlement_sync.purchase AS p JOIN entitlement_sync.transfer AS x ON x.purchase_id = p.id
                    RETURNING id
                )
                INSERT INTO entitlement_sync.purchase_identifier (value, store, environment, kind, purchase_id)
                SELECT 'sub', 'revenuecat', 'production', 'revenuecat_id', o.id FROM other AS o
                """
            )
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.chargeback (purchase_id, at)
                SELECT CASE WHEN \(isAlong) THEN i.purchase_id ELSE x.purchase_id END, now()
                  FROM entitlement_sync.transfer AS x CROSS JOIN entitlement_sync.purchase_identifier AS i
                 WHERE i.value = 'sub'
                """
            )
            #expect(try await transfers.goOn(due, on: fresh, moving: ["sub"]) == .stopped("hindrance"))
            #expect(try await Self.steps(world) == ["stopped"])
        }
    }

    @Test func `60: whoever agrees after a list told of fraud, on evidence of before, is refused`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) { try await scene.collect(ticket) }
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            #expect(try await scene.act(scene.ann, .release, on: ticket) == nil)
            try await scene.world.pool.query(
                "INSERT INTO entitlement_sync.chargeback (purchase_id, at) SELECT p.id, now() FROM entitlement_sync.purchase AS p"
            )
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.bea, ticket) == "hindrance")
            let asked = try await scene.world.number(
                """
                SELECT (SELECT count(*) FROM entitlement_sync.owner_window WHERE asked_at IS NOT NULL)
                     + (SELECT count(*) FROM entitlement_sync.evidence_request WHERE due_at IS NULL)
                """
            )
            #expect(asked == 0, "the owner is asked nothing, and the evidence is due")
        }
    }

    @Test func `142: a worker whose turn is over begins nothing and records nothing`() async throws {
        try await Self.begun { scene, ticket, transfers, late in
            try await scene.world.pool.query("UPDATE entitlement_sync.transfer SET due = now()")
            let due = try #require(try await transfers.take(upTo: 1).first)
            #expect(try await transfers.goOn(late, on: scene.evidenceAnew(ticket), moving: ["sub"]) == .later("step"))
            #expect(try await transfers.goOn(due, on: scene.evidenceAnew(ticket), moving: ["sub"]) == .given)
            #expect(try await transfers.settleCall(late, hasMoved: true, isRefused: false) == .calling)
            #expect(try await transfers.settleCall(late, hasMoved: false, isRefused: true) == .calling)
            #expect(try await Self.steps(scene.world) == ["calling"])
            #expect(try await transfers.settleCall(due, hasMoved: true, isRefused: false) == .confirmed)
        }
    }

    @Test func `142: what a reading showed is recorded of a call that is open, once`() async throws {
        try await Self.begun { scene, ticket, transfers, due in
            // Nobody has called.
            #expect(try await transfers.settleCall(due, hasMoved: true, isRefused: false) == .begun)
            #expect(try await transfers.goOn(due, on: scene.evidenceAnew(ticket), moving: ["sub"]) == .given)
            #expect(try await transfers.settleCall(due, hasMoved: false, isRefused: false) == .begun)
            #expect(try await transfers.settleCall(due, hasMoved: false, isRefused: true) == .begun)
            let waits = try await scene.world.number(
                "SELECT count(*) FROM entitlement_sync.transfer AS x WHERE x.called_at IS NOT NULL"
            )
            #expect(waits == 1, "the call is still given its time")
            // It has done its work after all.
            #expect(try await transfers.settleCall(due, hasMoved: true, isRefused: false) == .confirmed)
            #expect(try await transfers.settleCall(due, hasMoved: false, isRefused: false) == .confirmed)
            #expect(try await Self.steps(scene.world) == ["calling", "not_moved", "confirmed"])
            #expect(try await transfers.settle(due) == .done(1))
            #expect(try await transfers.settleCall(due, hasMoved: false, isRefused: false) == .done)
            #expect(try await transfers.settle(due) == .done(0))
        }
    }

    @Test func `L9: a transfer goes on with evidence that was collected after its beginning, and a moment ago`()
        async throws
    {
        try await Self.begun { scene, ticket, transfers, due in
            let old = try await scene.world.number("SELECT t.evidence_id FROM entitlement_sync.ticket AS t")
            #expect(try await transfers.goOn(due, on: old, moving: ["sub"]) == .later("step"))
            let fresh = try await scene.evidenceAnew(ticket)
            #expect(try await transfers.goOn(due, on: old, moving: ["sub"]) == .later("step"))
            try await scene.world.pool.query(
                """
                ALTER TABLE entitlement_sync.ticket_evidence DISABLE TRIGGER append_only
                """
            )
            try await scene.world.pool.query(
                """
                UPDATE entitlement_sync.ticket_evidence SET collected_at = collected_at - interval '5 minutes'
                 WHERE id = \(fresh)
                """
            )
            #expect(try await transfers.goOn(due, on: fresh, moving: ["sub"]) == .later("step"))
            #expect(try await transfers.goOn(due, on: scene.evidenceAnew(ticket), moving: ["sub"]) == .given)
        }
    }

    @Test func `L9: what is carried out without a call was allowed a moment ago`() async throws {
        try await Self.begun { scene, ticket, transfers, due in
            #expect(try await transfers.goOn(due, on: scene.evidenceAnew(ticket), moving: []) == .given)
            try await scene.world.pool.query("ALTER TABLE entitlement_sync.transfer_step DISABLE TRIGGER append_only")
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.transfer_step SET at = at - interval '5 minutes'"
            )
            #expect(try await transfers.settle(due) == .tooLate)
            #expect(try await scene.state(ticket) == "executing")
            #expect(try await transfers.goOn(due, on: scene.evidenceAnew(ticket), moving: []) == .given)
            #expect(try await transfers.settle(due) == .done(1))
            #expect(try await scene.state(ticket) == "transferred")
        }
    }

    @Test func `One transfer at a time for a purchase, and for whom it is taken from`() async throws {
        try await Self.begun { scene, ticket, _, _ in
            let pool = scene.world.pool
            try await pool.query(
                """
                INSERT INTO entitlement_sync.ticket (claimant_key, kind, visible)
                SELECT t.claimant_key, t.kind, false FROM entitlement_sync.ticket AS t WHERE t.id = \(ticket)
                """
            )
            for (from, purchase) in [("x.from_key", "0"), ("0", "x.purchase_id")] {
                await expectRefusal(SQLState.uniqueViolation) {
                    try await pool.query(
                        PostgresQuery(
                            rawSQL: """
                                INSERT INTO entitlement_sync.transfer (ticket_id, from_key, to_key, purchase_id, begun_by)
                                SELECT (SELECT max(id) FROM entitlement_sync.ticket), \(from), x.to_key, \(purchase), x.begun_by
                                  FROM entitlement_sync.transfer AS x
                                """
                        )
                    )
                }
            }
        }
    }

    // MARK: Approvals

    /// What makes an approval count no more, without the trigger that ends it at once.
    @Test(arguments: [
        // Gone, and back.
        [
            "UPDATE entitlement_sync.operator SET role = 'agent' WHERE name = 'bea'",
            "UPDATE entitlement_sync.operator SET role = 'approver' WHERE name = 'bea'",
        ],
        [
            "UPDATE entitlement_sync.operator SET disabled_at = now() WHERE name = 'bea'",
            "UPDATE entitlement_sync.operator SET lost_at = NULL WHERE name = 'bea'",
        ],
        [
            "UPDATE entitlement_sync.operator SET held_until = now() + interval '1 day' WHERE name = 'bea'",
            "UPDATE entitlement_sync.operator SET lost_at = NULL WHERE name = 'bea'",
        ],
        [
            "UPDATE entitlement_sync.operator SET role = 'agent' WHERE name = 'bea'",
            "UPDATE entitlement_sync.operator SET lost_at = NULL WHERE name = 'bea'",
        ],
        [
            "INSERT INTO entitlement_sync.operator_account SELECT o.id, t.claimant_key FROM entitlement_sync.operator AS o, entitlement_sync.ticket AS t WHERE o.name = 'bea'"
        ],
    ])
    func `146: what was agreed to counts by the operator of this moment`(_ changes: [String]) async throws {
        try await DeskCase.with { scene, ticket in
            let pool = scene.world.pool
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
            }
            try await pool.query("ALTER TABLE entitlement_sync.operator DISABLE TRIGGER end_lost_approvals")
            for change in changes { try await pool.query(PostgresQuery(rawSQL: change)) }
            #expect(try await scene.act(scene.cid, .transfer, on: ticket) == "role_lost")
            #expect(try await scene.state(ticket) == "new")
        }
    }

    @Test func `146: what was agreed to ends in the moment in which the role is lost`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
            }
            try await scene.desk.operators.disable("bea", by: scene.admin.token.digest)
            let ended = try await scene.world.texts(
                """
                SELECT o.name || ' ' || coalesce(a.ended_by, 'counts') FROM entitlement_sync.ticket_approval AS a
                  JOIN entitlement_sync.operator AS o ON o.id = a.operator_id ORDER BY a.id
                """
            )
            #expect(ended == ["bea role_lost", "cid counts"])
        }
    }

    @Test func `L9: an approval is of the evidence that was looked at, and of no other`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                let old = try await scene.hash(ticket)
                try await scene.changeOwner(ends: "+60d")
                try await scene.collect(ticket)
                let new = try await scene.hash(ticket)
                #expect(old != new)
                #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
                for hash in [old, [], Array(new.dropLast()), new.map { ~$0 }] {
                    let said = try await scene.act(scene.bea, .approve(hash: hash, confirmed: []), on: ticket)
                    #expect(said == "evidence_changed")
                }
                #expect(try await scene.state(ticket) == "claimed")
                #expect(try await scene.act(scene.bea, .approve(hash: new, confirmed: []), on: ticket) == nil)
            }
        }
    }

    @Test func `L9: approvals are counted by people, whatever stands in the rows`() async throws {
        try await DeskCase.with { scene, ticket in
            let pool = scene.world.pool
            try await scene.world.working(scene.setup) { try await scene.collect(ticket) }
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.bea, ticket) == nil)
            await expectRefusal(SQLState.uniqueViolation) {
                try await pool.query(
                    """
                    INSERT INTO entitlement_sync.ticket_approval (ticket_id, operator_id, evidence_id, hash, expires_at)
                    SELECT a.ticket_id, a.operator_id, a.evidence_id, a.hash, a.expires_at
                      FROM entitlement_sync.ticket_approval AS a
                    """
                )
            }
            #expect(try await scene.state(ticket) == "needs_second")
        }
    }

    @Test func `The owner's no ends what was agreed to, and seniors alone may go on knowing of it`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let dan = try await scene.desk.enter("dan", .approver, by: scene.admin)
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                try await world.pool.query(
                    "SELECT entitlement_sync.note_objection(t.id) FROM entitlement_sync.ticket AS t"
                )
                #expect(try await scene.act(scene.cid, .transfer, on: ticket) == "owner_objected")
                #expect(try await scene.state(ticket) == "new")
                let ended = try await world.texts(
                    "SELECT DISTINCT a.ended_by FROM entitlement_sync.ticket_approval AS a"
                )
                #expect(ended == ["owner_objected"])
                try await scene.collect(ticket)
                #expect(try await scene.facts(ticket).contains("owner_objected"))
                #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
                #expect(try await scene.approve(scene.cid, ticket) == nil)
                #expect(try await scene.approve(dan, ticket) == "needs_senior")
            }
            #expect(try await scene.calls() == 0)
        }
    }

    @Test func `The owner's no stops a transfer that is on its way to its call`() async throws {
        try await Self.begun { scene, ticket, transfers, due in
            try await scene.world.pool.query(
                "SELECT entitlement_sync.note_objection(t.id) FROM entitlement_sync.ticket AS t"
            )
            let leave = try await transfers.goOn(due, on: scene.evidenceAnew(ticket), moving: ["sub"])
            #expect(leave == .stopped("owner_objected"))
            #expect(try await scene.state(ticket) == "new")
            #expect(try await scene.calls() == 0)
        }
    }
}

extension DeskCase {
    /// Evidence as fresh as a worker's own; where it is not `owned`, the stores name no owner any more.
    func evidenceAnew(_ ticket: Int64, owned: Bool = true) async throws -> Int64 {
        try await world.number(
            """
            SELECT entitlement_sync.keep_evidence(e.ticket_id, clock_timestamp(), e.hash, e.facts, e.hindrance, e.suggested,
                       e.reason, e.approvals, e.also_moves, 0, 86400, e.document::text,
                       CASE WHEN \(owned) THEN t.owner_key END)
              FROM entitlement_sync.ticket AS t JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id
             WHERE t.id = \(ticket)
            """
        )
    }
}
