import Foundation
import Postgres
@testable import SupportDesk
import TestSupport
import Testing
import UserRequests

/// Ids that are shown, and what is found by references.
@Suite struct RevealTests {
    @Test func `A list shows the ids of the twenty tickets that were asked for`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.pool.query(
                """
                WITH n AS (INSERT INTO entitlement_sync.user_sync (user_id)
                           SELECT 'somebody-' || g FROM generate_series(1, 30) AS g RETURNING user_key)
                INSERT INTO entitlement_sync.ticket (claimant_key, kind, visible) SELECT n.user_key, 'needs_proof', true FROM n
                """
            )
            let tickets = scene.tickets(scene.ann)
            let shown = try await tickets.list(states: nil, reveal: true)
            func open(_ rows: [DeskTickets.Row]) -> Int { rows.count { $0.userID?.hasPrefix("somebody-") == true } }
            #expect(shown.count == 31 && open(shown) == 20)
            #expect(open(Array(shown.prefix(20))) == 20)
            // Whoever has the session sees no others for it.
            let session = PostgresBytes(scene.ann.token.digest)
            for (before, ids) in [(nil as Int64?, 20), (shown[10].id, 9), (shown[19].id, 0)] {
                let (open, all) = try #require(
                    try await world.pool.query(
                        """
                        SELECT count(*) FILTER (WHERE l.user_id LIKE 'somebody%'), count(*)
                          FROM entitlement_sync.list_tickets(\(session), NULL, \(before), 1000, true) AS l
                        """
                    ).first
                ).decode(Int64.self, Int64.self)
                #expect(open == ids && all >= 11)
            }
            await expectRefusal("22023") {
                try await world.pool.query("SELECT entitlement_sync.reveal_ticket(\(session), NULL)")
            }
            #expect(try await tickets.list(states: nil).count == 31)
            #expect(try await tickets.show(ticket)?.contains("cl…nt") == true)
        }
    }

    @Test func `Ids are shown so often in an hour and no more, one after the other, and all of it is on record`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let key = try await world.number(
                "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'claimant'"
            )
            try await world.pool.query(
                "UPDATE entitlement_sync.desk_setting SET value = 4 WHERE name = 'reveals_per_hour'"
            )
            let (tickets, users) = (
                scene.tickets(scene.ann), DeskUsers(pool: world.pool, session: scene.ann.token.digest)
            )
            // A list shows many at once.
            await #expect(throws: RevealRefused(word: "too_many_reveals")) {
                _ = try await tickets.list(states: nil, reveal: true)
            }
            let shown = await withTaskGroup(of: Bool.self) { group in
                for place in 0..<12 {
                    group.addTask {
                        do {
                            let json =
                                place.isMultiple(of: 2)
                                ? try await tickets.show(ticket, reveal: true) : try await users.show(key, reveal: true)
                            #expect(json?.contains(#""claimant""#) == true, "\(json ?? "nothing")")
                            return true
                        } catch {
                            #expect(error as? RevealRefused == RevealRefused(word: "too_many_reveals"))
                            return false
                        }
                    }
                }
                return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(shown == 4)
            // The others at the desk still may, and masked ids are shown as before.
            #expect(
                try await scene.tickets(scene.bea).show(ticket, reveal: true)?.contains(#""owner": "owner""#) == true
            )
            #expect(try await tickets.show(ticket)?.contains("cl…nt") == true)
            let auditor = try await scene.desk.enter("aud", .auditor, by: scene.admin)
            let log = try await DeskUsers(pool: world.pool, session: auditor.token.digest).log(before: nil)
            let ann = log.filter { $0.name == "ann" }
            #expect(ann.count { $0.kind == "revealed" } == 4)
            #expect(log.contains { $0.name == "bea" && $0.kind == "revealed" && $0.detail?.contains("ticket") == true })
            #expect(ann.count { $0.kind == "refused" && $0.detail?.contains("too_many_reveals") == true } == 9)
            try await world.pool.query("ALTER TABLE entitlement_sync.ticket_reveal DISABLE TRIGGER append_only")
            try await world.pool.query("ALTER TABLE entitlement_sync.user_reveal DISABLE TRIGGER append_only")
            for table in ["ticket_reveal", "user_reveal"] {
                try await world.pool.query(
                    PostgresQuery(rawSQL: "UPDATE entitlement_sync.\(table) SET at = at - interval '61 minutes'")
                )
            }
            #expect(try await tickets.show(ticket, reveal: true) != nil)
        }
    }

    @Test func `Of two reveals at once, one waits for what the other comes to`() async throws {
        try await DeskCase.with { scene, ticket in
            let pool = scene.world.pool
            try await pool.query("UPDATE entitlement_sync.desk_setting SET value = 1 WHERE name = 'reveals_per_hour'")
            let session = PostgresBytes(scene.ann.token.digest)
            @Sendable func reveal(on connection: PostgresConnection) async throws -> String? {
                try await connection.query("SELECT entitlement_sync.reveal_ticket(\(session), \(ticket))")
                    .first?.decode(String?.self, at: 0)
            }
            try await withThrowingTaskGroup(of: String?.self) { group in
                try await pool.withTransaction { connection in
                    #expect(try await reveal(on: connection) == nil)
                    group.addTask { try await pool.withConnection { try await reveal(on: $0) } }
                    try await scene.world.waitUntil(
                        "SELECT count(*) FROM pg_locks AS l WHERE l.locktype = 'advisory' AND NOT l.granted",
                        comment: "the second did not wait"
                    )
                }
                #expect(try await group.next() == "too_many_reveals")
            }
        }
    }

    @Test func `Nobody is shown the ids of a case of their own, and it is told as if there were none`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.pool.query(
                """
                INSERT INTO entitlement_sync.operator_account (operator_id, user_key)
                SELECT o.id, u.user_key FROM entitlement_sync.operator AS o, entitlement_sync.user_sync AS u
                 WHERE o.name = 'ann' AND u.user_id = 'claimant'
                """
            )
            #expect(try await scene.tickets(scene.ann).show(ticket, reveal: true) == nil)
            #expect(try await scene.tickets(scene.ann).show(999, reveal: true) == nil)
            #expect(try await scene.world.alarms().contains("operator_own_case"))
        }
    }

    @Test func `A restore is found by its reference while it waits, while another runs, and when it is over`()
        async throws
    {
        try await DeskCase.with { scene, _ in
            let world = scene.world
            try await world.add("somebody")
            let console = DeskConsole(pool: world.pool, session: scene.ann.token.digest)
            let job = try await world.restore("somebody")
            let reference = try await world.status(job).reference
            #expect(try await console.search(reference.lowercased()).map(\.what) == [.user])
            // It runs, and another waits behind it.
            try await world.pool.query("UPDATE entitlement_sync.queue SET owner = 1, active = 0")
            let next = try await world.restore("somebody")
            #expect(next != job)
            for id in [job, next] {
                #expect(try await console.search(try await world.status(id).reference).map(\.what) == [.user])
            }
            #expect(try await console.search("R-0000-00") == [])
            try await world.pool.query("UPDATE entitlement_sync.queue SET owner = NULL, active = NULL")
            try await world.work()
            for id in [job, next] {
                #expect(try await console.search(try await world.status(id).reference).map(\.what) == [.user])
            }
        }
    }

    @Test func `Every word by which the desk refuses something has a sentence`() async throws {
        try await World.with(customers: []) { world in
            let words = try await world.texts(
                """
                SELECT DISTINCT w.word[1]
                  FROM pg_proc AS p
                 CROSS JOIN LATERAL (
                       SELECT regexp_matches(p.prosrc, 'refuse_act\\([^;)]*''([a-z_]+)''\\)', 'g')
                       UNION ALL
                       SELECT regexp_matches(p.prosrc, 'RETURN ''([a-z_]+)''', 'g')
                        WHERE p.prosrc LIKE '%acting(session%' OR p.proname = 'approvals_lack') AS w(word)
                 WHERE p.pronamespace = 'entitlement_sync'::regnamespace
                """
            )
            #expect(words.count > 25, "\(words)")
            for word in words { #expect(DeskRefusal(word).isKnown, "\(word)") }
            #expect(!DeskRefusal("anything").isKnown)
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
}
