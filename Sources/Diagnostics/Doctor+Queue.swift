import Postgres
import Queue

extension Doctor {
    /// Counts that tell whether the queue is worked off, and what that rests on.
    var workCounts: [Count] {
        [
            Count(
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
            Count(
                name: "queue_age",
                query: """
                    SELECT count(*) FROM entitlement_sync.queue AS q
                     WHERE q.lane IN (0, 1) AND q.owner IS NULL
                       AND q.due < now() - \(limits.wait.microseconds) * interval '1 microsecond'
                    """,
                fine: "no due restore or event waits for long",
                wrong: "users' due restores or events wait for longer than they should",
                fix: "Look at the store's budget and health below, then start more workers."
            ),
            Count(
                name: "law_watch",
                query: """
                    SELECT count(*) FROM unnest(\(Invariant.all.map(\.name) + [InvariantMonitor.looked])) AS l(name)
                     WHERE EXISTS (SELECT 1 FROM entitlement_sync.worker AS w
                                    WHERE w.expires_at > now()
                                      AND w.started_at < now() - \(limits.lawAge.microseconds) * interval '1 microsecond')
                       AND NOT EXISTS (SELECT 1 FROM entitlement_sync.invariant_check AS c
                                        WHERE c.name = l.name
                                          -- Without a number while a check runs.
                                          AND (c.broken IS NOT NULL OR c.checked_at > now() - interval '2 minutes')
                                          AND c.checked_at > now() - \(limits.lawAge.microseconds) * interval '1 microsecond')
                    """,
                fine: "workers look at the laws and for drift",
                wrong: "laws or drift were not looked at for long although workers run; their metrics are stale",
                fix: "Search for \"invariant monitor failed\" in the workers' logs, and mend what it says."
            ),
            Count(
                name: "partitions",
                query: Partitions.missing,
                fine: "the partitions of the coming \(Partitions.daysAhead) days exist",
                wrong: "partitions for the next \(Partitions.daysAhead) days are missing; requests are accepted"
                    + " meanwhile, and their rows are kept for longer",
                fix: "Let a worker run (it makes them every hour), or SELECT entitlement_sync.maintain_partitions():"
                    + " it says which table a transaction holds."
            ),
            Count(
                name: "adapter",
                query: """
                    SELECT count(*) FROM unnest(\(Self.adapterFunctions)) AS f(name)
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

    private static let adapterFunctions = [
        "read_users", "lock_users", "set_type", "freeze_assets", "unfreeze_assets", "next_asset", "count_assets",
        "page_users", "count_subscribers",
    ]
}
