package import Postgres

/// How sessions, and the statements of some transactions, are set up on the server.
package enum SessionSettings {
    /// What holds for every session.
    ///
    /// How a statement is planned is left to the server, for the host's adapter is called in the same sessions. Helpers of a
    /// statement are not: their start takes longer than what a few rows take, and they take the cores from others.
    package static let ordinary = [
        "jit": "off", "max_parallel_workers_per_gather": "0", "lock_timeout": "5s",
        "idle_in_transaction_session_timeout": "30s",
    ]

    /// For the rest of a transaction whose own statements are sent again and again: they reach rows by key.
    ///
    /// A session keeps their plans, so that no batch is planned again; one plan serves arrays of every length.
    /// Were they made while a table is nearly empty, they would read all of it ever after.
    package static let plansByKey: PostgresQuery = """
        SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
               set_config('enable_mergejoin', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)
        """

    /// The server's own choice again, for what the host does in such a transaction.
    package static let plansOfServer: PostgresQuery = """
        SELECT set_config('enable_seqscan', NULL, true), set_config('enable_hashjoin', NULL, true),
               set_config('enable_mergejoin', NULL, true), set_config('plan_cache_mode', NULL, true)
        """

    /// How a claim is made.
    ///
    /// It follows the index and stops, instead of gathering and sorting all that waits: a queue is empty in one moment and full
    /// in the next, and the plan is kept. And it does not wait for the disk: a crash of the server may undo it, and then the
    /// worker that held the jobs can't end them any more (their rows have no owner), and they are claimed again. Their ends
    /// are committed in full.
    static let claim: PostgresQuery = """
        SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
               set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
               set_config('plan_cache_mode', 'force_generic_plan', true), set_config('synchronous_commit', 'off', true)
        """
}

extension PostgresConnection {
    /// Calls the host's adapter in a transaction of `plansByKey`, planned as the server chooses.
    ///
    /// Nothing is put back after a failure, whose transaction or savepoint takes the settings along.
    nonisolated package func withPlansOfServer<Result>(
        _ body: (PostgresConnection) async throws -> Result
    ) async throws -> Result {
        try await query(SessionSettings.plansOfServer)
        let result = try await body(self)
        try await query(SessionSettings.plansByKey)
        return result
    }
}
