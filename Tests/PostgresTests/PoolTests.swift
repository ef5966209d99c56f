import Logging
import Postgres
import TestSupport
import Testing

@Suite(.database) struct PoolTests {
    @Test func `many tasks share few connections`() async throws {
        try await withPool(try configuration { $0.maxConnections = 4 }) { pool in
            try await pool.query("CREATE TABLE t (id int8 PRIMARY KEY)")
            try await withThrowingTaskGroup(of: Int32.self) { group in
                for task in 0..<64 {
                    group.addTask {
                        try await pool.withConnection { connection in
                            for step in 0..<5 {
                                try await connection.query("INSERT INTO t VALUES (\(task * 5 + step))")
                            }
                            return await connection.backendPID
                        }
                    }
                }
                let servers = try await group.reduce(into: Set()) { $0.insert($1) }
                #expect(servers.count <= 4)
            }
            #expect(try await pool.query("SELECT count(*) FROM t")[0].decode(Int.self) == 320)
            #expect(pool.statistics.leased == 0 && pool.statistics.waiting == 0)
            #expect((1...4).contains(pool.statistics.idle))
        }
    }

    @Test func `a task waits no longer than allowed, and no more than allowed wait`() async throws {
        func change(_ configuration: inout PostgresConfiguration) {
            configuration.maxConnections = 1
            configuration.maxWaiters = 1
            // Long enough to be seen waiting.
            configuration.acquireTimeout = .seconds(3)
        }
        try await withPool(try configuration(change)) { pool in
            try await pool.withConnection { _ in
                async let waiting = failure { try await pool.query("SELECT 1") }
                try await eventually { pool.statistics.waiting == 1 }
                let refused = try await failure { try await pool.query("SELECT 1") }
                #expect(refused.code == .poolExhausted)
                #expect(try await waiting.code == .poolExhausted)
                #expect(pool.statistics.waiting == 0)
            }
            #expect(try await pool.query("SELECT 1").count == 1)
        }
    }

    @Test func `a cancelled task stops waiting`() async throws {
        try await withPool(try configuration { $0.maxConnections = 1 }) { pool in
            try await pool.withConnection { _ in
                let task = Task { try await failure { try await pool.query("SELECT 1") } }
                try await eventually { pool.statistics.waiting == 1 }
                task.cancel()
                #expect(try await task.value.code == .cancelled)
                #expect(pool.statistics.waiting == 0)
            }
        }
    }

    @Test func `a transaction that was left open does not reach the next task`() async throws {
        try await withPool(try configuration { $0.maxConnections = 1 }) { pool in
            try await pool.query("CREATE TABLE t (id int8)")
            let first = try await pool.withConnection { connection in
                try await connection.execute(script: "BEGIN; INSERT INTO t VALUES (1)")
                return await connection.backendPID
            }
            try await pool.withConnection { connection in
                #expect(await connection.backendPID == first)
                #expect(await !connection.isInTransaction)
                let rows = try await connection.query("SELECT * FROM t")
                #expect(rows.isEmpty)
            }
        }
    }

    @Test func `a closed pool refuses, and tells those who wait`() async throws {
        let pool = PostgresPool(
            configuration: try configuration { $0.maxConnections = 1 },
            logger: Logger(label: "tests")
        )
        try await withConnection { observer in
            async let running = failure { try await pool.query("SELECT pg_sleep(60) /* holds */") }
            try await statementRuns("/* holds */", seenBy: observer)
            async let waiting = failure { try await pool.query("SELECT 1") }
            try await eventually { pool.statistics.waiting == 1 }
            await pool.close(grace: .milliseconds(50))
            #expect(try await waiting.code == .closed)
            #expect(try await running.code == .closed)
            #expect(try await failure { try await pool.query("SELECT 1") }.code == .closed)
            await pool.close()
        }
    }

    @Test func `closing lets running work end`() async throws {
        let pool = PostgresPool(configuration: try configuration(), logger: Logger(label: "tests"))
        try await withConnection { observer in
            try await observer.query("SELECT pg_advisory_lock(5)")
            async let running = pool.query("SELECT pg_advisory_lock(5), 5 /* ends */")
            try await statementRuns("/* ends */", seenBy: observer)
            async let closed: Void = pool.close()
            try await observer.query("SELECT pg_advisory_unlock(5)")
            await closed
            #expect(try await running[0].decode(Int.self, at: 1) == 5)
        }
    }

    @Test func `running the pool ends with its task, and closes it`() async throws {
        let pool = PostgresPool(configuration: try configuration(), logger: Logger(label: "tests"))
        let service = Task { await pool.run() }
        #expect(try await pool.query("SELECT 1").count == 1)
        service.cancel()
        await service.value
        #expect(try await failure { try await pool.query("SELECT 1") }.code == .closed)

        let second = PostgresPool(configuration: try configuration(), logger: Logger(label: "tests"))
        let secondService = Task { await second.run() }
        await second.close()
        await secondService.value
    }

    @Test func `an unreachable server is an error for everybody, soon`() async throws {
        let closed = ClosedPort()
        let configuration = PostgresConfiguration(
            connectionString: "host=127.0.0.1 port=\(closed.number) user=u",
            maxConnections: 2,
            acquireTimeout: .seconds(120)
        )
        let start = ContinuousClock.now
        try await withPool(configuration) { pool in
            try await withThrowingTaskGroup(of: PostgresError.Code.self) { group in
                for _ in 0..<20 { group.addTask { try await failure { try await pool.query("SELECT 1") }.code } }
                for try await code in group { #expect(code == .connectionFailed) }
            }
        }
        #expect(ContinuousClock.now - start < .seconds(60))
    }
}
