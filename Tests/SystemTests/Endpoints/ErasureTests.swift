import Entitlements
import FoundationEssentials
import Postgres
import StoreEvents
import TestSupport
import Testing
import UserRequests

/// Forgetting who somebody is.
@Suite struct ErasureTests {
    /// Everything of ours that can be read as text, table by table.
    private static func finds(_ word: String, in world: World) async throws -> [String] {
        let tables = try await world.texts(
            """
            SELECT c.relname FROM pg_class AS c
             WHERE c.relnamespace = 'entitlement_sync'::regnamespace AND c.relkind = 'r' ORDER BY 1
            """
        )
        var found: [String] = []
        let pattern = "%" + word + "%"
        for table in tables {
            let count = try await world.number(
                """
                SELECT (xpath('/row/n/text()', query_to_xml(
                    format('SELECT count(*) AS n FROM entitlement_sync.%I AS t WHERE t::text LIKE %L',
                           \(table)::text, \(pattern)::text), true, true, '')))[1]::text::bigint
                """
            )
            if count > 0 { found.append(table) }
        }
        return found
    }

    @Test func `L7: after an erasure no table has the id, and the purchases stay with nobody`() async throws {
        let user = "ann-7f3a9c"
        try await World.with(customers: ["{id: \(user), state: active}"]) { world in
            try await world.add(user)
            try await world.deliver(#"{"id":"e1","type":"INITIAL_PURCHASE","app_user_id":"\#(user)"}"#)
            _ = try await world.ask(RestoreWish(userID: user, clientError: "7", idempotencyKey: "tap"))
            try await world.work()
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.sandbox_user (user_id, until) VALUES (\(user), now() + interval '1 day')
                """
            )
            let key = try await world.meet(user)
            try await world.pool.query(
                "INSERT INTO entitlement_sync.outbox (user_key, topic, data) VALUES (\(key), 'restore.finished', '{}')"
            )
            #expect(try await !Self.finds(user, in: world).isEmpty)
            let owned = try await world.number(
                "SELECT count(*) FROM entitlement_sync.purchase WHERE owner_key = \(key)"
            )
            #expect(owned == 1)
            let erased = try #require(try await Erasure(pool: world.pool).erase(user))
            #expect(erased.purchases == 1 && erased.events == 1 && erased.messages == 1 && erased.isHosts)
            #expect(try await Self.finds(user, in: world) == [])
            let kept = try await world.number("SELECT count(*) FROM entitlement_sync.purchase WHERE owner_key = \(key)")
            #expect(kept == 1, "nobody else can claim it")
            let logged = try await world.texts(
                "SELECT (e.detail ->> 'user') || ' ' || (e.detail ->> 'database_user') FROM entitlement_sync.operator_event AS e"
            )
            #expect(logged.count == 1 && logged.first?.hasPrefix("\(key) ") == true, "who did it: \(logged)")
            #expect(try await Erasure(pool: world.pool).erase(user) == nil, "there is nothing any more")
        }
    }

    @Test(arguments: ["claimant-7f3a9c", "owner-51d2e8"])
    func `119: a ticket outlives the erasure of either side, and no table has the id`(_ erased: String) async throws {
        let holding =
            "{id: owner-51d2e8, subscriptions: [{state: active, store_subscription_identifier: \"200000070000001\"}]}"
        try await World.with(customers: [holding, "{id: claimant-7f3a9c, state: none}"]) { world in
            for user in ["claimant-7f3a9c", "owner-51d2e8"] { try await world.add(user) }
            let job = try await world.restore("claimant-7f3a9c", proofs: DeskCase.proof, clientError: "7")
            try await world.work()
            #expect(try await world.status(job).outcome == "store_account_mismatch")
            #expect(try await Erasure(pool: world.pool).erase(erased)?.tickets == 1)
            #expect(try await Self.finds(erased, in: world) == [])
            let tickets = try await world.texts(
                "SELECT concat_ws(' ', t.kind, t.state, t.user_id, t.purchase_owner_id) FROM entitlement_sync.ticket_status AS t"
            )
            let left = erased == "owner-51d2e8" ? "claimant-7f3a9c" : "owner-51d2e8"
            #expect(tickets == ["owner_mismatch new \(left)"])
        }
    }

    @Test func `Somebody who was never known here, and comes back in an event, is erased as well`() async throws {
        let user = "gone-51d2"
        try await World.with { world in
            try await world.deliver(#"{"id":"e1","type":"EXPIRATION","app_user_id":"\#(user)"}"#)
            try await world.deliver(#"{"id":"e2","type":"INVOICE_ISSUANCE","app_user_id":"\#(user)"}"#)
            _ = try await world.inbox.drain()
            #expect(try await Self.finds(user, in: world) == ["inbox"])
            let erased = try #require(try await Erasure(pool: world.pool).erase(user))
            #expect(erased.events == 1 && erased.purchases == 0 && !erased.isHosts)
            #expect(try await Self.finds(user, in: world) == [])
            // Once more, by a message that was on its way.
            try await world.deliver(#"{"id":"e3","type":"EXPIRATION","app_user_id":"\#(user)"}"#)
            #expect(try await Erasure(pool: world.pool).erase(user)?.events == 1)
            #expect(try await Self.finds(user, in: world) == [])
        }
    }

    @Test func `An erasure and a run over the user's assets wait for each other, and neither fails`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let key = try await world.meet("ann")
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.asset_run (user_key, epoch, decision_id, direction)
                VALUES (\(key), 0, 0, 'unfreeze')
                """
            )
            let erased = try await world.pool.withTransaction { connection in
                try await connection.query("SELECT FROM entitlement_sync.asset_run WHERE user_key = \(key) FOR UPDATE")
                async let erased = Erasure(pool: world.pool).erase("ann")
                try await world.waitUntilBlocked("the erasure does not wait for the run's row")
                try await connection.query("SELECT FROM entitlement_sync.user_sync WHERE user_key = \(key) FOR UPDATE")
                try await connection.execute(script: "COMMIT; BEGIN")
                return try await erased
            }
            #expect(erased != nil)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.asset_run") == 0)
        }
    }
}
