import Postgres
import TestSupport
import Testing

@Suite(.database) struct ErrorTests {
    @Test(arguments: [
        ("SELEC 1", "42601"), ("SELECT 1 / 0", "22012"), ("SELECT * FROM missing", "42P01"),
        ("SELECT missing()", "42883"),
        ("INSERT INTO t VALUES (1)", "23505"), ("INSERT INTO t VALUES (-1)", "23514"),
        ("INSERT INTO t VALUES (NULL)", "23502"),
        ("SELECT 'secret-value'::int8", "22P02"),
        ("DO $$ BEGIN RAISE 'secret-value' USING ERRCODE = 'ES001'; END $$", "ES001"),
    ])
    func `the server's errors carry their state and leave the session usable`(sql: String, state: String) async throws {
        try await withConnection { connection in
            try await connection.execute(
                script: "CREATE TABLE t (id int8 PRIMARY KEY CHECK (id > 0)); INSERT INTO t VALUES (1)"
            )
            let error = try await failure { _ = try await connection.query("\(rawSQL: sql)") }
            #expect(error.code == .serverError)
            #expect(error.sqlState == state)
            #expect(!error.message.isEmpty)
            #expect(try await connection.query("SELECT \(5)").first?.decode(Int.self) == 5)
        }
    }

    @Test func `violations name their constraint and table, and details stay out of the description`() async throws {
        try await withConnection { connection in
            try await connection.execute(script: "CREATE TABLE t (email text CONSTRAINT one_email UNIQUE)")
            try await connection.query("INSERT INTO t VALUES (\("private@example.org"))")
            let error = try await failure {
                _ = try await connection.query("INSERT INTO t VALUES (\("private@example.org"))")
            }
            #expect(error.sqlState == SQLState.uniqueViolation)
            #expect(error.constraint == "one_email")
            #expect(error.table == "t")
            #expect(error.description.contains("one_email"))
            #expect(!error.description.contains("private@"))
            #expect(error.debugDescription.contains("private@"))
        }
    }

    @Test func `values that data exceptions quote stay out of the description`() async throws {
        try await withConnection { connection in
            let error = try await failure { _ = try await connection.query("SELECT \("private-value")::int8") }
            #expect(error.description == "serverError 22P02")
            #expect(error.message.contains("private-value"))
        }
    }

    @Test func `copy is refused and the connection closed`() async throws {
        try await withConnection { connection in
            let error = try await failure { _ = try await connection.query("COPY (SELECT 1) TO STDOUT") }
            #expect(error.code == .protocolViolation)
            #expect(await !connection.isOpen)
            let second = try await failure { _ = try await connection.query("SELECT 1") }
            #expect(second.code == .closed)
        }
    }

    @Test func `a second statement beside a running one is a fault of the caller`() async throws {
        try await withConnection { connection in
            try await withConnection { observer in
                async let slow = failure { try await connection.query("SELECT pg_sleep(30) /* first */") }
                try await statementRuns("/* first */", seenBy: observer)
                let error = try await failure { _ = try await connection.query("SELECT 1") }
                #expect(error.code == .misuse)
                try await observer.query("SELECT pg_cancel_backend(\(Int(await connection.backendPID))::int)")
                #expect(try await slow.code == .timeout)
            }
        }
    }

    @Test func `scripts run as a whole or not at all`() async throws {
        try await withConnection { connection in
            let error = try await failure {
                try await connection.execute(script: "CREATE TABLE a (); CREATE TABLE b (); SELECT missing()")
            }
            #expect(error.sqlState == "42883")
            #expect(error.position == 46)
            #expect(
                try await connection.query("SELECT to_regclass('a')::text").first?.decode(String?.self) == .some(nil)
            )
            try await connection.execute(script: "CREATE TABLE a (); CREATE TABLE b ();")
            try await connection.execute(script: "")
            #expect(try await connection.query("SELECT to_regclass('a')::text").first?.decode(String.self) == "a")
        }
    }

    @Test func `a script that leaves a transaction open shows`() async throws {
        try await withConnection { connection in
            try await connection.execute(script: "BEGIN; CREATE TABLE a ()")
            #expect(await connection.isInTransaction)
        }
    }
}
