package import Postgres

/// What a database holds that has been at work for 90 days.
package enum SampleHistory {
    /// Keys that no sequence gets to.
    private static let firstKey = 2_000_000_000
    /// Jobs of the last 14 days, however long the history is.
    private static let recent = 300

    /// Loads jobs that have ended, with all that they left.
    ///
    /// Users, purchases, decisions, events and tickets are in proportion. The users are `past-1` to `past-` a fifth of
    /// `jobs`; the days have partitions of their own.
    ///
    /// - Parameters:
    ///   - jobs: how many are older than 14 days.
    ///   - days: over how many days they are spread, evenly, between the 90th and the 14th before today.
    ///   - pool: the owner's.
    /// - Throws: `PostgresError`.
    package static func load(_ jobs: Int, over days: Int = 75, into pool: PostgresPool) async throws {
        try await pool.withConnection { connection in
            try await connection.execute(script: "BEGIN;\n\(script(jobs, days))\nCOMMIT")
            try await connection.query("VACUUM (ANALYZE)")
        }
    }

    private static func script(_ jobs: Int, _ days: Int) -> String {
        let users = jobs / 5
        return """
            -- Partitions of the days that are over, as a database has them that was set up 90 days ago.
            DO $$
            DECLARE
                today  CONSTANT date := (now() AT TIME ZONE 'UTC')::date;
                parent text;
                day    date;
                first  date;
            BEGIN
                FOREACH parent IN ARRAY ARRAY['job_history', 'job_request'] LOOP
                    EXECUTE format('DROP TABLE entitlement_sync.%I', parent || '_before');
                    SELECT min(to_date(right(p.part, 8), 'YYYYMMDD')) INTO first FROM entitlement_sync.partitions_of(parent) AS p WHERE p.is_day;
                    FOR day IN SELECT d::date FROM generate_series(today - 90, first - 1, interval '1 day') AS d LOOP
                        PERFORM entitlement_sync.cover_ids(parent, parent || to_char(day, '_YYYYMMDD'), entitlement_sync.first_id_of(day), entitlement_sync.first_id_of(day + 1));
                    END LOOP;
                    PERFORM entitlement_sync.cover_ids(parent, parent || '_before', NULL, entitlement_sync.first_id_of(today - 90));
                END LOOP;
            END
            $$;

            CREATE TEMPORARY TABLE past ON COMMIT DROP AS
            SELECT n, \(firstKey) + 1 + n % (\(users)) AS user_key, (n % 2)::smallint AS kind, w.at,
                   (left(entitlement_sync.first_id_at(w.at)::text, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid AS id
              FROM generate_series(1, \(jobs + recent)) AS n
             CROSS JOIN LATERAL (SELECT CASE WHEN n <= \(jobs) THEN now() - interval '89 days' + (n % \(days)) * (interval '75 days' / \(days))
                                                  + n * (interval '20 hours' / \(jobs))
                                             ELSE now() - interval '14 days' + (n - \(jobs)) * (interval '14 days' / \(recent + 1)) END AS at) AS w;

            INSERT INTO users (id, type)
            SELECT 'past-' || n, CASE n % 2 WHEN 0 THEN 'free' ELSE 'subscriber' END FROM generate_series(1, \(users)) AS n;
            INSERT INTO assets (user_id) SELECT 'past-' || n FROM generate_series(1, \(users)) AS n;
            INSERT INTO entitlement_sync.user_sync (user_key, user_id, read_at, full_read_at, next_check_at, ever_observed)
            OVERRIDING SYSTEM VALUE
            SELECT \(firstKey) + n, 'past-' || n, now() - interval '15 days', now() - interval '15 days',
                   now() + n * (interval '30 days' / (\(users))) + interval '1 day', true
              FROM generate_series(1, \(users)) AS n;
            INSERT INTO entitlement_sync.purchase
                   (id, owner_key, observed_at, period_ends_at, gives_access, source, store, environment, kind, status, ownership,
                    renewal, product_id, owner_rule, entitlements)
            SELECT \(firstKey) + n, \(firstKey) + n, now() - interval '15 days', now() + interval '10 days', true, 'revenuecat',
                   'app_store', 'production', 'subscription', 'active', 'purchased', 'will_renew', 'premium', 'named_by_revenuecat',
                   '{premium}'
              FROM generate_series(1, \(jobs / 10)) AS n;
            INSERT INTO entitlement_sync.purchase_identifier (value, store, environment, kind, purchase_id)
            SELECT 'past-' || n, 'app_store', 'production', 'store_id', \(firstKey) + n FROM generate_series(1, \(jobs / 10)) AS n;
            INSERT INTO entitlement_sync.job_history (id, user_key, finished_at, kind, attempt, state, outcome, message_key, last_error)
            SELECT p.id, p.user_key, p.at + interval '1 second', p.kind, 0,
                   CASE WHEN p.n > \(jobs) AND p.n % 30 = 0 THEN 'dead' ELSE 'done' END,
                   CASE WHEN p.kind = 0 THEN CASE p.n % 10 WHEN 0 THEN 'store_account_mismatch' ELSE 'restored' END ELSE 'in_sync' END,
                   CASE p.kind WHEN 0 THEN 'restored' END, NULL
              FROM past AS p;
            INSERT INTO entitlement_sync.decision
                   (user_key, job_id, at, kind, rule, outcome, type_before, type_after, explanation)
            SELECT p.user_key, p.id, p.at, p.kind, 'store_access', CASE p.kind WHEN 0 THEN 'restored' ELSE 'in_sync' END, 'free',
                   CASE p.n % 5 WHEN 0 THEN 'subscriber' ELSE 'free' END, 'A store says that a purchase of this user gives access.'
              FROM past AS p ORDER BY p.at;
            INSERT INTO entitlement_sync.observation
                   (user_key, job_id, purchase_id, asked_at, period_ends_at, gives_access, source, coverage, store, environment, kind,
                    status, ownership, renewal, product_id, attribution, entitlements, payload_hash)
            SELECT p.user_key, p.id, p.user_key, p.at, p.at + interval '30 days', true, 'revenuecat', 'full', 'app_store', 'production',
                   'subscription', 'active', 'purchased', 'will_renew', 'premium', 'known', '{premium}', sha256(p.id::text::bytea)
              FROM past AS p ORDER BY p.at;
            INSERT INTO entitlement_sync.inbox (source, event_id, received_at, state, kind, occurred_at, due, attempt, user_keys)
            SELECT 'revenuecat', 'past-' || p.n, p.at, 'done', 'RENEWAL', p.at, p.at, 1, ARRAY[p.user_key] FROM past AS p ORDER BY p.at;
            INSERT INTO entitlement_sync.idempotency (user_key, key, request, job_id, created_at)
            SELECT p.user_key, 'past-' || p.n, sha256('[]'), p.id, p.at FROM past AS p WHERE p.n > \(jobs) AND p.kind = 0;
            -- Closed ones are put in as they are, which no application may.
            ALTER TABLE entitlement_sync.ticket DISABLE TRIGGER USER;
            ALTER TABLE entitlement_sync.ticket_event DISABLE TRIGGER USER;
            -- Of a ticket in ten jobs all that are older than 14 days are closed.
            INSERT INTO entitlement_sync.ticket
                   (claimant_key, owner_key, purchase_id, kind, state, store, original_id, visible, created_at, clock_from,
                    due_at, closed_at, evidence_due)
            SELECT p.user_key, \(firstKey) + p.n / 10, \(firstKey) + p.n / 10, 'owner_mismatch',
                   CASE WHEN p.n > \(jobs) THEN 'new' ELSE 'refused' END, 'app_store', 'past-' || p.n / 10, true, p.at, p.at, p.at + interval '1 day',
                   CASE WHEN p.n <= \(jobs) THEN p.at + interval '1 hour' END, NULL
              FROM past AS p WHERE p.n % 10 = 0 ORDER BY p.n;
            INSERT INTO entitlement_sync.ticket_event (ticket_id, at, kind)
            SELECT t.id, t.created_at, k FROM entitlement_sync.ticket AS t, unnest(ARRAY['opened', 'touched']) AS k;
            INSERT INTO entitlement_sync.queue (user_key, due, lane, reconcile_id, reconcile_due)
            SELECT \(firstKey) + n, now() + interval '1 day', 2, entitlement_sync.new_id(), now() + interval '1 day'
              FROM generate_series(1, 200) AS n;
            ALTER TABLE entitlement_sync.ticket ENABLE TRIGGER USER;
            ALTER TABLE entitlement_sync.ticket_event ENABLE TRIGGER USER;
            """
    }
}
