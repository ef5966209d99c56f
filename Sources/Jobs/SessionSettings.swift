import Postgres

/// How sessions are set up on the server.
package enum SessionSettings {
    /// Our statements reach rows by key, or by an index in its order.
    ///
    /// A plan that pays only with fresh statistics is kept away: a queue is empty in one moment and full in the next. So are
    /// helpers of a statement, whose start takes longer than what a few rows take, and who take the cores from others.
    package static let ordinary = [
        "enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off",
        "max_parallel_workers_per_gather": "0",
        "lock_timeout": "5s", "idle_in_transaction_session_timeout": "30s",
    ]

    /// As above, for the few statements that a worker sends again and again.
    ///
    /// One plan serves arrays of every length, so nothing is gained by planning anew for each. Whoever reads much with
    /// one statement (`doctor`, a sweep over all users) may need a plan for its own values.
    package static let worker = ordinary.merging(["plan_cache_mode": "force_generic_plan"]) { $1 }

    /// How a claim is made.
    ///
    /// It follows the index and stops, instead of gathering and sorting all that waits. And it does not wait for the disk:
    /// a crash of the server may undo it, and then whoever held the jobs can't end them any more (their rows have no
    /// owner), and they are claimed again. What they come to is committed in full.
    static let claim: PostgresQuery = """
        SELECT set_config('enable_bitmapscan', 'off', true), set_config('synchronous_commit', 'off', true)
        """
}
