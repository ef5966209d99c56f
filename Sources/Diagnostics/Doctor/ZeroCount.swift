import Postgres
import Queue

/// A count of the records that has to be zero.
struct ZeroCount {
    var name: String
    var query: PostgresQuery
    var fine: String
    /// Follows the count.
    var wrong: String
    var fix: String

    func check(in pool: PostgresPool) async throws -> Check {
        let count = try await pool.query(query).first?.decode(Int64.self, at: 0) ?? 0
        return Check(name, zero: count, fine: fine, wrong: wrong, fix: fix)
    }

    /// Invariants are checked on the newest decisions: on all of them it would take longer than anybody waits.
    private static let newest: Int64 = 100_000

    private static let adapterFunctions = [
        "read_users", "lock_users", "set_type", "freeze_assets", "unfreeze_assets", "next_asset", "count_assets",
        "page_users", "count_subscribers",
    ]

    /// All of them, in the order of `doctor`.
    static func all(_ limits: DoctorLimits) -> [ZeroCount] {
        records + work(limits) + invariants
    }

    private static let invariants = Invariant.all.filter { $0.name != "ineligible_subscribers" }.map {
        ZeroCount(name: "law." + $0.name, query: $0.broken(newest), fine: $0.fine, wrong: $0.wrong, fix: $0.fix)
    }

    private static let records: [ZeroCount] = [
        ZeroCount(
            name: "roles",
            query: """
                SELECT count(*) FROM unnest('{worker,api,support,auditor,client,console}'::text[]) AS r(name)
                 WHERE NOT EXISTS (SELECT 1 FROM pg_roles AS p WHERE p.rolname = 'entitlement_sync_' || r.name)
                """,
            fine: "all six roles exist",
            wrong: "roles are missing",
            fix:
                "Run entitlement-sync migrate as a user with CREATEROLE, or have a superuser run what it prints and run it again."
        ),
        ZeroCount(
            name: "leases",
            query: """
                SELECT count(*) FROM entitlement_sync.queue AS q
                 WHERE q.owner IS NOT NULL
                   AND NOT EXISTS (SELECT 1 FROM entitlement_sync.worker AS w
                                    WHERE w.epoch = q.owner AND w.expires_at > now() - interval '1 minute')
                """,
            fine: "no job is held by a dead worker",
            wrong: "jobs are held by workers that are gone",
            fix: "Start a worker: it frees them within its lease."
        ),
        ZeroCount(
            name: "sequences",
            query: """
                SELECT count(*)
                  FROM (VALUES ('entitlement_sync.purchase_id_block',
                                (SELECT max(x.id) FROM entitlement_sync.purchase AS x)),
                               ('entitlement_sync.ticket_number',
                                (SELECT max(x.id) FROM entitlement_sync.ticket AS x)),
                               (pg_get_serial_sequence('entitlement_sync.user_sync', 'user_key'),
                                (SELECT max(x.user_key) FROM entitlement_sync.user_sync AS x)),
                               (pg_get_serial_sequence('entitlement_sync.grant', 'id'),
                                (SELECT max(x.id) FROM entitlement_sync."grant" AS x)),
                               -- The newest confirmations have numbers of decisions as well.
                               ('entitlement_sync.decision_id_seq',
                                (SELECT greatest((SELECT max(x.id) FROM entitlement_sync.decision AS x), max(n.decision_id))
                                   FROM (SELECT h.decision_id FROM entitlement_sync.job_history AS h
                                          ORDER BY h.id DESC LIMIT 10000) AS n)),
                               (pg_get_serial_sequence('entitlement_sync.inbox', 'id'),
                                (SELECT max(x.id) FROM entitlement_sync.inbox AS x))) AS s(name, top)
                 WHERE CASE WHEN has_sequence_privilege(s.name, 'USAGE')
                            THEN coalesce(pg_sequence_last_value(s.name::regclass), 0) ELSE s.top END < s.top
                """,
            fine: "every sequence is ahead of its table",
            wrong: "sequences are behind their tables, as after a restore that left them out",
            fix: "As the schema's owner: SELECT setval(SEQUENCE, (SELECT max(ID) FROM TABLE));"
                + " purchase_id_block: round the maximum up to a multiple of 1000. decision_id_seq: the greatest of decision.id,"
                + " user_sync.confirmed_id and job_history.decision_id."
        ),
        ZeroCount(
            name: "dead_jobs",
            query: "SELECT count(*) FROM entitlement_sync.dead_job",
            fine: "no dead jobs",
            wrong: "jobs are dead",
            fix:
                "See entitlement-sync queue dead, mend the cause, then entitlement-sync queue retry --error ERROR, or JOB for one."
        ),
        ZeroCount(
            name: "quarantine",
            query: "SELECT count(*) FROM entitlement_sync.queue AS q WHERE q.lane = 9",
            fine: "no job runs alone",
            wrong: "jobs run alone because their workers kept dying",
            fix: "Search the workers' logs for crashes around these jobs."
        ),
        ZeroCount(
            name: "refused_assets",
            query: """
                SELECT count(*) FROM entitlement_sync.asset_batch AS b
                 WHERE b.failed IS NOT NULL AND b.at > now() - interval '7 days'
                """,
            fine: "no asset was refused by the host's database",
            wrong: "times an asset was refused by the host's own triggers or constraints",
            fix: "Mend the trigger or constraint (asset_batch.failed holds the SQLSTATE), then reconcile the user."
        ),
        ZeroCount(
            name: "acknowledgements",
            query: """
                SELECT count(*) FROM entitlement_sync.acknowledgement AS a
                 WHERE a.attempt > 2 OR a.deadline < now() + interval '1 day' AND a.attempt > 0
                """,
            fine: "no sale waits to be acknowledged to Google Play for long",
            wrong: "granted sales could not be acknowledged to Google Play, which will refund them",
            fix:
                "Mend what the store.google_play check or the worker's log says; acknowledgement.last_error holds the code."
        ),
        ZeroCount(
            name: "paused",
            query: "SELECT count(*) FROM entitlement_sync.control AS c WHERE c.paused AND c.cause IS NULL",
            fine: "nothing is paused",
            wrong: "switches are paused",
            fix: "entitlement-sync resume demotions|transfers|all, once the reason is gone."
        ),
    ]

    /// Whether the queue is worked off, and what that rests on.
    private static func work(_ limits: DoctorLimits) -> [ZeroCount] {
        let invariantAge = limits.invariantAge.microseconds
        return [
            ZeroCount(
                name: "workers",
                query: """
                    SELECT count(*) FROM entitlement_sync.queue AS q
                     WHERE q.due < now() - interval '10 seconds'
                       AND NOT EXISTS (SELECT 1 FROM entitlement_sync.worker AS w WHERE w.expires_at > now())
                    """,
                fine: "nothing waits for a worker to be started",
                wrong: "users have due jobs, and no worker is alive",
                fix: "Start one: entitlement-sync worker. The end of its log says why one that was started is gone."
            ),
            ZeroCount(
                name: "queue_age",
                query: """
                    SELECT count(*) FROM entitlement_sync.queue AS q
                     WHERE q.owner IS NULL
                       AND NOT EXISTS (SELECT 1 FROM entitlement_sync.control AS c WHERE c.name = 'all' AND c.paused)
                       -- A restore's user waits also while it is delayed, as for a store that is down.
                       AND CASE WHEN q.restore_id IS NOT NULL
                                THEN coalesce(q.restore_queued_at, entitlement_sync.id_time(q.restore_id))
                                WHEN q.lane = 1 THEN q.due END
                           < now() - \(limits.wait.microseconds) * interval '1 microsecond'
                    """,
                fine: "no restore and no due event waits for long",
                wrong: "users' restores or due events wait for longer than they should",
                fix:
                    "See the stores' health and budgets below: one that is down, or slow. If all are well, start more workers."
            ),
            ZeroCount(
                name: "law_watch",
                query: """
                    SELECT count(*) FROM unnest(\(Invariant.all.map(\.name) + [InvariantMonitor.checked])) AS l(name)
                     WHERE EXISTS (SELECT 1 FROM entitlement_sync.worker AS w
                                    WHERE w.expires_at > now()
                                      AND w.started_at < now() - \(invariantAge) * interval '1 microsecond')
                       AND NOT EXISTS (SELECT 1 FROM entitlement_sync.invariant_check AS c
                                        WHERE c.name = l.name
                                          -- Without a number while a check runs.
                                          AND (c.broken IS NOT NULL OR c.checked_at > now() - interval '2 minutes')
                                          AND c.checked_at > now() - \(invariantAge) * interval '1 microsecond')
                    """,
                fine: "workers check the invariants and drift",
                wrong: "invariants or drift were not checked for long although workers run; their metrics are stale",
                fix: "Search for \"invariant monitor failed\" in the workers' logs, and mend what it says."
            ),
            ZeroCount(
                name: "partitions",
                query: Partitions.missing,
                fine: "the partitions of the coming \(Partitions.daysAhead) days exist",
                wrong: "partitions for the next \(Partitions.daysAhead) days are missing; requests are accepted"
                    + " meanwhile, and their rows are kept for longer",
                fix: "Let a worker run (it makes them every hour), or SELECT entitlement_sync.maintain_partitions():"
                    + " it says which table a transaction holds."
            ),
            ZeroCount(
                name: "adapter",
                query: """
                    SELECT count(*) FROM unnest(\(adapterFunctions)) AS f(name)
                     WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_proc AS p
                                         JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
                                        WHERE n.nspname = 'entitlement_sync_host' AND p.proname = f.name)
                    """,
                fine: "every function of the host adapter exists",
                wrong: "functions of the host adapter are missing",
                fix: "Run entitlement-sync migrate, with --adapter FILE for tables of other names."
            ),
        ]
    }
}
