import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// Owners who release a purchase to their other account.
@Suite struct ReleaseTests {
    @Test func `A release is the strongest evidence, and shortens the owner's time; people still decide`() async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let reference = try #require(try await scene.only("claimant").reference)
            try await world.working(scene.patient) {
                try await scene.collect(ticket)
                try await scene.askOwner(ticket)
                try await world.app.release(to: reference.lowercased(), by: "owner")
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.ticket AS t
                      JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id
                     WHERE 'owner_consented' = ANY (e.facts) AND e.suggested = 'transfer' AND e.reason = 'owner_consented'
                    """,
                    comment: "the evidence does not say that the owner released it"
                )
                // What was agreed to without knowing is void.
                try await world.waitUntil("SELECT count(*) FROM entitlement_sync.ticket WHERE state = 'new'")
                #expect(try await scene.events(ticket).contains("owner_consented"))
                try await scene.approveAll(ticket)
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
                #expect(try await scene.state(ticket) == "transferred")
            }
        }
    }

    @Test func `A release ends the time that runs, for the owner who is asked alone`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let reference = try #require(try await scene.only("claimant").reference)
            try await world.working(scene.patient) { try await scene.collect(ticket) }
            try await scene.askOwner(ticket)
            let running: PostgresQuery =
                "SELECT count(*) FROM entitlement_sync.owner_window WHERE ends_at > clock_timestamp()"
            try await world.app.release(to: reference, by: "claimant")
            #expect(try await world.number(running) == 1)
            try await world.app.release(to: reference, by: "owner")
            #expect(try await world.number(running) == 0)
            // Approvals are not skipped by it: what it changes is in no evidence yet that anybody agreed to.
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            try await world.working(scene.patient) { try await scene.untilEnded(ticket) }
            #expect(try await scene.calls() == 0)
            #expect(try await scene.state(ticket) == "new")
        }
    }

    @Test func `A reference that is right, wrong or somebody else's is answered alike, and only the right one counts`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.add("stranger")
            let reference = try #require(try await scene.only("claimant").reference)
            let released: PostgresQuery = "SELECT entitlement_sync.has_owner_consent(\(ticket))::int::bigint"
            try await world.app.release(to: "R-0000-00", by: "owner")
            try await world.app.release(to: reference, by: "stranger")
            try await world.app.release(to: reference, by: "claimant")
            #expect(try await world.number(released) == 0)
            #expect(try await !scene.events(ticket).contains("owner_consented"))
            try await world.app.release(to: reference, by: "owner")
            try await world.app.release(to: reference, by: "owner")
            #expect(try await world.number(released) == 1)
            let kept = try await world.texts(
                """
                SELECT concat_ws(' ', o.user_id, c.user_id) FROM entitlement_sync.purchase_consent AS r
                  JOIN entitlement_sync.user_sync AS o ON o.user_key = r.owner_key
                  LEFT JOIN entitlement_sync.user_sync AS c ON c.user_key = r.claimant_key ORDER BY 1
                """
            )
            #expect(kept == ["claimant", "owner", "owner claimant", "stranger"])
            // Whoever came to own it since has released nothing, and no release is for ever.
            try await world.pool.query("UPDATE entitlement_sync.purchase SET owner_since = clock_timestamp()")
            #expect(try await world.number(released) == 0)
            try await world.pool.query(
                """
                UPDATE entitlement_sync.purchase SET owner_since = owner_since - interval '1 year'
                """
            )
            #expect(try await world.number(released) == 1)
            try await world.pool.query("UPDATE entitlement_sync.purchase_consent SET at = at - interval '31 days'")
            #expect(try await world.number(released) == 0)
        }
    }

    @Test func `A release that comes before anybody knows the purchase counts once it is known`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let reference = try #require(try await scene.only("claimant").reference)
            let purchase = try await world.number(
                "SELECT purchase_id FROM entitlement_sync.ticket WHERE id = \(ticket)"
            )
            try await world.pool.query("UPDATE entitlement_sync.ticket SET purchase_id = NULL, owner_key = NULL")
            try await world.app.release(to: reference, by: "owner")
            #expect(try await !scene.events(ticket).contains("owner_consented"))
            try await world.pool.query("UPDATE entitlement_sync.ticket SET subject_id = \(purchase)")
            try await world.working(scene.patient) { try await scene.collect(ticket) }
            #expect(try await scene.facts(ticket).contains("owner_consented"))
        }
    }

    @Test func `Who objects as well as releases is waited for as any other`() async throws {
        try await DeskCase.with { scene, ticket in
            let reference = try #require(try await scene.only("claimant").reference)
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            try await scene.askOwner(ticket)
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken)
            try await scene.world.app.release(to: reference, by: "owner")
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            #expect(try await scene.facts(ticket).isSuperset(of: ["owner_objected", "owner_consented"]))
            let window = try await scene.world.number(
                """
                SELECT (extract(epoch FROM e.owner_window) / 3600)::bigint FROM entitlement_sync.ticket AS t
                  JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id
                """
            )
            #expect(window == 72)
        }
    }

    @Test func `Nobody gives many references a day, and what is none is refused for everybody`() async throws {
        try await World.with { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            for number in 1...5 { try await world.app.release(to: "R-0000-0\(number)", by: "ann") }
            await expectRefusal("ES008") { try await world.app.release(to: "R-0000-06", by: "ann") }
            try await world.app.release(to: "R-0000-05", by: "ann")
            try await world.app.release(to: "R-0000-06", by: "bob")
            try await world.pool.query("UPDATE entitlement_sync.purchase_consent SET at = at - interval '1 day'")
            try await world.app.release(to: "R-0000-06", by: "ann")
            for wrong in ["", "R-0000", "X-0000-00", "R-0000-0U", " R-0000-00", "R-0000-00\n"] {
                await expectRefusal("22023") { try await world.app.release(to: wrong, by: "bob") }
            }
            await expectRefusal("ES001") { try await world.app.release(to: "R-0000-00", by: "nobody") }
        }
    }

    @Test func `An objection takes a release back, where nobody was asked too; it may be given again the next day`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let reference = try #require(try await scene.only("claimant").reference)
            let released: PostgresQuery = "SELECT entitlement_sync.has_owner_consent(\(ticket))::int::bigint"
            // A desk without a time for owners to object: the case is theirs to see all the same.
            try await world.working(scene.setup) { try await scene.collect(ticket) }
            #expect(try await scene.cases("owner").isEmpty)
            try await world.app.release(to: reference, by: "owner")
            #expect(try await world.number(released) == 1)
            #expect(try await scene.only("owner").state == .open)
            #expect(try await scene.reply("owner", "no, wait", decision: "object") == .taken)
            #expect(try await world.number(released) == 0)
            try await world.working(scene.setup) { try await scene.collect(ticket) }
            #expect(try await scene.facts(ticket).isSuperset(of: ["owner_objected"]))
            #expect(try await !scene.facts(ticket).contains("owner_consented"))
            await expectRefusal("ES008") { try await world.app.release(to: reference, by: "owner") }
            #expect(try await world.number(released) == 0)
            try await world.pool.query(
                "UPDATE entitlement_sync.purchase_consent SET ended_at = ended_at - interval '1 day'"
            )
            try await world.app.release(to: reference, by: "owner")
            #expect(try await world.number(released) == 1)
            // They objected before: the release alone is taken back again.
            #expect(try await scene.reply("owner", "no, wait", decision: "object") == .taken)
            #expect(try await world.number(released) == 0)
        }
    }

    @Test func `A release that is found out later shows the owner the case`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let reference = try #require(try await scene.only("claimant").reference)
            let purchase = try await world.number(
                "SELECT purchase_id FROM entitlement_sync.ticket WHERE id = \(ticket)"
            )
            try await world.pool.query("UPDATE entitlement_sync.ticket SET purchase_id = NULL, owner_key = NULL")
            try await world.app.release(to: reference, by: "owner")
            #expect(try await scene.cases("owner").isEmpty)
            try await world.pool.query("UPDATE entitlement_sync.ticket SET subject_id = \(purchase)")
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.collect(ticket)
            }
            #expect(try await scene.only("owner").state == .open)
        }
    }

    @Test func `A release that is given again says nothing new`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let reference = try #require(try await scene.only("claimant").reference)
            for _ in 0..<3 { try await world.app.release(to: reference, by: "owner") }
            #expect(try await scene.events(ticket).filter { $0 == "owner_consented" }.count == 1)
            #expect(try await world.number("SELECT requests FROM entitlement_sync.evidence_request") == 2)
            // Of a purchase that they came to own since it says something.
            try await world.pool.query("UPDATE entitlement_sync.purchase SET owner_since = clock_timestamp()")
            try await world.app.release(to: reference, by: "owner")
            #expect(try await scene.events(ticket).filter { $0 == "owner_consented" }.count == 2)
        }
    }
}
