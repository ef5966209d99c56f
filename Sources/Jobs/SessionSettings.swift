import Postgres

/// How the worker's sessions are set up on the server.
package enum SessionSettings {
    /// The worker's statements reach rows by key, or by an index in its order.
    ///
    /// A plan that pays only with fresh statistics is kept away: a queue is empty in one moment and full in the next. One
    /// plan serves arrays of every length, so nothing is gained by planning anew for each.
    package static let worker = [
        "enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off",
        "plan_cache_mode": "force_generic_plan", "lock_timeout": "5s", "idle_in_transaction_session_timeout": "30s",
    ]

    /// Keeps a claim from gathering and sorting all that waits: it is to follow the index, and to stop.
    static let inOrder: PostgresQuery = "SELECT set_config('enable_bitmapscan', 'off', true)"
}
