import Entitlements
import Foundation
import Postgres
import Queue
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// Transfers whose calls fail, get no answer, or are interrupted: exactly one or none, and never called twice blindly.
@Suite struct SagaTests {
    /// What goes wrong with RevenueCat's transfer, once.
    @Test(arguments: [
        // Carried out, and the answer is lost.
        #"{"endpoint":"transfer","connection":"reset_after","times":1}"#,
        #"{"endpoint":"transfer","status":503,"processed":true,"times":1}"#,
        #"{"endpoint":"transfer","body":"truncated","times":1}"#,
        #"{"endpoint":"transfer","connection":"drop_midway","times":1}"#,
        #"{"endpoint":"transfer","body":"html","times":1}"#,
        // Not carried out.
        #"{"endpoint":"transfer","connection":"drop_before","times":1}"#,
        #"{"endpoint":"transfer","status":503,"times":2}"#, #"{"endpoint":"transfer","status":423,"times":1}"#,
        #"{"endpoint":"transfer","status":429,"times":1}"#, #"{"endpoint":"transfer","status":422,"times":1}"#,
        // Around it.
        #"{"endpoint":"create_customer","status":503,"times":1}"#,
        #"{"endpoint":"subscriptions","customer":"claimant","status":500,"skip":2,"times":2}"#,
        #"{"endpoint":"find_subscriptions","status":500,"skip":1,"times":1}"#,
    ])
    func `141: whatever becomes of a call, what counts is where the purchases are`(_ fault: String) async throws {
        try await DeskCase.with(customers: [DeskCase.owner]) { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                try await world.inject(fault)
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await Self.untilEnded(scene, ticket)
                #expect(try await scene.state(ticket) == "transferred")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
            }
            #expect(try await Self.moved(world) == 1)
            try await Self.expectReadingsBetweenCalls(world)
        }
    }

    /// How a worker ends: after which step, and whether the call had done its work.
    enum End: CaseIterable { case beforeAll, beforeCall, afterCall, beforeSettling }

    @Test(arguments: End.allCases)
    func `142: a worker that ended after any step is followed by one that goes on from the records`(_ end: End)
        async throws
    {
        try await DeskCase.with(customers: [DeskCase.owner, "{id: claimant, state: none}"]) { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
            }
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            let transfers = Transfers(pool: world.pool)
            if end != .beforeAll {
                // As a worker goes, up to the step after which it ends.
                let due = try #require(try await transfers.take(upTo: 1).first)
                let evidence = try await scene.evidenceAnew(ticket)
                let moves = try await world.texts(
                    """
                    SELECT i.value FROM entitlement_sync.purchase_identifier AS i WHERE i.kind = 'revenuecat_id'
                    """
                )
                #expect(try await transfers.goOn(due, on: evidence, moving: moves) == .given)
                if end != .beforeCall { try await Self.move(world) }
                if end == .beforeSettling {
                    var called = due
                    called.calls = 1
                    #expect(try await transfers.settleCall(called, hasMoved: true, isRefused: false) == .confirmed)
                }
                // Its hold on the transfer ends.
                try await world.pool.query("UPDATE entitlement_sync.transfer SET due = now()")
            }
            try await world.working(scene.setup) {
                try await Self.untilEnded(scene, ticket)
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
            }
            #expect(try await scene.state(ticket) == "transferred")
            #expect(try await Self.moved(world) == 1)
            #expect(try await scene.calls() == (end == .beforeCall ? 2 : 1))
            try await Self.expectReadingsBetweenCalls(world)
        }
    }

    @Test func `172: a transfer whose steps can't be recorded is not called for, and access stays as it is`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
            }
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            try await world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE SEQUENCE tries;
                        CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$
                        BEGIN PERFORM nextval('public.tries'); RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$;
                        CREATE TRIGGER no_room BEFORE INSERT ON entitlement_sync.transfer_step
                            FOR EACH ROW EXECUTE FUNCTION no_room();
                        """
                )
            }
            try await world.working(scene.setup) {
                try await world.waitUntil("SELECT s.is_called::int FROM tries AS s", comment: "nothing was tried")
                #expect(try await Self.moved(world) == 0)
                #expect(try await world.type(of: "owner") == "subscriber")
                #expect(try await world.restored("owner").outcome == "already_subscriber")
                try await world.pool.query("DROP TRIGGER no_room ON entitlement_sync.transfer_step")
                try await world.pool.query("UPDATE entitlement_sync.transfer SET due = now()")
                try await Self.untilEnded(scene, ticket)
            }
            #expect(try await scene.state(ticket) == "transferred")
            #expect(try await Self.moved(world) == 1)
            try await Self.expectReadingsBetweenCalls(world)
        }
    }

    @Test func `A paused transfer begins only when it is resumed`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
            }
            try await world.controls.set("transfers", paused: true)
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "paused")
            try await world.controls.set("transfers", paused: false)
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            try await world.controls.set("transfers", paused: true)
            try await world.working(scene.setup) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.transfer AS x WHERE x.last_error = 'paused'"
                )
                #expect(try await scene.calls() == 0)
                try await world.controls.set("transfers", paused: false)
                try await scene.untilEnded(ticket)
            }
            #expect(try await scene.state(ticket) == "transferred")
        }
    }

    @Test func `Without a key for it nothing is approved`() async throws {
        try await DeskCase.with { scene, ticket in
            var setup = scene.setup
            setup.variables = ["TRANSFER_OWNER_HOURS": "0"]
            try await scene.world.working(setup) { try await scene.collect(ticket) }
            #expect(try await scene.facts(ticket) == ["key_missing"])
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.bea, ticket) == "hindrance")
        }
    }

    @Test func `A transfer that nobody allowed is carried into no records`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
            }
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            let transfer = try await world.number("SELECT max(x.id) FROM entitlement_sync.transfer AS x")
            func settle() async throws {
                try await world.pool.query("SELECT entitlement_sync.settle_transfer(\(transfer))")
            }
            await expectRefusal("55000") { try await settle() }
            // Even where somebody has written the step by hand.
            try await world.pool.query("UPDATE entitlement_sync.transfer SET step = 'confirmed'")
            await expectRefusal("55000") { try await settle() }
            for statement in [
                "UPDATE entitlement_sync.transfer SET step = 'confirmed'",
                "INSERT INTO entitlement_sync.ticket_approval (ticket_id, operator_id) VALUES (1, 1)",
                "UPDATE entitlement_sync.ticket SET state = 'transferred'",
                "UPDATE entitlement_sync.ticket_approval SET ended_at = NULL", "DELETE FROM entitlement_sync.ticket",
            ] {
                await expectRefusal(SQLState.insufficientPrivilege) {
                    try await world.pool.withTransaction { connection in
                        try await connection.query("SET LOCAL ROLE entitlement_sync_worker")
                        try await connection.query(PostgresQuery(rawSQL: statement))
                    }
                }
            }
        }
    }

    @Test(arguments: [true, false])
    func `A transfer that can't end by itself is ended by people, by a senior where a call was made`(_ called: Bool)
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
            }
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            if called {
                try await world.pool.query(
                    "UPDATE entitlement_sync.transfer SET step = 'calling', calls = 1, called_at = clock_timestamp()"
                )
                #expect(try await scene.act(scene.bea, .resolve(hasMoved: false), on: ticket) == "needs_senior")
                #expect(try await scene.act(scene.cid, .resolve(hasMoved: false), on: ticket) == "unsettled")
                try await world.pool.query(
                    "UPDATE entitlement_sync.transfer SET called_at = called_at - interval '10 minutes'"
                )
                #expect(try await scene.act(scene.cid, .resolve(hasMoved: false), on: ticket) == nil)
            } else {
                #expect(try await scene.act(scene.bea, .resolve(hasMoved: true), on: ticket) == "state")
                #expect(try await scene.act(scene.bea, .resolve(hasMoved: false), on: ticket) == nil)
            }
            #expect(try await scene.state(ticket) == "new")
            #expect(try await world.texts("SELECT x.step FROM entitlement_sync.transfer AS x") == ["stopped"])
            #expect(try await scene.act(scene.cid, .resolve(hasMoved: false), on: ticket) == "state")
            // And begins anew.
            try await world.working(scene.setup) {
                try await scene.transfer(ticket)
            }
            #expect(try await scene.state(ticket) == "transferred")
        }
    }

    // MARK: Parts

    /// Waits for the end of a transfer; what waits ten minutes for a call that may still do its work is given them.
    private static func untilEnded(_ scene: DeskCase, _ ticket: Int64) async throws {
        for _ in 0..<3 {
            try await scene.world.waitUntil(
                """
                SELECT count(*) FROM entitlement_sync.transfer AS x
                 WHERE x.ticket_id = \(ticket) AND (x.step IN ('done', 'stopped') OR x.last_error = 'unsettled')
                """,
                comment: "the transfer neither ended nor waits"
            )
            try await scene.world.pool.query(
                """
                UPDATE entitlement_sync.transfer
                   SET called_at = called_at - interval '10 minutes', due = now(), last_error = NULL
                 WHERE step NOT IN ('done', 'stopped') AND last_error = 'unsettled'
                """
            )
        }
        try await scene.untilEnded(ticket)
    }

    /// How many transfers RevenueCat has made.
    private static func moved(_ world: World) async throws -> Int {
        try await world.events().filter { $0 == "TRANSFER" }.count
    }

    /// Between two calls there is a reading, and it is on record.
    private static func expectReadingsBetweenCalls(_ world: World) async throws {
        let steps = try await world.texts("SELECT s.step FROM entitlement_sync.transfer_step AS s ORDER BY s.id")
        for (step, next) in zip(steps, steps.dropFirst()) where next == "calling" {
            #expect(step == "not_moved", "\(steps)")
        }
        #expect(steps.filter { $0 == "done" }.count == 1, "\(steps)")
    }

    /// Does what the call does.
    private static func move(_ world: World) async throws {
        let status = try await world.post(
            "/v2/projects/proj0a1b2c3d/customers/owner/actions/transfer",
            #"{"target_customer_id":"claimant"}"#,
            key: "sk_move"
        )
        #expect(status == 200)
    }
}
