import Entitlements
import Foundation
import Postgres
import TestSupport
import Testing
import UserRequests

/// Tickets that workers open.
@Suite struct OpeningTests {
    /// How many of a ticket, its decision and the message about it there are, and whether one transaction wrote all of them.
    private static func written(_ world: World) async throws -> [String] {
        try await world.texts(
            """
            SELECT concat_ws(' ', count(t.id), count(d.id), count(o.id),
                             bool_and(t.created_at = d.at AND t.created_at = o.created_at))
              FROM entitlement_sync.ticket AS t
              FULL JOIN entitlement_sync.decision AS d ON d.user_key = t.claimant_key
              FULL JOIN (SELECT x.* FROM entitlement_sync.outbox AS x WHERE x.topic = 'ticket.opened') AS o
                     ON o.user_key = t.claimant_key
             WHERE coalesce(t.claimant_key, d.user_key, o.user_key)
                   = (SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'claimant')
            """
        )
    }

    @Test
    func `156: nobody of the desk need be there: a ticket is written with its decision and the news of it, or none is`()
        async throws
    {
        try await World.with(customers: [DeskCase.owner, "{id: claimant, state: none}"]) { world in
            for user in ["owner", "claimant"] { try await world.add(user) }
            #expect(try await world.reconciled("owner").outcome == "promoted")
            var telling = WorkerSetup()
            telling.tells = true
            try await world.pool.query("CREATE SEQUENCE tries")
            try await world.pool.query(
                """
                CREATE FUNCTION out_of_order() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN PERFORM nextval('public.tries'); RAISE EXCEPTION 'out of order' USING ERRCODE = '53100'; END $$
                """
            )
            try await world.pool.query(
                """
                CREATE TRIGGER out_of_order BEFORE INSERT ON entitlement_sync.outbox
                    FOR EACH ROW EXECUTE FUNCTION out_of_order()
                """
            )
            let job = try await world.restore("claimant", proofs: DeskCase.proof, clientError: "7")
            try await world.working(telling) { [job] in
                try await world.waitUntil(
                    "SELECT s.is_called::int FROM public.tries AS s",
                    comment: "nothing was tried"
                )
                #expect(try await Self.written(world) == ["0 0 0"])
                #expect(try await world.status(job).outcome == nil)
                try await world.pool.query("DROP TRIGGER out_of_order ON entitlement_sync.outbox")
                try await world.waitUntil("SELECT count(*) FROM entitlement_sync.ticket")
            }
            #expect(try await world.status(job).outcome == "store_account_mismatch")
            let written = try await Self.written(world)
            #expect(written == ["1 1 1 t"])
        }
    }
}
