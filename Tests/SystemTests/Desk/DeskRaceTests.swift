import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What two do at once, or somebody does in the middle of it.
@Suite struct DeskRaceTests {
    /// Two approved tickets of two claimants about one purchase.
    private static func two(
        _ body: @Sendable (DeskCase, (Int64, Int64)) async throws -> Void
    ) async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.add("other")
            let second = try #require(
                try await scene.tickets(scene.ann)
                    .open(claimant: "other", orderID: "200000070000001", reason: "wrote a mail")
            )
            try await world.working(scene.setup) {
                for ticket in [ticket, second] {
                    try await scene.collect(ticket)
                    try await scene.approveAll(ticket)
                }
            }
            try await body(scene, (ticket, second))
        }
    }

    /// Does two things at once: the first has done its own, and commits when the second waits for it.
    private static func beside(
        _ scene: DeskCase,
        _ first: PostgresQuery,
        _ second: PostgresQuery
    ) async throws -> (String?, String?) {
        let world = scene.world
        return try await world.pool.withTransaction { connection in
            let answer = try await connection.query(first).first?.decode(String?.self, at: 0)
            async let later = world.pool.query(second).first?.decode(String?.self, at: 0)
            try await world.waitUntilBlocked("the second does not wait")
            try await connection.execute(script: "COMMIT; BEGIN")
            return (answer, try await later)
        }
    }

    @Test func `136: of two transfers of what nobody owns one begins, and the other is told why not`() async throws {
        try await Self.two { scene, tickets in
            let pool = scene.world.pool
            try await pool.query("UPDATE entitlement_sync.purchase SET owner_key = NULL")
            try await pool.query("UPDATE entitlement_sync.ticket SET owner_key = NULL")
            let (first, second) = try await Self.beside(
                scene,
                "SELECT entitlement_sync.begin_transfer(\(PostgresBytes(scene.bea.token.digest)), \(tickets.0))",
                "SELECT entitlement_sync.begin_transfer(\(PostgresBytes(scene.cid.token.digest)), \(tickets.1))"
            )
            #expect(first == nil && second == "busy")
            // The one that waits is as it was.
            let states = try await [scene.state(tickets.0), scene.state(tickets.1)]
            #expect(Set(states) == ["approved", "executing"])
            #expect(
                try await scene.world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.operator_event AS e
                     WHERE e.kind = 'refused' AND e.detail ->> 'reason' = 'busy'
                    """
                ) == 1
            )
        }
    }

    @Test func `Nothing is given to an account that was erased after the transfer was allowed`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
            }
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            let transfers = Transfers(pool: world.pool)
            let due = try #require(try await transfers.take(upTo: 1).first)
            #expect(try await transfers.goOn(due, on: scene.evidenceAnew(ticket), moving: []) == .given)
            _ = try await Erasure(pool: world.pool).erase("claimant")
            #expect(try await transfers.settle(due) == .tooLate)
            let owners = try await world.texts(
                """
                SELECT u.user_id FROM entitlement_sync.purchase AS p
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key
                """
            )
            #expect(owners == ["owner"])
            // A worker finds that there is nobody to give it to.
            try await world.pool.query("UPDATE entitlement_sync.transfer SET due = now()")
            try await world.working(scene.setup) { try await scene.untilEnded(ticket) }
            #expect(try await world.texts("SELECT x.step FROM entitlement_sync.transfer AS x") == ["stopped"])
        }
    }

    @Test func `Of two cases that are refused at once the owner hears that it is over`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.add("other")
            let second = try #require(
                try await scene.tickets(scene.ann)
                    .open(claimant: "other", orderID: "200000070000001", reason: "wrote a mail")
            )
            for ticket in [ticket, second] {
                try await world.working(scene.patient) { try await scene.collect(ticket) }
                try await scene.askOwner(ticket)
            }
            for (person, ticket) in [(scene.bea, ticket), (scene.cid, second)] {
                #expect(try await scene.act(person, .refresh, on: ticket) == nil)
            }
            func refusal(_ person: DeskPeople.Person, _ ticket: Int64) -> PostgresQuery {
                "SELECT entitlement_sync.refuse_ticket(\(PostgresBytes(person.token.digest)), \(ticket), 'refuse', NULL)"
            }
            let (one, two) = try await Self.beside(scene, refusal(scene.bea, ticket), refusal(scene.cid, second))
            #expect(one == nil && two == nil)
            #expect(try await scene.news("owner").last == "ticket.decided owner refused")
            #expect(try await scene.news("owner").count { $0.hasPrefix("ticket.decided") } == 1)
        }
    }

    @Test func `A claimant has no two cases about one purchase, whoever finds out which it is`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let second = try #require(
                try await scene.tickets(scene.ann).open(claimant: "claimant", orderID: nil, reason: "wrote a mail")
            )
            #expect(second != ticket)
            try await world.pool.query(
                "UPDATE entitlement_sync.ticket SET original_id = '200000070000001' WHERE id = \(second)"
            )
            #expect(try await CaseRecords(pool: world.pool).namePurchase(of: second))
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.ticket AS t WHERE t.subject_id IS NOT NULL"
                )
                    == 0
            )
            // Nor one about what is theirs already, because an agent typed its number.
            try await world.pool.query("SELECT entitlement_sync.move_ticket(\(ticket), 'cause_gone')")
            try await world.pool.query(
                """
                UPDATE entitlement_sync.purchase AS p SET owner_key = t.claimant_key
                  FROM entitlement_sync.ticket AS t WHERE t.id = \(second)
                """
            )
            #expect(try await CaseRecords(pool: world.pool).namePurchase(of: second))
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.ticket AS t WHERE t.subject_id IS NOT NULL"
                )
                    == 0
            )
        }
    }
}
