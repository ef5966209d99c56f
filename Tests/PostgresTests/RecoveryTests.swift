import Postgres
import TestSupport
import Testing

struct RecoveryTests {
    @Test(.database) func `a connection that was killed while idle is replaced before it is used`() async throws {
        try await withPool(try configuration { $0.maxConnections = 1 }) { pool in
            let first = try await pool.withConnection { await $0.backendPID }
            try await withConnection { observer in
                try await observer.query("SELECT pg_terminate_backend(\(Int(first))::int, 5000)")
            }
            let second = try await pool.withConnection { await $0.backendPID }
            #expect(second != first)
            #expect(pool.statistics.idle == 1)
        }
    }

    @Test(.database) func `a connection that is killed at work is an error once, then replaced`() async throws {
        try await withPool(try configuration { $0.maxConnections = 1 }) { pool in
            try await withConnection { observer in
                async let outcome = failure { try await pool.query("SELECT pg_sleep(60) /* victim */") }
                try await statementRuns("/* victim */", seenBy: observer)
                try await observer.query(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%/* victim */%' AND pid <> pg_backend_pid()"
                )
                let error = try await outcome
                #expect(error.code == .connectionLost)
                #expect(error.sqlState == SQLState.adminShutdown)
                #expect(error.isRetryable && error.isOutcomeUnknown)
                #expect(try await pool.query("SELECT 1").count == 1)
            }
        }
    }

    @Test(.database) func `168: a session that turned out read-only is not used again`() async throws {
        try await withPool(try configuration { $0.maxConnections = 1 }) { pool in
            try await pool.query("CREATE TABLE t (id int8)")
            let first = try await pool.withConnection { connection in
                try await connection.query("SET default_transaction_read_only = on")
                let error = try await failure { try await connection.query("INSERT INTO t VALUES (1)") }
                #expect(error.sqlState == SQLState.readOnlyTransaction)
                #expect(error.isConnectionFailure && error.isRetryable)
                return await connection.backendPID
            }
            try await pool.query("INSERT INTO t VALUES (1)")
            #expect(try await pool.withConnection { await $0.backendPID } != first)
        }
    }

    @Test(arguments: [false, true])
    func `a pool survives a restart of the server`(immediate: Bool) async throws {
        let server = try await PrivatePostgres.start()
        let configuration = PostgresConfiguration(
            connectionString: server.url(database: "postgres"),
            maxConnections: 4,
            acquireTimeout: .seconds(60)
        )
        try await withPool(configuration) { pool in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<8 { group.addTask { _ = try await pool.query("SELECT pg_sleep(0.05)") } }
                try await group.waitForAll()
            }
            #expect(pool.statistics.idle == 4)
            try await server.restart(immediate: immediate)
            for number in 0..<4 { #expect(try await pool.query("SELECT \(number)")[0].decode(Int.self) == number) }
        }
        try await server.stop(immediately: true)
    }

    @Test func `a pool works again once the server is back`() async throws {
        let server = try await PrivatePostgres.start()
        let configuration = PostgresConfiguration(connectionString: server.url(database: "postgres"), maxConnections: 2)
        try await withPool(configuration) { pool in
            try await pool.query("SELECT 1")
            try await server.stop()
            for _ in 0..<3 {
                let error = try await failure { try await pool.query("SELECT 1") }
                #expect(error.code == .connectionFailed)
                #expect(error.isRetryable)
            }
            try await server.start()
            #expect(try await pool.query("SELECT 1").count == 1)
        }
        try await server.stop(immediately: true)
    }

    @Test func `after one connection was lost in silence the others are asked before they are used`() async throws {
        let relay = Relay(to: try await PrivatePostgres.shared.port)
        defer { relay.end() }
        let configuration = PostgresConfiguration(
            connectionString: "host=127.0.0.1 port=\(relay.port) user=postgres dbname=postgres",
            maxConnections: 3
        )
        try await withPool(configuration) { pool in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<3 { group.addTask { _ = try await pool.query("SELECT pg_sleep(2)") } }
                try await group.waitForAll()
            }
            #expect(pool.statistics.idle == 3)
            relay.turn(.silent)
            let lost = Task { try await failure { try await pool.query("SELECT 1") } }
            try await eventually { pool.statistics.leased == 1 }
            lost.cancel()
            #expect(try await lost.value.code == .cancelled)
            relay.turn(.fair)
            #expect(pool.statistics.idle == 2)
            // Unasked, each would take its statement's whole time limit and fail.
            for number in 0..<3 { #expect(try await pool.query("SELECT \(number)")[0].decode(Int.self) == number) }
        }
    }
}
