import Postgres
import TestSupport
import Testing

@Suite(.database) struct ConnectTests {
    /// Tries to connect; returns the error and how long it took.
    private func refusal(
        _ string: String,
        _ change: (inout PostgresConfiguration) -> Void = { _ in }
    ) async throws -> (PostgresError, Duration) {
        var configuration = PostgresConfiguration(connectionString: string)
        change(&configuration)
        let start = ContinuousClock.now
        let error = try await failure { try await PostgresConnection(configuration: configuration).open() }
        return (error, ContinuousClock.now - start)
    }

    /// Connects and returns the port of the server reached.
    private func port(_ string: String, timeout: Duration = .seconds(10)) async throws -> Int {
        let configuration = PostgresConfiguration(connectionString: string, connectTimeout: timeout)
        let connection = PostgresConnection(configuration: configuration)
        try await connection.open()
        let port = try await connection.query("SELECT current_setting('port')::int8")[0].decode(Int.self)
        await connection.close()
        return port
    }

    @Test func `sockets, addresses, names and URIs all lead to the server`() async throws {
        let database = try #require(TestDatabase.current)
        let (port, name) = (Int(database.server.port), database.name)
        for string in [
            database.url, database.tcpURL, "host=localhost port=\(port) user=postgres dbname=\(name)",
            "postgresql://postgres@localhost:\(port)/\(name)?application_name=test",
            "postgresql://postgres@/\(name)?host=\(database.server.socketDirectory)&port=\(port)",
            "host=somewhere.invalid hostaddr=127.0.0.1 port=\(port) user=postgres dbname=\(name)",
        ] {
            #expect(try await self.port(string) == port)
        }
    }

    @Test func `the application names itself`() async throws {
        let name = try await withConnection({ $0.applicationName = "who is it" }) { connection in
            try await connection.query("SELECT current_setting('application_name')")[0].decode(String.self)
        }
        #expect(name == "who is it")
    }

    @Test func `a wrong password is told at once and without the password`() async throws {
        let database = try #require(TestDatabase.current)
        let role = "role_\(database.name)"
        try await database.server.administer(
            """
            DO $$ BEGIN CREATE ROLE password_required; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$;
            CREATE ROLE \(role) LOGIN PASSWORD 'right-secret' IN ROLE password_required
            """
        )
        let string = database.server.url(database: database.name, overTCP: true, user: role)
        let (error, duration) = try await refusal(string + " password=wrong-secret") {
            // Whoever waited for this instead of the server's word would fail below.
            $0.connectTimeout = .seconds(120)
        }
        #expect(error.code == .connectionFailed)
        #expect(error.sqlState == "28P01")
        #expect(error.message.contains("password authentication failed"))
        #expect(!error.isRetryable && error.isConnectionFailure)
        #expect(!String(reflecting: error).contains("secret"))
        #expect(duration < .seconds(60))
        #expect(try await port(string + " password=right-secret") == Int(database.server.port))
        try await database.server.administer("DROP ROLE \(role)")
    }

    @Test func `an unknown database, host or port is told clearly and at once`() async throws {
        let database = try #require(TestDatabase.current)
        let (unknown, _) = try await refusal(database.server.url(database: "missing"))
        #expect(unknown.sqlState == SQLState.invalidCatalogName)
        #expect(unknown.code == .connectionFailed && !unknown.isRetryable)

        let (host, _) = try await refusal("host=no-such-host.invalid user=u")
        #expect(host.description == "connectionFailed: the host name no-such-host.invalid is unknown")
        #expect(host.isRetryable)

        let closed = ClosedPort()
        let (refused, duration) = try await refusal("host=127.0.0.1 port=\(closed.number) user=u") {
            $0.connectTimeout = .seconds(120)
        }
        #expect(refused.code == .connectionFailed && refused.sqlState == nil)
        #expect(refused.message.contains("Connection refused"))
        #expect(refused.isRetryable)
        #expect(duration < .seconds(60))

        let (socket, _) = try await refusal("host=/no/such/directory user=u")
        #expect(socket.message.contains("No such file"))
    }

    @Test func `a server that hangs is given up at the deadline`() async throws {
        let silent = LoopbackListener()
        defer { silent.close() }
        let (error, duration) = try await refusal("host=127.0.0.1 port=\(silent.port) user=u") {
            $0.connectTimeout = .milliseconds(200)
        }
        #expect(error.code == .connectionFailed)
        #expect((.milliseconds(200)..<(.seconds(60))).contains(duration))
    }

    @Test func `connecting ends with its task`() async throws {
        let silent = LoopbackListener()
        defer { silent.close() }
        let task = Task { try await refusal("host=127.0.0.1 port=\(silent.port) user=u").0.code }
        task.cancel()
        #expect(try await task.value == .cancelled)
    }

    @Test func `dead and hanging hosts at the front of the list are passed over`() async throws {
        let database = try #require(TestDatabase.current)
        let silent = LoopbackListener()
        defer { silent.close() }
        let closed = ClosedPort()
        let good = Int(database.server.port)
        let string = """
            host=127.0.0.1,no-such-host.invalid,127.0.0.1,localhost port=\(closed.number),1,\(silent.port),\(good) \
            user=postgres dbname=\(database.name)
            """
        #expect(try await port(string, timeout: .seconds(20)) == good)
    }

    @Test func `168: the wanted kind of server is found behind another`() async throws {
        let database = try #require(TestDatabase.current)
        let primary = try await PrivatePostgres.start()
        let standby = try await primary.standby()
        let ports = (
            standby: Int(standby.port), primary: Int(primary.port), other: Int(database.server.port)
        )
        func string(_ ports: Int..., wanting attributes: String) -> String {
            """
            host=127.0.0.1,127.0.0.1 port=\(ports.map(String.init).joined(separator: ",")) user=postgres dbname=postgres \
            target_session_attrs=\(attributes)
            """
        }
        for (attributes, expected) in [
            ("any", ports.standby), ("read-only", ports.standby), ("read-write", ports.primary),
            ("primary", ports.primary),
        ] {
            #expect(try await port(string(ports.standby, ports.primary, wanting: attributes)) == expected)
        }
        for attributes in ["read-only", "standby", "prefer-standby"] {
            #expect(try await port(string(ports.primary, ports.standby, wanting: attributes)) == ports.standby)
        }
        // Of two primaries neither meets the preference, and the first of the list is taken.
        #expect(try await port(string(ports.primary, ports.other, wanting: "prefer-standby")) == ports.primary)
        let (error, _) = try await refusal(string(ports.primary, ports.other, wanting: "standby"))
        #expect(error.code == .connectionFailed && error.isRetryable)
        try await standby.stop(immediately: true)
        try await primary.stop(immediately: true)
    }

    @Test(arguments: [false, true])
    func `Writes are refused by a standby, and by no default of a database`(sessionState: Bool) async throws {
        let primary = try await PrivatePostgres.start()
        try await primary.administer("CREATE TABLE t (id int8)")
        let standby = try await primary.standby()
        try await primary.administer("ALTER DATABASE postgres SET default_transaction_read_only = on")
        func write(on server: PrivatePostgres, _ attributes: String, in transaction: Bool) async throws {
            let connection = PostgresConnection(
                configuration: PostgresConfiguration(
                    connectionString: server.url(database: "postgres", overTCP: true)
                        + " target_session_attrs=\(attributes)",
                    sessionState: sessionState
                )
            )
            try await connection.open()
            try await run {
                if transaction {
                    try await connection.withTransaction { _ = try await $0.query("INSERT INTO t VALUES (1)") }
                } else {
                    try await connection.query("INSERT INTO t VALUES (1)")
                }
            } finally: {
                await connection.close()
            }
        }
        for transaction in [false, true] {
            let error = try await failure { try await write(on: standby, "any", in: transaction) }
            #expect(error.sqlState == SQLState.readOnlyTransaction)
            #expect(error.isConnectionFailure && error.isRetryable)
            // Where sessions keep no state libpq sees the database's default, and not what we set with each transaction.
            try await write(on: primary, sessionState ? "read-write" : "primary", in: transaction)
        }
        try await standby.stop(immediately: true)
        try await primary.stop(immediately: true)
    }

    @Test func `a nonsensical connection setting is told`() async throws {
        let database = try #require(TestDatabase.current)
        let (mode, _) = try await refusal(database.tcpURL + " sslmode=sometimes")
        #expect(mode.code == .configuration)
        let (option, _) = try await refusal("postgres://u:secret@h/d?unknown=1")
        #expect(option.code == .configuration)
    }
}
