@testable import Diagnostics
import Logging
import Postgres
@testable import RateLimits
import TestSupport
import Testing

/// What `doctor` finds: each condition is made, and told with what to do about it.
struct DoctorTests {
    /// One condition.
    struct Finding: Sendable, CustomStringConvertible {
        /// The check that finds it.
        var name: String
        /// Statements that bring it about, on a database where `payer` was restored.
        var made: String
        /// From where on it counts; the usual limits are not reached within a test.
        var limits = DoctorLimits()
        var description: String { name }
    }

    private static let payer = "(SELECT s.user_key FROM entitlement_sync.user_sync AS s WHERE s.user_id = 'payer')"

    private static let work: [Finding] = [
        Finding(
            name: "workers",
            made: """
                UPDATE entitlement_sync.worker AS w SET expires_at = '-infinity';
                SELECT entitlement_sync.request_restore('payer');
                UPDATE entitlement_sync.queue AS q SET due = now() - interval '1 minute'
                """
        ),
        Finding(
            name: "queue_age",
            made: """
                SELECT entitlement_sync.request_restore('payer');
                UPDATE entitlement_sync.queue AS q
                   SET restore_queued_at = now() - interval '6 minutes', due = now() + interval '1 minute'
                """
        ),
        Finding(
            name: "queue_age",
            made: """
                SELECT entitlement_sync.request_reconcile('payer');
                UPDATE entitlement_sync.queue AS q SET lane = 1, due = now() - interval '6 minutes'
                """
        ),
        Finding(
            name: "leases",
            made: """
                SELECT entitlement_sync.request_restore('payer');
                UPDATE entitlement_sync.queue AS q SET owner = 2000000000
                """
        ),
        Finding(
            name: "dead_jobs",
            made: """
                INSERT INTO entitlement_sync.job_history (id, user_key, finished_at, kind, attempt, state)
                VALUES (entitlement_sync.new_id(), \(payer), now(), 0, 8, 'dead')
                """
        ),
        Finding(
            name: "quarantine",
            made: """
                SELECT entitlement_sync.request_restore('payer');
                UPDATE entitlement_sync.queue AS q SET lane = 9
                """
        ),
        Finding(
            name: "law_watch",
            made: """
                INSERT INTO entitlement_sync.worker (epoch, host, pid, version, started_at, expires_at)
                VALUES (2000000000, 'here', 1, 'any', now() - interval '2 hours', now() + interval '1 hour');
                UPDATE entitlement_sync.invariant_check AS c SET checked_at = now() - interval '2 hours' WHERE c.name = 'none_lost'
                """
        ),
        // As a look for drift leaves it that failed.
        Finding(
            name: "law_watch",
            made: """
                INSERT INTO entitlement_sync.worker (epoch, host, pid, version, started_at, expires_at)
                VALUES (2000000000, 'here', 1, 'any', now() - interval '2 hours', now() + interval '1 hour');
                UPDATE entitlement_sync.invariant_check AS c SET broken = NULL, checked_at = now() - interval '5 minutes'
                 WHERE c.name = 'drift.checked'
                """
        ),
        Finding(
            name: "partitions",
            made: """
                DO $$ BEGIN
                    EXECUTE format('DROP TABLE entitlement_sync.job_history%s',
                                   to_char((now() AT TIME ZONE 'UTC')::date + 1, '_YYYYMMDD'));
                END $$
                """
        ),
        Finding(
            name: "sequences",
            made: """
                INSERT INTO entitlement_sync."grant" (id, user_key, until, reason) OVERRIDING SYSTEM VALUE
                VALUES (1000000, 1, now(), 'restored')
                """
        ),
        Finding(name: "adapter", made: "DROP FUNCTION entitlement_sync_host.page_users(text, integer)"),
        Finding(
            name: "refused_assets",
            made: "INSERT INTO entitlement_sync.asset_batch (decision_id, changed, failed) VALUES (1, 0, '23514')"
        ),
        Finding(
            name: "paused",
            made: "UPDATE entitlement_sync.control AS c SET paused = true WHERE c.name = 'demotions'"
        ),
        Finding(
            name: "unexplained_assets",
            made: "INSERT INTO assets (user_id, frozen_at) VALUES ('payer', now())"
        ),
        // Older adapters do not tell of assets.
        Finding(
            name: "paused",
            made: """
                DROP FUNCTION entitlement_sync_host.unexplained_assets(integer);
                UPDATE entitlement_sync.control AS c SET paused = true WHERE c.name = 'transfers'
                """
        ),
        Finding(
            name: "letter_case",
            made: """
                INSERT INTO entitlement_sync.inbox (source, event_id, state, about)
                VALUES ('revenuecat', 'e-1', 'parked', '{"users": ["Payer", "payer-2"], "purchases": []}')
                """
        ),
        Finding(
            name: "alarm.product_unmapped",
            made: "INSERT INTO entitlement_sync.alarm (name, detail) VALUES ('product_unmapped', 'Map it.')"
        ),
    ]

    private static let laws: [Finding] = [
        Finding(
            name: "law.one_owner",
            made: """
                INSERT INTO entitlement_sync.purchase (id, owner_key, observed_at, merged_into, source, store, environment,
                                                       kind, status, ownership, owner_rule)
                VALUES (900000000, \(payer), now(), 900000001, 'revenuecat', 'app_store', 'production', 'subscription', 'active',
                        'purchased', 'store_access');
                INSERT INTO entitlement_sync.purchase_identifier (value, store, environment, kind, purchase_id)
                VALUES ('astray', 'app_store', 'production', 'transaction', 900000000)
                """
        ),
        Finding(
            name: "law.ineligible_subscribers",
            made: "UPDATE users SET status = 'banned' WHERE id = 'payer'"
        ),
        Finding(name: "law.access_denied", made: "UPDATE users SET type = 'free' WHERE id = 'payer'"),
        Finding(
            name: "law.demoted_by_word",
            made: """
                INSERT INTO entitlement_sync.decision (user_key, job_id, kind, rule, outcome, type_before, type_after,
                                                       explanation)
                VALUES (\(payer), entitlement_sync.new_id(), 1, 'no_access', 'demoted', 'subscriber', 'free', 'Just so.')
                """
        ),
        Finding(
            name: "law.frozen_subscribers",
            made: """
                INSERT INTO assets (user_id, frozen_reasons, frozen_at) VALUES ('payer', '{subscription_lapsed}', now())
                """
        ),
        Finding(
            name: "law.one_decision",
            made: """
                ALTER TABLE entitlement_sync.decision DISABLE TRIGGER append_only;
                DELETE FROM entitlement_sync.decision
                """
        ),
        Finding(
            name: "law.one_open_ticket",
            made: """
                DROP INDEX entitlement_sync.ticket_open;
                INSERT INTO entitlement_sync.ticket (claimant_key, kind, visible)
                SELECT \(payer), 'paid_no_access', true FROM generate_series(1, 2)
                """
        ),
        Finding(
            name: "law.none_lost",
            made: """
                INSERT INTO entitlement_sync.idempotency (user_key, key, request, job_id)
                VALUES (\(payer), 'key', '', entitlement_sync.new_id())
                """
        ),
        Finding(name: "unexplained_subscribers", made: "INSERT INTO users (id, type) VALUES ('comped', 'subscriber')"),
    ]

    private static let stores: [Finding] = [
        Finding(
            name: "store.revenuecat",
            made: """
                UPDATE entitlement_sync.store_health AS h SET last_error = 'timeout', last_error_at = now() + interval '1 s'
                """
        ),
        Finding(
            name: "clock.revenuecat",
            made: "UPDATE entitlement_sync.store_health AS h SET skew_seconds = -45"
        ),
        Finding(
            name: "budget.revenuecat",
            made: """
                INSERT INTO entitlement_sync.rate_budget (credential, tokens, per_minute) VALUES ('revenuecat', 0, 480)
                ON CONFLICT (credential) DO UPDATE SET per_minute = 480;
                UPDATE entitlement_sync.rate_budget AS b SET seen_limit = 100
                """
        ),
        Finding(
            name: "budget.revenuecat",
            made: """
                INSERT INTO entitlement_sync.rate_budget (credential, tokens, per_minute) VALUES ('revenuecat', 0, 480)
                ON CONFLICT (credential) DO NOTHING;
                UPDATE entitlement_sync.rate_budget AS b SET blocked_until = now() + interval '1 minute'
                """
        ),
    ]

    @Test(
        "A condition that somebody has to mend is found, with what to do; before it was made nothing was wrong",
        arguments: work + laws + stores
    )
    func finds(finding: Finding) async throws {
        try await World.with(customers: ["{id: payer, state: active}"], isFresh: true) { world in
            try await world.add("payer")
            _ = try await world.restored("payer")
            try await InvariantMonitor(pool: world.pool).run()
            // The worker of the test ended before it traded what it knew of the store.
            try await StoreHealth(pool: world.pool).note(
                "revenuecat",
                .init(hasAnswered: true, error: nil, skewSeconds: 0)
            )
            let doctor = Doctor(pool: world.pool, limits: finding.limits)
            let before = await doctor.checks()
            #expect(before.filter { !$0.ok }.map(\.name) == [])
            #expect(before.allSatisfy { $0.fix.isEmpty && !$0.detail.isEmpty })
            try await world.pool.withConnection { try await $0.execute(script: finding.made) }
            let found = (await doctor.checks()).filter { !$0.ok }
            let check = try #require(found.first { $0.name == finding.name }, "\(found)")
            #expect(!check.fix.isEmpty && !check.detail.isEmpty)
            #expect(found.allSatisfy { $0.detail.count < 400 && !$0.detail.contains("PostgresError") })
        }
    }

    @Test("Laws have their turn one by one, and those that cannot be checked keep no other from its own")
    func turns() async throws {
        try await World.with(isFresh: true) { world in
            let watch = InvariantMonitor(pool: world.pool)
            // Two of them look there.
            try await world.pool.query("ALTER TABLE entitlement_sync.job_history RENAME TO elsewhere")
            for turn in 1...Invariant.all.count {
                #expect(try await watch.drift() == nil, "drift is the last")
                do { _ = try await watch.step() } catch is PostgresError {}
                #expect(try await world.number("SELECT count(*) FROM entitlement_sync.invariant_check") == Int64(turn))
            }
            #expect(try await watch.step())
            #expect(try await watch.drift() != nil)
            #expect(try await watch.found().count == Invariant.all.count - 2)
            #expect(try await !watch.step(), "nothing is due")
            // Long after, whatever was checked longest ago comes first.
            try await world.pool.query(
                """
                UPDATE entitlement_sync.invariant_check SET checked_at = now() - interval '1 day',
                       broken = CASE WHEN name = 'one_owner' THEN 7 ELSE broken END;
                """
            )
            try await world.pool.query(
                "UPDATE entitlement_sync.invariant_check SET checked_at = now() - interval '2 days' WHERE name = 'one_owner'"
            )
            #expect(try await watch.step())
            #expect(try await watch.found().contains { $0.name == "one_owner" && $0.broken == 0 })
        }
    }

    @Test(
        "A transaction that keeps dead rows is named with the session to end; so are bloat and notifications not taken"
    )
    func server() async throws {
        try await World.with(isFresh: true) { world in
            var limits = DoctorLimits()
            limits.transaction = .seconds(-1)
            let holder = PostgresConnection(configuration: .init(connectionString: world.database.url))
            try await holder.open()
            let pid = await holder.backendPID
            try await holder.execute(script: "LISTEN somewhere")
            try await holder.execute(script: "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM users")
            let horizon = try #require(
                await Doctor(pool: world.pool, limits: limits).checks().first { $0.name == "horizon" }
            )
            #expect(!horizon.ok && horizon.detail.contains("session \(pid) "), "\(horizon)")
            #expect(horizon.fix.contains("pg_terminate_backend(\(pid))"))

            // The listener stays in its transaction and takes nothing.
            try await world.pool.withConnection {
                try await $0.execute(
                    script: "SELECT pg_notify('somewhere', repeat('x', 7000) || n) FROM generate_series(1, 20) AS n"
                )
            }
            limits.notifications = 0
            limits.queueBytes = 0
            try await world.pool.withConnection {
                try await $0.execute(
                    script: """
                        INSERT INTO users (id) SELECT 'user-' || n FROM generate_series(1, 500) AS n;
                        SELECT count(entitlement_sync.request_restore(u.id)) FROM users AS u;
                        DELETE FROM entitlement_sync.queue;
                        SELECT pg_stat_force_next_flush()
                        """
                )
            }
            try await world.waitUntil(
                "SELECT count(*) FROM pg_stat_user_tables AS t WHERE t.relname = 'queue' AND t.n_dead_tup > 400",
                comment: "the server does not count dead rows"
            )
            limits.deadRows = 400
            let found = await Doctor(pool: world.pool, limits: limits).checks().filter { !$0.ok }
            #expect(Set(found.map(\.name)).isSuperset(of: ["horizon", "bloat", "notifications"]), "\(found)")

            // What the advice says ends it.
            try await world.pool.query("SELECT pg_terminate_backend(\(pid))")
            await holder.close()
            limits.queueBytes = 64 << 20
            try await world.waitUntil(
                "SELECT (count(*) = 0)::integer::bigint FROM pg_stat_activity AS a WHERE a.pid = \(pid)"
            )
            let after = await Doctor(pool: world.pool, limits: limits).checks()
            let left = try #require(after.first { $0.name == "horizon" })
            #expect(!left.detail.contains("session \(pid) "), "\(left)")
        }
    }

    @Test("Slots that nobody reads, prepared transactions and missing roles are found, on a server of their own")
    func cluster() async throws {
        let server = try await PrivatePostgres.start(
            settings: ["wal_level": "logical", "max_prepared_transactions": "5"]
        )
        let database = try await server.database(.migrated)
        let pool = PostgresPool(configuration: .init(connectionString: database.url, maxConnections: 2), logger: .quiet)
        func check(_ name: String, _ change: (inout DoctorLimits) -> Void = { _ in }) async throws -> Check {
            var limits = DoctorLimits()
            change(&limits)
            let checks = await Doctor(pool: pool, limits: limits).checks()
            return try #require(checks.first { $0.name == name }, "\(checks)")
        }
        for name in ["roles", "replication_slots", "horizon"] {
            #expect(try await check(name).ok)
        }
        try await pool.withConnection {
            try await $0.execute(script: "BEGIN; INSERT INTO users (id) VALUES ('a'); PREPARE TRANSACTION 'forgotten'")
        }
        let prepared = try await check("horizon") { $0.transaction = .seconds(-1) }
        #expect(!prepared.ok && prepared.detail.contains("forgotten") && prepared.fix.contains("ROLLBACK PREPARED"))
        try await pool.withConnection { try await $0.execute(script: "ROLLBACK PREPARED 'forgotten'") }

        try await pool.query("SELECT pg_create_logical_replication_slot('unread', 'pgoutput')")
        let slot = try await check("replication_slots") { $0.slotBytes = -1 }
        #expect(!slot.ok && slot.detail.contains("unread") && slot.fix.contains("pg_drop_replication_slot('unread')"))
        let held = try await check("horizon") { $0.horizon = -1 }
        #expect(!held.ok && held.detail.contains("unread"), "\(held)")

        try await server.administer("ALTER ROLE entitlement_sync_auditor RENAME TO somebody")
        #expect(try await !check("roles").ok)
        await pool.close()
        try await server.stop()
    }
}
