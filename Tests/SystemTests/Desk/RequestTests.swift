import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// Evidence that is asked for again while somebody collects it.
@Suite struct RequestTests {
    private static let due: PostgresQuery =
        "SELECT count(*) FROM entitlement_sync.evidence_request WHERE due_at <= clock_timestamp()"

    /// Keeps evidence whose collection has begun at a moment.
    private func keep(_ ticket: Int64, askedAt moment: String, in world: World) async throws {
        try await world.pool.query(
            """
            SELECT entitlement_sync.keep_evidence(
                       \(ticket), \(moment)::timestamptz, sha256('x'), '{}', 'none', NULL, 'no_proof', 2::smallint, '{}', 0, 60,
                       '{}', t.owner_key)
              FROM entitlement_sync.ticket AS t WHERE t.id = \(ticket)
            """
        )
    }

    private func now(_ world: World) async throws -> String {
        try #require(try await world.texts("SELECT clock_timestamp()::text").first)
    }

    @Test func `What is asked for meanwhile is collected once more, whenever its transaction began`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let records = CaseRecords(pool: world.pool)
            try await world.pool.query(
                "SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t"
            )
            #expect(try await records.take(upTo: 10) == [ticket])
            #expect(try await records.take(upTo: 10).isEmpty, "one at a time")
            try await keep(ticket, askedAt: now(world), in: world)
            #expect(try await world.number(Self.due) == 0)

            try await world.pool.query(
                "SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t"
            )
            #expect(try await records.take(upTo: 10) == [ticket])
            let asked = try await now(world)
            #expect(try await scene.reply("claimant", "look again") == .taken)
            try await keep(ticket, askedAt: asked, in: world)
            #expect(try await world.number(Self.due) == 1)
            #expect(try await records.take(upTo: 10) == [ticket], "at once")

            // A request that had begun before the reading, and was seen by nobody until it was over.
            let late = try await world.pool.withTransaction { connection in
                _ = try await connection.query(
                    "SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t"
                )
                return try await now(world)
            }
            try await keep(ticket, askedAt: late, in: world)
            #expect(try await world.number(Self.due) == 1)
        }
    }

    @Test func `A ticket that is refused while its first evidence is collected stays refused`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let before = try await now(world)
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            #expect(try await scene.act(scene.ann, .refuse(how: "refuse", words: nil), on: ticket) == nil)
            try await keep(ticket, askedAt: before, in: world)
            #expect(try await scene.state(ticket) == "refused")
        }
    }

    @Test func `A ticket that was refused without evidence is opened again by what is asked for later`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            #expect(try await scene.act(scene.ann, .refuse(how: "refuse", words: nil), on: ticket) == nil)
            try await keep(ticket, askedAt: now(world), in: world)
            #expect(try await scene.state(ticket) == "new")
        }
    }

    @Test func `What a worker finds that was given up answers no request that another has taken`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let records = CaseRecords(pool: world.pool)
            try await world.pool.query(
                "SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t"
            )
            #expect(try await records.take(upTo: 10) == [ticket])
            let slow = try await now(world)
            try await world.pool.query(
                "UPDATE entitlement_sync.evidence_request SET taken_at = taken_at - interval '121 seconds'"
            )
            #expect(try await scene.reply("claimant", "look again") == .taken)
            #expect(try await records.take(upTo: 10) == [ticket])
            try await keep(ticket, askedAt: slow, in: world)
            #expect(try await world.number(Self.due) == 1, "the second may yet die")
            #expect(try await records.take(upTo: 10).isEmpty, "and has it")
            try await keep(ticket, askedAt: now(world), in: world)
            #expect(try await world.number(Self.due) == 0)
        }
    }

    @Test func `Who gives a ticket back, or puts it off, has it no more`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let records = CaseRecords(pool: world.pool)
            try await world.pool.query(
                "SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t"
            )
            #expect(try await records.take(upTo: 10) == [ticket])
            try await records.release(ticket)
            #expect(try await records.take(upTo: 10) == [ticket])
            try await records.putOff(ticket, for: .milliseconds(1), error: "store_unavailable")
            try await world.waitUntil(Self.due)
            #expect(try await records.take(upTo: 10) == [ticket])
        }
    }
}
