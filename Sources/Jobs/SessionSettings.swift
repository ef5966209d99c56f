package import Postgres

/// How sessions are set up on the server.
package enum SessionSettings {
    /// Helpers of a statement take longer to start than a few rows take, and take the cores from others; so does compiling.
    package static let ordinary = [
        "jit": "off", "max_parallel_workers_per_gather": "0",
        "lock_timeout": "5s", "idle_in_transaction_session_timeout": "30s",
    ]

    /// As above, for the few statements that a worker sends again and again.
    ///
    /// One plan serves arrays of every length, so nothing is gained by planning anew for each. Whoever reads much with
    /// one statement (`doctor`, a sweep over all users) may need a plan for its own values.
    package static let worker = ordinary.merging(["plan_cache_mode": "force_generic_plan"]) { $1 }

    /// From here to the end of the transaction our statements reach rows by key, or by an index in its order.
    ///
    /// Tables of ours fill within minutes, and a session keeps the plan that it made while they were empty: a plan that pays
    /// only with fresh statistics is kept away. The host's functions are planned as its server is set up; see ``asServer``.
    package static let byKey: PostgresQuery = """
        SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
               set_config('enable_mergejoin', 'off', true)
        """

    /// Ends what ``byKey`` began.
    package static let asServer: PostgresQuery = """
        SELECT set_config('enable_seqscan', NULL, true), set_config('enable_hashjoin', NULL, true),
               set_config('enable_mergejoin', NULL, true)
        """

    /// How a claim is made.
    ///
    /// It follows the index and stops, instead of gathering and sorting all that waits; the queue is empty in one moment and
    /// full in the next, so that no statistics of it are right. And it does not wait for the disk:
    /// a crash of the server may undo it, and then whoever held the jobs can't end them any more (their rows have no
    /// owner), and they are claimed again. What they come to is committed in full.
    static let claim: PostgresQuery = """
        SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
               set_config('synchronous_commit', 'off', true)
        """
}
