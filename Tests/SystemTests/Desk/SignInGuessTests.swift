import Crypto
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing

/// How guesses of passwords and codes are slowed and stopped, without keeping the operator out.
@Suite struct SignInGuessTests {
    @Test func `Guessing is slowed by name and by address, whether or not there is such an operator`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            _ = try await desk.enter("root", .admin)
            for name in ["root", "nobody"] {
                var refused = 0
                for turn in 0..<30 {
                    let result = try await desk.signIn(
                        .init(name: name, password: "guess \(turn) of many"),
                        from: "198.51.100.\(turn)"
                    )
                    refused += result.isRefused ? 1 : 0
                }
                // Waits of up to half a minute; the first ones are of seconds.
                #expect((5...8).contains(refused), "\(name): \(refused)")
            }
            // The one that is an operator's is slowed for two seconds at most, wherever others guess.
            let wait = try await world.number(
                "SELECT ceil(extract(epoch FROM entitlement_sync.try_wait('root', sha256('x'), NULL)))::bigint"
            )
            #expect(wait <= 2)
            var slowed = 0
            for turn in 0..<60 {
                let result = try await desk.signIn(.init(name: "user-\(turn)", password: "guess"), from: "203.0.113.1")
                slowed += result.isWaiting ? 1 : 0
            }
            #expect(slowed > 0)
        }
    }

    @Test func `A name that is nobody's is hashed for like any other, and always with the same salt`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let first = try await desk.operators.salt(of: "nobody", from: nil, client: nil, usual: "scrypt$15$8$3")
            let again = try await desk.operators.salt(of: "nobody", from: nil, client: nil, usual: "scrypt$15$8$3")
            let other = try await desk.operators.salt(of: "nobodyelse", from: nil, client: nil, usual: "scrypt$15$8$3")
            #expect(first == again && first.bytes != other.bytes && first.bytes.count == 16)
            #expect(first.cost == "scrypt$15$8$3")
        }
    }

    @Test func `Who guesses in an operator's name keeps out no browser and terminal that they have signed in with`()
        async throws
    {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            for turn in 0..<12 {
                _ = try await desk.signIn(.init(name: "root", password: "guess"), from: "198.51.100.\(turn)")
                // Also from the operator's own address: an office, or a tunnel.
                _ = try await desk.signIn(.init(name: "root", password: "guess"))
            }
            #expect(
                try await desk.signIn(.init(name: "root", password: "guess"), from: "198.51.100.99").isWaiting
            )
            try await desk.forgetCode(of: "root")
            guard case .signedIn = try await desk.signIn(root) else {
                Issue.record("root is kept out")
                return
            }
        }
    }

    @Test func `Who guesses from where the operator has signed in before is slowed by what fails there`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            _ = try await desk.enter("root", .admin)
            var refused = 0
            for turn in 0..<20 {
                refused += try await desk.signIn(.init(name: "root", password: "guess \(turn)")).isRefused ? 1 : 0
            }
            #expect((5...8).contains(refused), "\(refused)")
        }
    }

    @Test func `An office may share an address: those who know their passwords are not slowed`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            for _ in 0..<70 {
                let result = try await desk.signIn(.init(name: "root", password: DeskPeople.password))
                guard result.needs == [.code] else {
                    // The operator's own count, which a code ends.
                    try await world.pool.query("UPDATE entitlement_sync.sign_in_attempt SET at = at - interval '1 day'")
                    continue
                }
            }
            let failures = try await world.number(
                "SELECT count(*) FROM entitlement_sync.sign_in_attempt AS t WHERE t.result = 'tried'"
            )
            #expect(failures == 0)
            _ = root
        }
    }

    // MARK: Guessing past the count

    /// What a try of root's shows, with a code.
    private func shown(_ desk: DeskPeople, _ code: String) async throws -> (key: [UInt8], digest: [UInt8]) {
        let salt = try await desk.operators.salt(of: "root", from: nil, client: nil, usual: "")
        let key = try PasswordKey(of: DeskPeople.password, salt: salt.bytes, cost: .least).bytes
        return (key, Array(SHA256.hash(data: Data("root".utf8) + [0] + key + Data(code.utf8))))
    }

    private func attempt(
        _ announced: String,
        _ key: [UInt8],
        _ code: String,
        on connection: PostgresConnection
    ) async throws -> String? {
        try await connection.query(
            """
            SELECT entitlement_sync.sign_in(\(announced)::text::uuid, 'root', \(PostgresBytes(key)), \(code), sha256('s'),
                                            'console', NULL, NULL, NULL, NULL, NULL)
            """
        ).first?.decode(String.self, at: 0)
    }

    private func announce(_ digest: [UInt8], on connection: PostgresConnection) async throws -> String {
        let rows = try await connection.query(
            """
            SELECT a.announced::text
              FROM entitlement_sync.announce_sign_in('root', NULL, NULL, \(PostgresBytes(digest)), sha256('k')) AS a
            """
        )
        return try #require(try rows.first?.decode(String?.self, at: 0))
    }

    @Test func `A try holds only for what was announced before, so that no rollback undoes its count`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            try await desk.forgetCode(of: "root")
            let code = try await desk.code(root.device)
            let (key, digest) = try await shown(desk, code)
            // In the same transaction, where both would be undone together.
            let together = try await world.pool.withTransaction { connection in
                let id = try await announce(digest, on: connection)
                return try await attempt(id, key, code, on: connection)
            }
            #expect(together == "refused")
            // Another guess than the announced one.
            let (_, other) = try await shown(desk, "000000")
            let id = try await world.pool.withTransaction { try await announce(other, on: $0) }
            let swapped = try await world.pool.withTransaction { try await attempt(id, key, code, on: $0) }
            #expect(swapped == "refused")
            // Used up by then.
            let again = try await world.pool.withTransaction { try await attempt(id, key, "000000", on: $0) }
            #expect(again == "refused")
            let mine = try await world.pool.withTransaction { try await announce(digest, on: $0) }
            let right = try await world.pool.withTransaction { try await attempt(mine, key, code, on: $0) }
            #expect(right == "signed_in")
        }
    }

    @Test func `What is wrong with an argument is said before anything is read, and tells of nothing that is stored`()
        async throws
    {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            try await desk.forgetCode(of: "root")
            let code = try await desk.code(root.device)
            let (key, digest) = try await shown(desk, code)
            for rest in [
                "sha256('s'), 'console', NULL, 'x', NULL, NULL, NULL",
                "sha256('s'), 'console', NULL, 'x', 'x', 'x', NULL",
                "'s', 'console', NULL, NULL, NULL, NULL, NULL",
                "sha256('s'), 'elsewhere', NULL, NULL, NULL, NULL, NULL",
                "sha256('s'), 'console', NULL, NULL, NULL, NULL, 'x'",
                "sha256('s'), 'console', 'x', NULL, NULL, NULL, NULL",
                "NULL, 'console', NULL, NULL, NULL, NULL, NULL",
            ] {
                let id = try await world.pool.withTransaction { try await announce(digest, on: $0) }
                let error = await #expect(throws: PostgresError.self) {
                    try await world.pool.query(
                        """
                        SELECT entitlement_sync.sign_in(\(id)::text::uuid, 'root', \(PostgresBytes(key)), \(code),
                                                        \(rawSQL: rest))
                        """
                    )
                }
                #expect(error?.sqlState == "22023" && !(error?.detail ?? "").contains("Failing row"), "\(rest)")
                try await world.pool.query("DELETE FROM entitlement_sync.sign_in_attempt")
            }
            await expectRefusal("22023") {
                try await world.pool.query(
                    """
                    SELECT entitlement_sync.sign_in(NULL, 'nobody', NULL, '1', sha256('s'), 'console', NULL, NULL, NULL, NULL,
                                                    NULL)
                    """
                )
            }
        }
    }

    // MARK: Guessing the second factor

    @Test func `Wrong codes after the right password lock the operator wherever they come from, and alarm`()
        async throws
    {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            try await desk.forgetCode(of: "root")
            func attempt(_ code: String, password: String = DeskPeople.password, from address: Int) async throws
                -> String
            {
                let typed = SignIn.Credentials(name: "root", password: password, code: code)
                let signIn = SignIn(operators: desk.operators, kind: .console, cost: .least)
                // What slows a name down is not looked at here.
                try await world.pool.query("DELETE FROM entitlement_sync.sign_in_attempt WHERE NOT knows")
                try await world.pool.query("UPDATE entitlement_sync.sign_in_attempt SET client = sha256('another')")
                return switch try await signIn.attempt(typed, from: "192.0.2.\(address)", client: nil) {
                case .signedIn: "signed in"
                case .not(let outcome): "\(outcome)"
                }
            }
            // Whoever does not know the password locks nobody out.
            for number in 1...12 {
                #expect(try await attempt("000000", password: "a guess at it", from: number) == "refused")
            }
            let good = try await desk.code(root.device)
            let wrong = good == "000001" ? "000002" : "000001"
            for number in 1...10 { #expect(try await attempt(wrong, from: 20 + number) == "refused", "\(number)") }
            #expect(try await world.alarms() == ["operator_guessed"])
            #expect(try await attempt(try await desk.code(root.device), from: 99) == "locked")
            // Time passes, until the lock is over; then each wrong code locks for twice as long.
            func pass(minutes: Int) async throws {
                try await world.pool.query(
                    "UPDATE entitlement_sync.sign_in_attempt SET at = at - \(Double(minutes)) * interval '1 minute'"
                )
            }
            let longer: PostgresQuery = """
                SELECT count(*) FROM entitlement_sync.operator AS o, entitlement_sync.codes_locked_until(o, NULL) AS l
                 WHERE l.until > clock_timestamp() + interval '100 seconds'
                """
            try await pass(minutes: 3)
            #expect(try await world.number(longer) == 0)
            #expect(try await attempt(wrong, from: 40) == "refused")
            #expect(try await world.number(longer) == 1)
            try await pass(minutes: 10)
            #expect(try await attempt(try await desk.code(root.device), from: 41) == "signed in")
            let left = try await world.number(
                """
                SELECT max(l.wrong) FROM entitlement_sync.operator AS o, entitlement_sync.codes_locked_until(o, NULL) AS l
                """
            )
            #expect(left == 0)
        }
    }
}
