import Postgres
import TestSupport
import Testing

@Suite(.database) struct StatementTests {
    private func prepared(_ connection: PostgresConnection) async throws -> Int {
        try await #require(connection.query("SELECT count(*) FROM pg_prepared_statements").first).decode(Int.self)
    }

    @Test func `a statement is prepared once for each text and parameter types`() async throws {
        try await withConnection { connection in
            let before = try await prepared(connection)
            for number in 0..<5 { try await connection.query("SELECT \(number) AS same") }
            try await connection.query("SELECT \("text") AS same")
            #expect(try await prepared(connection) == before + 2)
        }
    }

    @Test func `the number of prepared statements is bounded`() async throws {
        try await withConnection { connection in
            for number in 0..<400 { try await connection.query("SELECT \(rawSQL: "\(number)")") }
            let count = try await prepared(connection)
            #expect((200...258).contains(count))
        }
    }

    @Test func `a changed schema is met by preparing again`() async throws {
        try await withConnection { connection in
            try await connection.execute(script: "CREATE TABLE t (a int8); INSERT INTO t VALUES (1)")
            #expect(try await connection.query("SELECT * FROM t").columnNames == ["a"])
            try await connection.execute(script: "ALTER TABLE t ADD COLUMN b text")
            #expect(try await connection.query("SELECT * FROM t").columnNames == ["a", "b"])
        }
    }

    @Test func `inside a transaction a changed schema is an error that a retry mends`() async throws {
        try await withConnection { other in
            try await other.execute(script: "CREATE TABLE t (a int8)")
            try await withPool(try configuration { $0.maxConnections = 1 }) { pool in
                try await pool.query("SELECT * FROM t")
                try await other.execute(script: "ALTER TABLE t ADD COLUMN b text")
                let error = try await failure {
                    try await pool.withTransaction { try await $0.query("SELECT * FROM t") }
                }
                #expect(error.code == .staleStatement)
                #expect(error.isRetryable)

                try await other.execute(script: "ALTER TABLE t ADD COLUMN c text")
                try await pool.query("SELECT 1")
                var runs = 0
                let rows = try await pool.retrying { connection in
                    runs += 1
                    return try await connection.query("SELECT * FROM t")
                }
                #expect(rows.columnNames == ["a", "b", "c"])
                #expect(runs == 1)
            }
        }
    }

    @Test func `statements that the session lost are prepared again`() async throws {
        try await withConnection { connection in
            try await connection.query("SELECT 1")
            try await connection.execute(script: "DISCARD ALL")
            #expect(try await connection.query("SELECT 1").count == 1)
        }
    }

    @Test func `without session state nothing is prepared, and settings end with their transaction`() async throws {
        func change(_ configuration: inout PostgresConfiguration) {
            configuration.sessionState = false
            configuration.sessionSettings = ["lock_timeout": "1234"]
            configuration.statementTimeout = .seconds(9)
        }
        let ask: PostgresQuery = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
        try await withConnection(change) { connection in
            for number in 0..<3 {
                #expect(try await connection.query("SELECT \(number)").first?.decode(Int.self) == number)
            }
            #expect(try await prepared(connection) == 0)
            let alone = try #require(try await connection.query(ask).first)
            #expect(try alone.decode(String.self, String.self) == ("1234ms", "9s"))
            try await connection.withTransaction { connection in
                try await connection.query("SELECT \([1, 2])")
                let inside = try #require(try await connection.query(ask).first)
                #expect(try inside.decode(String.self, String.self) == ("1234ms", "9s"))
            }
            // What the pooler's next client would find.
            try await connection.execute(
                script: """
                    CREATE TABLE left_over AS
                    SELECT current_setting('lock_timeout') AS lock, current_setting('statement_timeout') AS statement
                    """
            )
            let left = try #require(try await connection.query("SELECT l.lock, l.statement FROM left_over AS l").first)
            #expect(try left.decode(String.self, String.self) == ("0", "0"))
        }
    }

    @Test func `without session state no transaction runs as the database's defaults say, and the next client's do`()
        async throws
    {
        let name = try #require(TestDatabase.current).name
        try await withConnection { connection in
            for setting in [
                "isolation = 'serializable'", "read_only = on", "deferrable = on",
            ] {
                try await connection.execute(script: "ALTER DATABASE \(name) SET default_transaction_\(setting)")
            }
        }
        let ask: PostgresQuery = """
            SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')
            """
        try await withConnection({ $0.sessionState = false }) { connection in
            let alone = try #require(try await connection.query(ask).first)
            #expect(try alone.decode(String.self, String.self) == ("read committed", "off"))
            for rows in try await connection.pipeline([ask, ask]) {
                #expect(try rows[0].decode(String.self, String.self) == ("read committed", "off"))
            }
            for isolation in PostgresIsolation.allCases {
                let row = try await connection.withTransaction(isolation) { try await $0.query(ask)[0] }
                #expect(try row.decode(String.self, String.self) == (isolation.rawValue.lowercased(), "off"))
            }
            // What the pooler's next client would find; only to keep it, it may write.
            try await connection.execute(
                script: """
                    BEGIN READ WRITE;
                    CREATE TABLE left_over AS
                    SELECT current_setting('transaction_isolation') AS isolation,
                           current_setting('default_transaction_read_only') AS read_only;
                    COMMIT
                    """
            )
            let left = try #require(
                try await connection.query("SELECT l.isolation, l.read_only FROM left_over AS l").first
            )
            #expect(try left.decode(String.self, String.self) == ("serializable", "on"))
        }
    }

    @Test func `a setting that the server refuses leaves no transaction behind`() async throws {
        func change(_ configuration: inout PostgresConfiguration) {
            configuration.sessionState = false
            configuration.sessionSettings = ["lock_timeout": "never"]
        }
        try await withConnection(change) { connection in
            let error = try await failure { try await connection.withTransaction { try await $0.query("SELECT 1") } }
            #expect(error.sqlState == "22023")
            #expect(await !connection.isInTransaction)
        }
    }

    @Test func `with session state the settings hold from the start`() async throws {
        func change(_ configuration: inout PostgresConfiguration) {
            configuration.sessionSettings = ["lock_timeout": "1234", "application_name": "with space \\ and slash"]
            configuration.statementTimeout = .milliseconds(9500)
        }
        try await withConnection(change) { connection in
            let settings = try await connection.query(
                "SELECT current_setting('lock_timeout'), current_setting('statement_timeout'), current_setting('client_encoding')"
            )
            let row = try #require(settings.first)
            #expect(try row.decode(String.self, String.self, String.self) == ("1234ms", "9500ms", "UTF8"))
        }
    }

    @Test func `too many parameters are refused without harm`() async throws {
        try await withConnection { connection in
            let query = PostgresQuery(rawSQL: "SELECT 1", binds: (0..<70_000).map { PostgresBind($0) })
            let error = try await failure { _ = try await connection.query(query) }
            #expect(error.code == .misuse)
            #expect(try await connection.query("SELECT 1").count == 1)
        }
    }
}
