import Postgres
import TestSupport
import Testing

@Suite(.database) struct TransactionTests {
    private struct Stop: Error {}

    private func count(_ connection: PostgresConnection) async throws -> Int {
        try await #require(connection.query("SELECT count(*) FROM t").first).decode(Int.self)
    }

    private func withTable(_ body: (PostgresConnection) async throws -> Void) async throws {
        try await withConnection { connection in
            try await connection.execute(script: "CREATE TABLE t (id int8 UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            try await body(connection)
        }
    }

    @Test func `returning commits, throwing rolls back`() async throws {
        try await withTable { connection in
            let result = try await connection.withTransaction { connection in
                try await connection.query("INSERT INTO t VALUES (1)")
                return "done"
            }
            #expect(result == "done")
            await #expect(throws: Stop.self) {
                try await connection.withTransaction { connection in
                    try await connection.query("INSERT INTO t VALUES (2)")
                    throw Stop()
                }
            }
            #expect(try await count(connection) == 1)
            #expect(await !connection.isInTransaction)
        }
    }

    @Test(arguments: PostgresIsolation.allCases)
    func `the isolation level is the one asked for`(isolation: PostgresIsolation) async throws {
        try await withTable { connection in
            let level = try await connection.withTransaction(isolation) { connection in
                try await connection.query("SELECT current_setting('transaction_isolation')").first?.decode(String.self)
            }
            #expect(level == isolation.rawValue.lowercased())
        }
    }

    @Test func `a failed savepoint undoes only itself`() async throws {
        try await withTable { connection in
            try await connection.withTransaction { connection in
                try await connection.query("INSERT INTO t VALUES (1)")
                let error = try await failure {
                    try await connection.withSavepoint { connection in
                        try await connection.query("INSERT INTO t VALUES (2)")
                        try await connection.withSavepoint { try await $0.query("INSERT INTO t VALUES (3)") }
                        try await connection.query("SELECT 1 / 0")
                    }
                }
                #expect(error.sqlState == "22012")
                try await connection.withSavepoint { try await $0.query("INSERT INTO t VALUES (4)") }
            }
            let rows = try await connection.query("SELECT id FROM t ORDER BY id")
            #expect(try rows.map { try $0.decode(Int.self) } == [1, 4])
        }
    }

    @Test func `an error that the closure swallows still fails the transaction`() async throws {
        try await withTable { connection in
            let error = try await failure {
                try await connection.withTransaction { connection in
                    try await connection.query("INSERT INTO t VALUES (1)")
                    _ = try? await connection.query("SELECT 1 / 0")
                }
            }
            #expect(error.sqlState == SQLState.inFailedTransaction)
            #expect(try await count(connection) == 0)
        }
    }

    @Test func `a refusal at commit is the server's answer, not an unknown outcome`() async throws {
        try await withTable { connection in
            let error = try await failure {
                try await connection.withTransaction { connection in
                    try await connection.query("INSERT INTO t VALUES (1), (1)")
                }
            }
            #expect(error.code == .serverError)
            #expect(error.sqlState == SQLState.uniqueViolation)
            #expect(try await count(connection) == 0)
        }
    }

    @Test func `a transaction inside another is a fault of the caller and spoils nothing`() async throws {
        try await withTable { connection in
            try await connection.withTransaction { connection in
                try await connection.query("INSERT INTO t VALUES (1)")
                let error = try await failure { try await connection.withTransaction { _ in } }
                #expect(error.code == .misuse)
            }
            #expect(try await count(connection) == 1)
        }
    }

    @Test func `167: a connection killed while COMMIT is under way leaves an unknown outcome`() async throws {
        try await withTable { connection in
            // A deferred trigger makes COMMIT itself wait for a lock that the observer holds.
            try await connection.execute(
                script: """
                    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
                        $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
                    CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
                        FOR EACH ROW EXECUTE FUNCTION wait();
                    """
            )
            try await withConnection { observer in
                try await observer.query("SELECT pg_advisory_lock(7)")
                let pid = Int(await connection.backendPID)
                async let outcome = failure {
                    try await connection.withTransaction { try await $0.query("INSERT INTO t VALUES (1)") }
                }
                try await statementRuns("COMMIT", seenBy: observer)
                try await observer.query("SELECT pg_terminate_backend(\(pid)::int)")
                let error = try await outcome
                #expect(error.code == .commitUnknown)
                #expect(error.sqlState == SQLState.adminShutdown)
                #expect(error.isOutcomeUnknown && !error.isRetryable && error.isConnectionFailure)
            }
        }
    }

    @Test func `a connection killed inside a transaction is lost, and nothing happened`() async throws {
        try await withTable { connection in
            try await withConnection { observer in
                let pid = Int(await connection.backendPID)
                let error = try await failure {
                    try await connection.withTransaction { connection in
                        try await connection.query("INSERT INTO t VALUES (1)")
                        try await observer.query("SELECT pg_terminate_backend(\(pid)::int, 5000)")
                    }
                }
                #expect(error.code == .connectionLost)
                #expect(!error.isOutcomeUnknown && error.isRetryable)
                #expect(try await count(observer) == 0)
            }
        }
    }

    @Test(arguments: [true, false])
    func `a transaction travels with its first statement, whatever that is`(sessionState: Bool) async throws {
        try await withConnection({ $0.sessionState = sessionState }) { connection in
            try await connection.execute(script: "CREATE TABLE t (id int8)")
            try await withConnection { observer in
                let pid = Int(await connection.backendPID)
                func isOpenThere() async throws -> Bool? {
                    try await observer.query(
                        "SELECT a.xact_start IS NOT NULL FROM pg_stat_activity AS a WHERE a.pid = \(pid)::int"
                    ).first?.decode(Bool.self)
                }
                let firsts: [(PostgresConnection) async throws -> Void] = [
                    { try await $0.query("INSERT INTO t VALUES (1)") },
                    { try await $0.pipeline(["INSERT INTO t VALUES (1)", "SELECT 1"]) },
                    { try await $0.execute(script: "INSERT INTO t VALUES (1); SELECT 1") },
                    { connection in
                        _ = try await connection.withSavepoint { try await $0.query("INSERT INTO t VALUES (1)") }
                    },
                    { _ in },
                ]
                for (index, first) in firsts.enumerated() {
                    await #expect(throws: Stop.self) {
                        try await connection.withTransaction { connection in
                            #expect(await connection.isInTransaction)
                            #expect(try await isOpenThere() == false)
                            try await first(connection)
                            #expect(try await isOpenThere() == (index < firsts.count - 1))
                            throw Stop()
                        }
                    }
                    #expect(await !connection.isInTransaction)
                    #expect(try await count(connection) == 0, "what came first was not part of the transaction")
                }
                try await connection.withTransaction { _ in }
                #expect(try await count(connection) == 0)
            }
        }
    }

    @Test func `what goes ahead of the first statement is not counted as one of them`() async throws {
        try await withTable { connection in
            let error = try await failure {
                try await connection.withTransaction { try await $0.pipeline(["SELECT 1", "SELECT 1 / 0"]) }
            }
            #expect(error.sqlState == "22012")
            #expect(error.statement == 1)
        }
    }

    @Test func `a connection that dies before the first statement is answered is lost, and nothing happened`()
        async throws
    {
        try await withTable { connection in
            try await withConnection { observer in
                let pid = Int(await connection.backendPID)
                try await observer.query("SELECT pg_advisory_lock(8)")
                async let outcome = failure {
                    try await connection.withTransaction {
                        try await $0.pipeline(["INSERT INTO t VALUES (1)", "SELECT pg_advisory_xact_lock(8)"])
                    }
                }
                try await statementRuns("SELECT pg_advisory_xact_lock(8)", seenBy: observer)
                try await observer.query("SELECT pg_terminate_backend(\(pid)::int)")
                let error = try await outcome
                #expect(error.code == .connectionLost)
                #expect(!error.isOutcomeUnknown && error.isRetryable)
                #expect(try await count(observer) == 0)
            }
        }
    }

    @Test(arguments: [true, false])
    func `the last statements travel with the COMMIT`(sessionState: Bool) async throws {
        try await withConnection({ $0.sessionState = sessionState }) { connection in
            try await connection.execute(script: "CREATE TABLE t (id int8 UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            let rows = try await connection.withTransaction { connection in
                try await connection.query("INSERT INTO t VALUES (1)")
                let rows = try await connection.pipelineAndCommit([
                    "INSERT INTO t VALUES (2)", "SELECT count(*) FROM t",
                ])
                let error = try await failure { try await connection.query("INSERT INTO t VALUES (3)") }
                #expect(error.code == .misuse)
                return rows
            }
            #expect(rows.count == 2)
            #expect(try rows.last?.first?.decode(Int.self) == 2)
            #expect(await !connection.isInTransaction)
            // A transaction of these statements alone.
            try await connection.withTransaction { _ = try await $0.pipelineAndCommit(["INSERT INTO t VALUES (3)"]) }
            #expect(try await count(connection) == 3)

            let refused = try await failure {
                try await connection.withTransaction { connection in
                    try await connection.query("INSERT INTO t VALUES (4)")
                    _ = try await connection.pipelineAndCommit(["SELECT 1", "SELECT 1 / 0", "SELECT 2"])
                }
            }
            #expect(refused.sqlState == "22012" && refused.statement == 1)
            let atCommit = try await failure {
                try await connection.withTransaction {
                    _ = try await $0.pipelineAndCommit(["INSERT INTO t VALUES (1)"])
                }
            }
            #expect(atCommit.sqlState == SQLState.uniqueViolation && atCommit.statement == 1)
            await #expect(throws: Stop.self) {
                try await connection.withTransaction { connection in
                    _ = try await connection.pipelineAndCommit(["INSERT INTO t VALUES (5)"])
                    throw Stop()
                }
            }
            #expect(try await count(connection) == 4, "what was committed stays, whatever its owner does afterwards")
            #expect(await !connection.isInTransaction)
            let outside = try await failure { _ = try await connection.pipelineAndCommit(["SELECT 1"]) }
            #expect(outside.code == .misuse)
        }
    }

    @Test func `a connection killed while the last statements and COMMIT are under way leaves an unknown outcome`()
        async throws
    {
        try await withTable { connection in
            try await withConnection { observer in
                try await observer.query("SELECT pg_advisory_lock(9)")
                let pid = Int(await connection.backendPID)
                async let outcome = failure {
                    try await connection.withTransaction {
                        _ = try await $0.pipelineAndCommit(["SELECT pg_advisory_xact_lock(9)"])
                    }
                }
                try await statementRuns("SELECT pg_advisory_xact_lock(9)", seenBy: observer)
                try await observer.query("SELECT pg_terminate_backend(\(pid)::int)")
                let error = try await outcome
                #expect(error.code == .commitUnknown && error.isOutcomeUnknown)
            }
        }
    }

    @Test func `the cancelled task's commit goes on`() async throws {
        try await withTable { connection in
            let task = Task {
                try await connection.withTransaction { connection in
                    try await connection.query("INSERT INTO t VALUES (1)")
                    withUnsafeCurrentTask { $0?.cancel() }
                }
            }
            try await task.value
            #expect(try await count(connection) == 1)
        }
    }

    @Test func `169: conflicts are run again, from the beginning, a bounded number of times`() async throws {
        try await withTable { connection in
            try await connection.query("INSERT INTO t VALUES (1)")
            try await withPool(try configuration()) { pool in
                var runs = 0
                try await pool.retrying(3, .repeatableRead) { inner in
                    runs += 1
                    try await inner.query("SELECT * FROM t")
                    if runs == 1 { try await connection.query("UPDATE t SET id = id + 1") }
                    try await inner.query("UPDATE t SET id = id + 10")
                }
                #expect(runs == 2)
                #expect(try await pool.query("SELECT id FROM t").first?.decode(Int.self) == 12)

                runs = 0
                let error = try await failure {
                    try await pool.retrying(3) { inner in
                        runs += 1
                        try await inner.query("DO $$ BEGIN RAISE 'x' USING ERRCODE = '40P01'; END $$")
                    }
                }
                #expect(runs == 3)
                #expect(error.sqlState == SQLState.deadlockDetected)
            }
        }
    }
}
