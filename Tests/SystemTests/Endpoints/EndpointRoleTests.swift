import Foundation
import Postgres
import Queue
import TestSupport
import Testing

/// What the API's role may do: call its functions, and nothing beneath them.
@Suite struct EndpointRoleTests {
    @Test(arguments: [
        "SELECT entitlement_sync.app_restores(ARRAY['ann'], ARRAY['[]'], '{NULL}', '{NULL}', '{NULL}', '{NULL}')",
        "SELECT * FROM entitlement_sync.restore_answers(ARRAY['JOB'::uuid])",
        "SELECT entitlement_sync.estimated_wait('JOB'::uuid)",
        "SELECT * FROM entitlement_sync.entitlement_answer('ann')",
        "SELECT * FROM entitlement_sync.take_requests('a'::bytea, 5, 1)",
        "SELECT entitlement_sync.ticket_answers('ann')",
        "SELECT entitlement_sync.reply_to_ticket('ann', gen_random_uuid(), 'hello', NULL, NULL)",
        "SELECT entitlement_sync.consent_to_transfer('ann', 'R-0000-00')",
        """
        SELECT entitlement_sync.accept_events('revenuecat', '{e}', '{RENEWAL}', '{NULL}', '{false}', '{ann}',
                                              '{NULL}', ARRAY['{}'::bytea])
        """,
    ])
    func `The API's role may call what the API calls`(_ statement: String) async throws {
        try await World.with { world in
            try await world.add("ann")
            let job = try await world.restore("ann")
            let call = statement.replacing("JOB", with: "\(job)")
            let rows = try await Self.run(call, as: "entitlement_sync_api", in: world)
            #expect(rows.count == 1)
        }
    }

    @Test(arguments: [
        "SELECT count(*) FROM entitlement_sync.job_status", "SELECT count(*) FROM entitlement_sync.ticket_status",
        "SELECT entitlement_sync.request_restore('ann')", "SELECT entitlement_sync.request_reconcile('ann')",
    ])
    func `The API's role neither reads everybody's jobs and cases nor asks for jobs beside its door`(
        _ statement: String
    ) async throws {
        try await World.with { world in
            try await world.add("ann")
            await Self.expectRefusal(statement, as: "entitlement_sync_api", in: world)
        }
    }

    @Test(arguments: [
        ("purchase", "owner_key"), ("purchase_identifier", "purchase_id"), ("user_sync", "epoch"), ("queue", "due"),
        ("inbox", "state"), ("inbox_body", "body"), ("job_request", "origin"), ("job_history", "state"),
        ("shown_proof", "shown_at"), ("request_count", "taken"), ("idempotency", "key"), ("grant", "until"),
        ("ticket", "state"), ("ticket_reply", "words"), ("purchase_consent", "at"), ("desk_setting", "value"),
    ])
    func `The API's role reads and writes no table`(_ table: String, _ column: String) async throws {
        try await World.with { world in
            for statement in [
                "SELECT count(*) FROM entitlement_sync.\"\(table)\"",
                "SELECT count(\(column)) FROM entitlement_sync.\"\(table)\"",
                "INSERT INTO entitlement_sync.\"\(table)\" DEFAULT VALUES",
                "UPDATE entitlement_sync.\"\(table)\" SET \(column) = \(column)",
                "DELETE FROM entitlement_sync.\"\(table)\"",
                "TRUNCATE entitlement_sync.\"\(table)\"",
            ] {
                await Self.expectRefusal(statement, as: "entitlement_sync_api", in: world)
            }
        }
    }

    @Test(arguments: [
        "SELECT * FROM entitlement_sync.drain_inbox()", "SELECT entitlement_sync.forget_events(1, 1)",
        "SELECT entitlement_sync.restored_products(1, NULL)",
        "SELECT * FROM entitlement_sync.restored_products_of('{1}', '{NULL}')",
        "SELECT entitlement_sync.user_key_of('ann')",
        "SELECT entitlement_sync.enqueue(1, 0::smallint, 0::smallint, NULL)", "SELECT entitlement_sync.reread('{1}')",
        "SELECT entitlement_sync.enqueue_reconciles('{1}', 1::smallint, ARRAY['0197a0b2-0000-7000-8000-000000000000'::uuid])",
        "SELECT entitlement_sync.case_of(1)", "SELECT * FROM entitlement_sync.owner_cases(1)",
        "SELECT entitlement_sync.has_owner_consent(1)", "SELECT entitlement_sync.expire_questions()",
        "SELECT entitlement_sync.ask_claimant('\\x00', 1, 'order_number', NULL)",
        "SELECT entitlement_sync.requeue_dead(NULL)", "SELECT * FROM entitlement_sync.erase_user('ann')",
        "SELECT * FROM entitlement_sync_host.set_type(ARRAY['ann'], 'subscriber')", "SELECT * FROM users",
    ])
    func `The API's role may call nothing else`(_ statement: String) async throws {
        try await World.with { world in
            try await world.add("ann")
            await Self.expectRefusal(statement, as: "entitlement_sync_api", in: world)
            #expect(try await world.type(of: "ann") == "free")
        }
    }

    @Test(arguments: [
        "reread(bigint[], smallint)", "enqueue_reconciles(bigint[], smallint, uuid[], boolean)",
        "restored_products_of(bigint[], text[])",
    ])
    func `What events set in motion and restores find is nobody's to call but the workers'`(_ function: String)
        async throws
    {
        try await World.with { world in
            for role in ["api", "client", "support", "auditor"] {
                let may = try await world.pool.query(
                    """
                    SELECT has_function_privilege(\("entitlement_sync_" + role), \("entitlement_sync." + function), 'EXECUTE')
                    """
                )
                #expect(try may.first?.decode(Bool.self, at: 0) == false, "\(role): \(function)")
            }
        }
    }

    @Test func `The workers' role may queue what a decision asks for, and look into events`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let key = try await world.meet("ann")
            try await world.accept([.about("ann", id: "e")])
            for statement in [
                "SELECT entitlement_sync.enqueue(\(key), 1::smallint, 2::smallint, '0197a0b2-0000-7000-8000-000000000000')",
                "SELECT entitlement_sync.enqueue(\(key), 0::smallint, 0::smallint, '0197a0b2-0000-7000-8000-000000000001')",
                "SELECT entitlement_sync.restored_products(\(key), '0197a0b2-0000-7000-8000-000000000001')",
                "SELECT * FROM entitlement_sync.restored_products_of('{\(key)}', '{NULL}')",
                "SELECT * FROM entitlement_sync.drain_inbox()",
            ] {
                let rows = try await Self.run(statement, as: "entitlement_sync_worker", in: world)
                #expect(rows.count == 1)
            }
            #expect(try await world.state(ofEvent: "e") == "done")
        }
    }

    @Test(arguments: ["entitlement_sync_client", "entitlement_sync_support", "entitlement_sync_auditor"])
    func `Only the API and the workers answer apps and take events`(_ role: String) async throws {
        try await World.with { world in
            for statement in [
                "SELECT entitlement_sync.app_restores(ARRAY['ann'], ARRAY['[]'], '{NULL}', '{NULL}', '{NULL}', '{NULL}')",
                "SELECT * FROM entitlement_sync.restore_answers('{}')",
                "SELECT * FROM entitlement_sync.entitlement_answer('ann')",
                "SELECT entitlement_sync.ticket_answers('ann')",
                "SELECT entitlement_sync.reply_to_ticket('ann', gen_random_uuid(), 'hello', NULL, NULL)",
                "SELECT entitlement_sync.consent_to_transfer('ann', 'R-0000-00')",
                "SELECT * FROM entitlement_sync.take_requests('a'::bytea, 5, 1)",
                "SELECT entitlement_sync.accept_events('revenuecat', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
                "SELECT * FROM entitlement_sync.drain_inbox()", "SELECT entitlement_sync.forget_events(1, 1)",
            ] {
                await Self.expectRefusal(statement, as: role, in: world)
            }
        }
    }

    // MARK: Parts

    private static func run(_ statement: String, as role: String, in world: World) async throws -> PostgresRows {
        try await world.pool.withTransaction { connection in
            try await connection.query("SET LOCAL ROLE \(rawSQL: role)")
            return try await connection.query(PostgresQuery(rawSQL: statement))
        }
    }

    private static func expectRefusal(_ statement: String, as role: String, in world: World) async {
        let refusal = await #expect(throws: PostgresError.self, "\(role): \(statement)") {
            _ = try await run(statement, as: role, in: world)
        }
        #expect(refusal?.sqlState == SQLState.insufficientPrivilege, "\(role): \(statement)")
    }
}
