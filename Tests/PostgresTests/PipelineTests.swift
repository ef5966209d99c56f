import Postgres
import TestSupport
import Testing

@Suite(.database) struct PipelineTests {
    private func numbers(_ connection: PostgresConnection) async throws -> [Int] {
        try await connection.query("SELECT t.n FROM t ORDER BY t.n").map { try $0.decode(Int.self) }
    }

    private func withTable(
        sessionState: Bool = true,
        _ body: (PostgresConnection) async throws -> Void
    ) async throws {
        try await withConnection({
            $0.sessionState = sessionState
            $0.sessionSettings = ["lock_timeout": "7s"]
        }) { connection in
            try await connection.execute(script: "CREATE TABLE t (n int8 PRIMARY KEY)")
            try await body(connection)
        }
    }

    @Test(arguments: [true, false])
    func `answers come in the order of the statements`(sessionState: Bool) async throws {
        try await withTable(sessionState: sessionState) { connection in
            for _ in 0..<3 {
                let rows = try await connection.pipeline([
                    "INSERT INTO t SELECT generate_series(1, 3)", "SELECT t.n FROM t ORDER BY t.n",
                    "SELECT \(41) + 1", "SELECT \(1) + 1 WHERE false", "DELETE FROM t", "SELECT \(1) + 1",
                ])
                #expect(rows.count == 6)
                #expect(rows[0].affected == 3)
                #expect(try rows[1].map { try $0.decode(Int.self) } == [1, 2, 3])
                #expect(try rows[2].first?.decode(Int.self) == 42)
                #expect(rows[3].isEmpty)
                #expect(rows[4].affected == 3)
                #expect(try rows[5].first?.decode(Int.self) == 2)
            }
            #expect(try await connection.pipeline([]).isEmpty)
        }
    }

    @Test func `a statement is prepared once, however often the pipeline has it`() async throws {
        try await withConnection { connection in
            let count: PostgresQuery = "SELECT count(*) FROM pg_prepared_statements"
            let before = try #require(try await connection.query(count).first).decode(Int.self)
            for _ in 0..<3 { try await connection.pipeline(["SELECT \(1) AS same", "SELECT \(2) AS same"]) }
            #expect(try #require(try await connection.query(count).first).decode(Int.self) == before + 1)
        }
    }

    @Test(arguments: [true, false])
    func `after a failure nothing runs, and alone they are one transaction`(sessionState: Bool) async throws {
        try await withTable(sessionState: sessionState) { connection in
            let error = try await failure {
                try await connection.pipeline([
                    "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1) -- again", "INSERT INTO t VALUES (2)",
                ])
            }
            #expect(error.sqlState == SQLState.uniqueViolation)
            #expect(error.constraint == "t_pkey")
            #expect(try await numbers(connection) == [])
            // What was skipped was not prepared either.
            try await connection.pipeline(["INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)"])
            #expect(try await numbers(connection) == [2, 3])
        }
    }

    @Test(arguments: [true, false])
    func `a failure spoils the transaction around the pipeline`(sessionState: Bool) async throws {
        try await withTable(sessionState: sessionState) { connection in
            let error = try await failure {
                try await connection.withTransaction { connection in
                    try await connection.pipeline(["INSERT INTO t VALUES (1)", "SELECT 1 / \(0)"])
                }
            }
            #expect(error.sqlState == "22012")
            #expect(try await numbers(connection) == [])
            try await connection.withTransaction { connection in
                try await connection.pipeline(["INSERT INTO t VALUES (5)", "INSERT INTO t VALUES (6)"])
            }
            #expect(try await numbers(connection) == [5, 6])
        }
    }

    @Test func `both sides may send more than the sockets hold`() async throws {
        try await withConnection { connection in
            let text = String(repeating: "x", count: 3_000_000)
            let rows = try await connection.pipeline((0..<8).map { "SELECT \(text) || \($0)::text" })
            for (number, row) in rows.enumerated() {
                #expect(try row.first?.decode(String.self) == text + "\(number)")
            }
        }
    }

    @Test func `a changed schema is met by preparing again`() async throws {
        try await withConnection { connection in
            try await connection.execute(script: "CREATE TABLE t (n int8)")
            let read: [PostgresQuery] = ["SELECT 1", "SELECT * FROM t"]
            try await connection.pipeline(read)
            try await connection.execute(script: "ALTER TABLE t ADD COLUMN b text")
            #expect(try await connection.pipeline(read)[1].columnNames == ["n", "b"])
        }
    }

    @Test func `cancelling the task stops the pipeline and keeps the connection`() async throws {
        try await withTable { connection in
            try await withConnection { observer in
                let task = Task {
                    try await connection.pipeline([
                        "INSERT INTO t VALUES (1)", "SELECT pg_sleep(600) /* in line */", "SELECT pg_sleep(600)",
                    ])
                }
                try await statementRuns("/* in line */", seenBy: observer)
                task.cancel()
                let error = try await failure { try await task.value }
                #expect(error.code == .cancelled)
                #expect(try await numbers(connection) == [])
            }
        }
    }

    @Test func `a connection killed in the middle is lost, and the outcome is unknown`() async throws {
        try await withTable { connection in
            try await withConnection { observer in
                let pid = Int(await connection.backendPID)
                async let outcome = failure {
                    try await connection.pipeline(["INSERT INTO t VALUES (1)", "SELECT pg_sleep(600) /* to die */"])
                }
                try await statementRuns("/* to die */", seenBy: observer)
                try await observer.query("SELECT pg_terminate_backend(\(pid)::int)")
                let error = try await outcome
                #expect(error.code == .connectionLost && error.isOutcomeUnknown)
                #expect(error.sqlState == SQLState.adminShutdown)
                #expect(await !connection.isOpen)
            }
        }
    }

    @Test func `too many parameters are refused without harm`() async throws {
        try await withConnection { connection in
            let query = PostgresQuery(rawSQL: "SELECT 1", binds: (0..<70_000).map { PostgresBind($0) })
            let error = try await failure { try await connection.pipeline(["SELECT 1", query]) }
            #expect(error.code == .misuse)
            #expect(try await connection.pipeline(["SELECT 1", "SELECT 2"]).count == 2)
        }
    }
}
