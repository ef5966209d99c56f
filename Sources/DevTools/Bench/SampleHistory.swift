package import Postgres

/// What a database holds that has been at work for 90 days.
package enum SampleHistory {
    /// Keys that no sequence gets to.
    static let firstKey = 2_000_000_000
    /// Jobs of the last 14 days, however long the history is.
    private static let recent = 300

    /// Loads jobs that have ended, with all that they left: users, purchases, decisions, events and tickets in
    /// proportion.
    ///
    /// The jobs are older than 14 days, spread evenly over `days` between the 90th and the 14th before today, and about
    /// the users `past-1` to `past-` the number of `users`: a fifth of the jobs, and at least a tenth. Days and months
    /// have partitions of their own.
    package static func load(_ jobs: Int, users: Int? = nil, over days: Int = 75, into pool: PostgresPool) async throws
    {
        let users = users ?? jobs / 5
        try await pool.withConnection { connection in
            try await connection.execute(script: "SET synchronous_commit = off; BEGIN;\n\(people(jobs, users))\nCOMMIT")
            // A day at a time, so that rows lie as they were written.
            for day in 0...days {
                let times = day < days ? Self.day(day, of: days, jobs) : Self.lastDays(jobs)
                try await connection.execute(
                    script: "BEGIN;\n\(past(users, times))\n\(rows(isRecent: day == days))\nCOMMIT"
                )
            }
            try await connection.execute(script: "BEGIN;\n\(tickets)\nCOMMIT; RESET synchronous_commit")
            try await connection.query("VACUUM (ANALYZE)")
        }
    }

    /// The numbers and times of a day's jobs.
    private static func day(_ day: Int, of days: Int, _ jobs: Int) -> String {
        """
        SELECT n, now() - interval '89 days' + \(day) * (interval '75 days' / \(days)) + n * (interval '20 hours' / \(jobs)) AS at
          FROM generate_series(\(day == 0 ? days : day), \(jobs), \(days)) AS n
        """
    }

    /// The same of the last 14 days.
    private static func lastDays(_ jobs: Int) -> String {
        """
        SELECT \(jobs) + n AS n, now() - interval '14 days' + n * (interval '14 days' / \(recent + 1)) AS at
          FROM generate_series(1, \(recent)) AS n
        """
    }

    private static func people(_ jobs: Int, _ users: Int) -> String {
        """
        -- Partitions of the days and months that are over, as a database has them that was set up 90 days ago.
        DO $$
        DECLARE
            today CONSTANT date := (now() AT TIME ZONE 'UTC')::date;
            t     record;
            start date;
            first date;
            day   date;
        BEGIN
            FOR t IN SELECT * FROM entitlement_sync.partitioned_tables() LOOP
                start := date_trunc(CASE t.step WHEN '1 day' THEN 'day' ELSE 'month' END, today - 90);
                EXECUTE format('DROP TABLE entitlement_sync.%I', t.name || '_before');
                SELECT min(p.first_day) INTO first
                  FROM entitlement_sync.partitions_of(t.name) AS p;
                FOR day IN SELECT d::date FROM generate_series(start, first - 1, t.step) AS d LOOP
                    PERFORM entitlement_sync.cover_ids(t.name, t.name || to_char(day, '_YYYYMMDD'),
                                                       entitlement_sync.first_id_of(day),
                                                       entitlement_sync.first_id_of((day + t.step)::date));
                END LOOP;
                PERFORM entitlement_sync.cover_ids(t.name, t.name || '_before', NULL, entitlement_sync.first_id_of(start));
            END LOOP;
        END
        $$;

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
        INSERT INTO entitlement_sync.queue (user_key, due, lane, reconcile_id, reconcile_due)
        SELECT \(firstKey) + n, now() + interval '1 day', 2, entitlement_sync.new_id(), now() + interval '1 day'
          FROM generate_series(1, 200) AS n;
        """
    }

    private static func past(_ users: Int, _ times: String) -> String {
        """
        CREATE TEMPORARY TABLE past ON COMMIT DROP AS
        SELECT t.n, \(firstKey) + 1 + t.n % (\(users)) AS user_key, (t.n % 2)::smallint AS kind, t.at,
               (left(entitlement_sync.first_id_at(t.at)::text, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid AS id
          FROM (\(times)) AS t;
        """
    }

    /// What a day's jobs left.
    private static func rows(isRecent: Bool) -> String {
        """
        INSERT INTO entitlement_sync.job_history (id, user_key, finished_at, kind, attempt, state, outcome, message_key, last_error)
        SELECT p.id, p.user_key, p.at + interval '1 second', p.kind, 0,
               CASE WHEN \(isRecent) AND p.n % 30 = 0 THEN 'dead' ELSE 'done' END,
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
        SELECT p.user_key, 'past-' || p.n, sha256('[]'), p.id, p.at FROM past AS p WHERE \(isRecent) AND p.kind = 0;
        -- Closed ones are put in as they are, which no application may.
        ALTER TABLE entitlement_sync.ticket DISABLE TRIGGER USER;
        -- Of a ticket in ten jobs all that are older than 14 days are closed.
        INSERT INTO entitlement_sync.ticket
               (claimant_key, owner_key, purchase_id, kind, state, store, original_id, visible, created_at, clock_from,
                due_at, closed_at)
        SELECT p.user_key, \(firstKey) + p.n / 10, \(firstKey) + p.n / 10, 'owner_mismatch',
               CASE WHEN \(isRecent) THEN 'new' ELSE 'refused' END, 'app_store', 'past-' || p.n / 10, true, p.at, p.at,
               p.at + interval '1 day', CASE WHEN NOT \(isRecent) THEN p.at + interval '1 hour' END
          FROM past AS p WHERE p.n % 10 = 0 ORDER BY p.at;
        ALTER TABLE entitlement_sync.ticket ENABLE TRIGGER USER;
        """
    }

    private static let tickets = """
        ALTER TABLE entitlement_sync.ticket_event DISABLE TRIGGER USER;
        INSERT INTO entitlement_sync.ticket_event (ticket_id, at, kind)
        SELECT t.id, t.created_at, k FROM entitlement_sync.ticket AS t, unnest(ARRAY['opened', 'touched']) AS k;
        ALTER TABLE entitlement_sync.ticket_event ENABLE TRIGGER USER;
        """
}
