import Postgres
import TestSupport
import Testing

@Suite(.database) struct CancellationTests {
    @Test(arguments: [true, false])
    func `cancelling the task stops the statement and keeps the connection`(sessionState: Bool) async throws {
        try await withConnection({ $0.sessionState = sessionState }) { connection in
            try await withConnection { observer in
                let pid = await connection.backendPID
                let task = Task { try await connection.query("SELECT pg_sleep(60) /* stop me */") }
                try await statementRuns("/* stop me */", seenBy: observer)
                task.cancel()
                let error = try await failure { _ = try await task.value }
                #expect(error.code == .cancelled)
                #expect(error.sqlState == SQLState.queryCanceled)
                #expect(!error.isRetryable)
                #expect(try await connection.query("SELECT 1").count == 1)
                #expect(await connection.backendPID == pid)
            }
        }
    }

    @Test func `a statement that was cancelled before it began is never sent`() async throws {
        try await withConnection { connection in
            try await connection.execute(script: "CREATE TABLE t (id int8)")
            let task = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                try await connection.query("INSERT INTO t VALUES (1)")
            }
            let error = try await failure { _ = try await task.value }
            #expect(error.code == .cancelled)
            #expect(try await connection.query("SELECT * FROM t").isEmpty)
        }
    }

    @Test func `a cancelled transaction is rolled back`() async throws {
        try await withPool(try configuration { $0.maxConnections = 1 }) { pool in
            try await pool.query("CREATE TABLE t (id int8)")
            try await withConnection { observer in
                let task = Task {
                    try await pool.withTransaction { connection in
                        try await connection.query("INSERT INTO t VALUES (1)")
                        try await connection.query("SELECT pg_sleep(60) /* in transaction */")
                    }
                }
                try await statementRuns("/* in transaction */", seenBy: observer)
                task.cancel()
                let error = try await failure { try await task.value }
                #expect(error.code == .cancelled)
                #expect(try await pool.query("SELECT * FROM t").isEmpty)
            }
        }
    }

    @Test(arguments: [true, false])
    func `statements end at their limit and keep the connection`(sessionState: Bool) async throws {
        func change(_ configuration: inout PostgresConfiguration) {
            configuration.statementTimeout = .milliseconds(100)
            configuration.sessionState = sessionState
        }
        try await withConnection(change) { connection in
            let start = ContinuousClock.now
            let error = try await failure { _ = try await connection.query("SELECT pg_sleep(600)") }
            #expect(error.code == .timeout)
            #expect(error.sqlState == SQLState.queryCanceled)
            #expect(ContinuousClock.now - start < .seconds(50))
            #expect(try await connection.query("SELECT 1").count == 1)
        }
    }

    @Test func `closing a connection ends its statement`() async throws {
        try await withConnection { connection in
            try await withConnection { observer in
                async let outcome = failure { _ = try await connection.query("SELECT pg_sleep(60) /* closing */") }
                try await statementRuns("/* closing */", seenBy: observer)
                await connection.close()
                #expect(try await outcome.code == .closed)
            }
        }
    }

    @Test func `many tasks that are cancelled at any moment leave a pool that works`() async throws {
        try await withPool(try configuration { $0.maxConnections = 4 }) { pool in
            await withTaskGroup(of: Void.self) { group in
                for number in 0..<60 {
                    group.addTask {
                        await withTaskGroup(of: Void.self) { inner in
                            inner.addTask { _ = try? await pool.query("SELECT pg_sleep(0.02)") }
                            inner.addTask {
                                try? await Task.sleep(for: .milliseconds(number % 30))
                                // Ends together with the sleep: this group cancels what is left.
                            }
                            await inner.next()
                            inner.cancelAll()
                        }
                    }
                }
            }
            #expect(pool.statistics.leased == 0)
            #expect(pool.statistics.waiting == 0)
            #expect(pool.statistics.connecting == 0)
            for number in 0..<20 {
                let rows = try await pool.query("SELECT \(number)")
                #expect(try rows[0].decode(Int.self) == number)
            }
        }
    }
}
