import Crypto
import Foundation
import Postgres
import SupportDesk
import Testing
import UserRequests

/// Operators: how they come to be, how they sign in, and what their roles let them do.
@Suite struct SignInTests {
    private static func isRefused(_ result: SignIn.Result) -> Bool {
        if case .not(.refused) = result { true } else { false }
    }

    private static func isWaiting(_ result: SignIn.Result) -> Bool {
        if case .not(.wait) = result { true } else { false }
    }

    private static func needs(_ result: SignIn.Result) -> Set<Operators.Need>? {
        if case .not(.needs(let needs)) = result { needs } else { nil }
    }

    @Test func `The codes are those of RFC 6238, cut to six digits`() async throws {
        try await World.with { world in
            let secret = Array("12345678901234567890".utf8)
            for (seconds, code) in [
                (59, "287082"), (1_111_111_109, "081804"), (1_111_111_111, "050471"), (1_234_567_890, "005924"),
                (2_000_000_000, "279037"), (20_000_000_000, "353130"),
            ] as [(Int64, String)] {
                let made = try await world.texts(
                    "SELECT entitlement_sync.one_time_code(\(PostgresBytes(secret)), \(seconds / 30))"
                )
                #expect(made == [code])
                #expect(DeskPeople.code(secret, period: seconds / 30) == code)
            }
        }
    }

    @Test func `Every role and every duty of the database is known to the program`() async throws {
        try await World.with { world in
            let roles = try await world.texts("SELECT DISTINCT d.role FROM entitlement_sync.operator_permission AS d")
            #expect(Set(roles) == Set(DeskRole.allCases.map(\.rawValue)))
        }
    }

    @Test func `Admins may be added by the schema's owner, and by nobody else who is not signed in`()
        async throws
    {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            await expectRefusal { _ = try await desk.enter("ann", .agent) }
            let shown = try PasswordKey(new: "initial password", for: "", cost: .least)
            await expectRefusal {
                try await world.pool.withTransaction { connection in
                    try await connection.query("SET LOCAL SESSION AUTHORIZATION entitlement_sync_support")
                    try await connection.query(
                        """
                        SELECT entitlement_sync.add_operator(NULL, 'eve', 'admin', NULL, \(shown.cost.text),
                                                             \(PostgresBytes(shown.salt)), \(PostgresBytes(shown.bytes)))
                        """
                    )
                }
            }
            let admin = try await desk.enter("root", .admin)
            let agent = try await desk.enter("ann", .agent, by: admin)
            await expectRefusal { _ = try await desk.enter("bob", .agent, by: agent) }
            #expect(try await desk.acting(agent, "work") == "ann")
            await expectRefusal { _ = try await desk.acting(agent, "approve") }
            await expectRefusal { _ = try await desk.acting(admin, "work") }
            let nobody = DeskPeople.Person(name: "", token: SessionToken(), device: SecondFactor())
            await expectRefusal { _ = try await desk.acting(nobody, "view") }
            #expect(try await desk.operators.all(by: admin.token.digest).map(\.name) == ["ann", "root"])
            await expectRefusal { _ = try await desk.operators.all(by: agent.token.digest) }
        }
    }

    @Test func `A name and an account in the app are one operator's`() async throws {
        try await World.with { world in
            try await world.add("user")
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            _ = try await desk.enter("ann", .agent, by: admin, user: "user")
            await expectRefusal("22023") { _ = try await desk.enter("ann", .agent, by: admin) }
            await expectRefusal("22023") { _ = try await desk.enter("bob", .agent, by: admin, user: "user") }
            await expectRefusal("ES001") { _ = try await desk.enter("bob", .agent, by: admin, user: "nobody") }
            await expectRefusal("22023") { _ = try await desk.enter("Bob Smith", .agent, by: admin) }
        }
    }

    @Test func `An initial password opens nothing before the operator has chosen one, and a device where needed`()
        async throws
    {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let initial = try PasswordKey(new: "initial password", for: "", cost: .least)
            try await desk.operators.add(
                .init(name: "root", role: "admin", userID: nil, password: initial.shown),
                by: nil
            )
            var typed = SignIn.Credentials(name: "root", password: "initial password")
            #expect(Self.needs(try await desk.signIn(typed)) == [.password, .device])
            typed.newPassword = DeskPeople.password
            #expect(Self.needs(try await desk.signIn(typed)) == [.device])
            let device = SecondFactor()
            typed.newDevice = device
            #expect(Self.needs(try await desk.signIn(typed)) == [.code])
            typed.code = "000000"
            #expect(Self.isRefused(try await desk.signIn(typed)))
            typed.code = try await desk.code(device)
            typed.newPassword = "initial password"
            await #expect(throws: PasswordKey.Fault.same) { try await desk.signIn(typed) }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.operator_session") == 0)
            typed.newPassword = DeskPeople.password
            guard case .signedIn = try await desk.signIn(typed) else {
                Issue.record("root could not sign in")
                return
            }
            #expect(Self.isRefused(try await desk.signIn(typed)))
        }
    }

    @Test func `An initial password holds for three days`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let initial = try PasswordKey(new: "initial password", for: "", cost: .least)
            try await desk.operators.add(
                .init(name: "root", role: "admin", userID: nil, password: initial.shown),
                by: nil
            )
            let typed = SignIn.Credentials(name: "root", password: "initial password")
            try await world.pool.query(
                "UPDATE entitlement_sync.operator_secret SET expires_at = expires_at - interval '71 hours'"
            )
            #expect(Self.needs(try await desk.signIn(typed)) != nil)
            try await world.pool.query(
                "UPDATE entitlement_sync.operator_secret SET expires_at = expires_at - interval '1 hour'"
            )
            #expect(Self.isRefused(try await desk.signIn(typed)))
        }
    }

    @Test(arguments: DeskRole.allCases)
    func `A second factor is needed by everybody, for all see what is not theirs`(_ role: DeskRole) async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            let initial = try PasswordKey(new: "initial password", for: "", cost: .least)
            try await desk.operators.add(
                .init(name: "ann", role: role.rawValue, userID: nil, password: initial.shown),
                by: admin.token.digest
            )
            let result = try await desk.signIn(
                .init(name: "ann", password: "initial password", newPassword: DeskPeople.password)
            )
            #expect(Self.needs(result) == [.device])
            let vic = try await desk.enter("vic", .viewer, by: admin)
            for duty in ["give_access", "reveal", "refuse", "audit", "work", "approve", "manage"] {
                await expectRefusal { _ = try await desk.operators.acting(vic.token.digest, as: duty) }
            }
        }
    }

    @Test func `A code is taken once, also by two at the same time`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            try await desk.forgetCode(of: "root")
            let shown = SignIn.Credentials(
                name: "root",
                password: DeskPeople.password,
                code: try await desk.code(root.device)
            )
            async let one = desk.signIn(shown)
            async let two = desk.signIn(shown)
            let results = try await [one, two]
            #expect(results.filter(Self.isRefused).count == 1, "\(results)")
            #expect(Self.isRefused(try await desk.signIn(shown)))
            var next = shown
            next.code = try await desk.code(root.device, later: 1)
            guard case .signedIn = try await desk.signIn(next) else {
                Issue.record("the next code was refused")
                return
            }
            // An older one is no good any more, though its half minute is not over.
            #expect(Self.isRefused(try await desk.signIn(shown)))
            #expect(Self.needs(try await desk.signIn(.init(name: "root", password: DeskPeople.password))) == [.code])
        }
    }

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
                    refused += Self.isRefused(result) ? 1 : 0
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
                slowed += Self.isWaiting(result) ? 1 : 0
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

    @Test func `Who is disabled is out at once; who is reset begins anew; the last admin stays`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            let agent = try await desk.enter("ann", .agent, by: admin)
            await expectRefusal("22023") { try await desk.operators.disable("root", by: admin.token.digest) }
            let initial = try PasswordKey(new: "initial password", for: "", cost: .least)
            await expectRefusal("22023") {
                try await desk.operators.reset("root", password: initial.shown, by: admin.token.digest)
            }
            try await desk.operators.disable("ann", by: admin.token.digest)
            await expectRefusal { _ = try await desk.acting(agent, "view") }
            #expect(Self.isRefused(try await desk.signIn(agent)))
            try await desk.operators.reset("ann", password: initial.shown, by: admin.token.digest)
            #expect(Self.isRefused(try await desk.signIn(agent)))
            let device = SecondFactor()
            let result = try await desk.signIn(
                .init(
                    name: "ann",
                    password: "initial password",
                    code: try await desk.code(device),
                    newPassword: "yet another password",
                    newDevice: device
                )
            )
            guard case .signedIn(let token, _) = result else {
                Issue.record("\(result)")
                return
            }
            #expect(try await desk.operators.acting(token.digest, as: "work").name == "ann")
            try await desk.operators.signOut(token.digest)
            await expectRefusal { _ = try await desk.operators.acting(token.digest, as: "view") }
        }
    }

    @Test(arguments: ["seen_at = seen_at - interval '61 minutes'", "started_at = started_at - interval '12 hours'"])
    func `A session ends when it is not used, and at its end`(_ change: String) async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            #expect(try await desk.acting(admin, "manage") == "root")
            try await world.pool.query("UPDATE entitlement_sync.operator_session SET \(rawSQL: change)")
            await expectRefusal { _ = try await desk.acting(admin, "view") }
        }
    }

    @Test func `What asks for a fresh sign-in is refused ten minutes after it, and does not end the session`()
        async throws
    {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            let ask: PostgresQuery =
                "SELECT entitlement_sync.acting(\(PostgresBytes(admin.token.digest)), 'manage', interval '10 minutes')"
            try await world.pool.query(ask)
            try await world.pool.query(
                "UPDATE entitlement_sync.operator_session SET proved_at = proved_at - interval '10 minutes'"
            )
            await expectRefusal("ES007") { try await world.pool.query(ask) }
            #expect(try await desk.acting(admin, "manage") == "root")
        }
    }

    @Test(arguments: ["support", "auditor", "api", "client", "worker"])
    func `What signs an operator in can be read by nobody, and forged by nobody`(_ role: String) async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            _ = try await desk.enter("root", .admin)
            for statement in [
                "SELECT count(*) FROM entitlement_sync.operator_secret",
                "SELECT count(*) FROM entitlement_sync.operator_session",
                "SELECT count(*) FROM entitlement_sync.sign_in_attempt",
                "SELECT count(*) FROM entitlement_sync.known_client",
                "SELECT count(*) FROM entitlement_sync.operator_ban",
                "DELETE FROM entitlement_sync.operator_ban",
                "SELECT count(*) FROM entitlement_sync.terminal_request",
                "INSERT INTO entitlement_sync.operator_identity VALUES (1, 'x', 'x')",
                "SELECT entitlement_sync.use_provider('x')",
                "SELECT entitlement_sync.provider_sign_in('x', 'x', '{eve}', 'admin', '0', sha256('x'), '1 hour')",
                "SELECT count(*) FROM entitlement_sync.desk_secret",
                "INSERT INTO entitlement_sync.operator_session (digest, operator_id, kind) VALUES (sha256('x'), 1, 'console')",
                "INSERT INTO entitlement_sync.operator (name, role) VALUES ('eve', 'admin')",
                "UPDATE entitlement_sync.operator SET role = 'admin'",
                "INSERT INTO entitlement_sync.operator_permission VALUES ('approve', 'agent')",
                "SELECT entitlement_sync.one_time_code('x', 1)",
                "SELECT entitlement_sync.try_wait('root', NULL, NULL)",
                "SELECT entitlement_sync.remember_client(1, sha256('x'))",
                "INSERT INTO entitlement_sync.sign_in_attempt (digest, xact, name, address) VALUES ('x', '1', 'x', 'x')",
                "SELECT entitlement_sync.hmac_sha1('x', 'x')", "SELECT entitlement_sync.operator_named('root')",
                "INSERT INTO entitlement_sync.operator_event (kind) VALUES ('approved')",
            ] {
                await expectRefusal(SQLState.insufficientPrivilege) {
                    try await world.pool.withTransaction { connection in
                        try await connection.query("SET LOCAL ROLE entitlement_sync_\(rawSQL: role)")
                        try await connection.query(PostgresQuery(rawSQL: statement))
                    }
                }
            }
        }
    }

    @Test func `What operators did can't be changed, and tells of refusals`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            _ = try await desk.enter("root", .admin)
            _ = try await desk.signIn(.init(name: "root", password: "wrong"))
            let kinds = try await world.texts("SELECT e.kind FROM entitlement_sync.operator_event AS e ORDER BY e.id")
            #expect(kinds == ["added", "enrolled", "signed_in"])
            let refusals = try await world.texts("SELECT r.reason FROM entitlement_sync.sign_in_refusal AS r")
            #expect(refusals == ["password"])
            for change in [
                "UPDATE entitlement_sync.operator_event SET kind = 'x'",
                "DELETE FROM entitlement_sync.operator_event", "TRUNCATE entitlement_sync.operator_event",
            ] {
                await expectRefusal(SQLState.insufficientPrivilege) {
                    try await world.pool.query(PostgresQuery(rawSQL: change))
                }
            }
        }
    }

    @Test func `The desk's own role can sign people in, and acts for nobody who is not`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            try await world.pool.withTransaction { connection in
                try await connection.query("SET LOCAL ROLE entitlement_sync_support")
                try await connection.query(
                    "SELECT * FROM entitlement_sync.sign_in_salt('root', NULL, NULL, 'scrypt$1$1$1')"
                )
                try await connection.query(
                    "SELECT * FROM entitlement_sync.announce_sign_in('root', NULL, NULL, sha256('x'), sha256('k'))"
                )
                try await connection.query(
                    """
                    SELECT entitlement_sync.sign_in(gen_random_uuid(), 'root', sha256('x'), NULL, sha256('y'), 'console',
                                                    NULL, NULL, NULL, NULL, NULL)
                    """
                )
                try await connection.query("SELECT name, role FROM entitlement_sync.operator")
                try await connection.query(
                    "SELECT * FROM entitlement_sync.operators(\(PostgresBytes(admin.token.digest)))"
                )
            }
            for statement in [
                "SELECT entitlement_sync.acting(NULL, 'view')", "SELECT entitlement_sync.acting(sha256('x'), 'view')",
                "SELECT entitlement_sync.disable_operator(NULL, 'root')",
                "SELECT entitlement_sync.reset_operator(NULL, 'root', 'x', 'x', 'x')",
                "SELECT entitlement_sync.confirm_operator(NULL, 'root')",
                "SELECT entitlement_sync.link_operator(NULL, 'root', 'ann')",
                "SELECT * FROM entitlement_sync.operators(NULL)",
            ] {
                await expectRefusal {
                    try await world.pool.withTransaction { connection in
                        // As somebody who has signed in to the database as nothing else.
                        try await connection.query("SET LOCAL SESSION AUTHORIZATION entitlement_sync_support")
                        try await connection.query(PostgresQuery(rawSQL: statement))
                    }
                }
            }
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
                Self.isWaiting(try await desk.signIn(.init(name: "root", password: "guess"), from: "198.51.100.99"))
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
                refused += Self.isRefused(try await desk.signIn(.init(name: "root", password: "guess \(turn)"))) ? 1 : 0
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
                guard Self.needs(result) == [.code] else {
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

    @Test func `An operator sees where they are signed in, and ends the others`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            let other = try await desk.enter("toor", .admin)
            guard case .signedIn(let stolen, _) = try await desk.signIn(root) else {
                Issue.record("root could not sign in again")
                return
            }
            let seen = try await desk.operators.sessions(of: root.token.digest)
            #expect(seen.count == 2 && seen.filter(\.isThis).count == 1)
            #expect(try await desk.operators.endOthers(than: root.token.digest) == 1)
            await expectRefusal { _ = try await desk.operators.acting(stolen.digest, as: "view") }
            for person in [root, other] { #expect(try await desk.acting(person, "view") == person.name) }
            await expectRefusal { _ = try await desk.operators.sessions(of: stolen.digest) }
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

    // MARK: Making oneself a second pair of eyes

    @Test func `A new account that approves or manages decides nothing before a second admin has confirmed it`()
        async throws
    {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let first = try await desk.enter("root", .admin)
            let second = try await desk.enter("toor", .admin)
            let ann = try await desk.enter("ann", .approver, by: first, confirmed: false)
            #expect(try await desk.acting(ann, "work") == "ann")
            for duty in ["approve", "transfer", "give_access", "refuse"] {
                await expectRefusal { _ = try await desk.acting(ann, duty) }
            }
            await expectRefusal { try await desk.operators.confirm("ann", by: first.token.digest) }
            await expectRefusal { try await desk.operators.confirm("ann", by: ann.token.digest) }
            try await desk.operators.confirm("ann", by: second.token.digest)
            #expect(try await desk.acting(ann, "approve") == "ann")
            let initial = try PasswordKey(new: "initial password", for: "", cost: .least)
            try await desk.operators.reset("ann", password: initial.shown, by: second.token.digest)
            await expectRefusal { try await desk.operators.confirm("ann", by: second.token.digest) }
            try await desk.operators.confirm("ann", by: first.token.digest)
            // An admin whom another one made adds nobody either.
            let third = try await desk.enter("new", .admin, by: first, confirmed: false)
            await expectRefusal { _ = try await desk.enter("bob", .viewer, by: third) }
            #expect(try await world.alarms() == ["operator_held"])
            // No day changes that, which the account of an agent waits for alone.
            let held = try await world.texts(
                "SELECT o.name FROM entitlement_sync.operator AS o WHERE o.held_until > now() + interval '10 years'"
            )
            #expect(held == ["new"])
            _ = try await desk.enter("amy", .agent, by: second, confirmed: false)
            let soon = try await world.texts(
                "SELECT o.name FROM entitlement_sync.operator AS o WHERE o.held_until < now() + interval '25 hours'"
            )
            #expect(soon == ["amy"])
            await expectRefusal { try await desk.operators.confirm("new", by: first.token.digest) }
            // Where nobody else is left, whoever owns the schema says so.
            try await desk.operators.confirm("new", by: nil)
            #expect(try await world.alarms() == [])
            _ = try await desk.enter("bob", .viewer, by: third)
        }
    }

    @Test func `Who manages operators has signed in a few minutes ago`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            try await world.pool.query(
                "UPDATE entitlement_sync.operator_session SET proved_at = proved_at - interval '5 minutes'"
            )
            await expectRefusal("ES007") { _ = try await desk.enter("ann", .agent, by: admin) }
            await expectRefusal("ES007") { try await desk.operators.disable("root", by: admin.token.digest) }
            #expect(try await desk.operators.all(by: admin.token.digest).count == 1)
            let noted = try await world.number(
                "SELECT count(*) FROM entitlement_sync.operator_event AS e WHERE e.kind = 'refused'"
            )
            #expect(noted == 2)
        }
    }

    @Test func `A session that ended while a decision waited for the operator's row is over`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            let ann = try await desk.enter("ann", .agent, by: root)
            let (locked, isLocked) = AsyncStream.makeStream(of: Void.self)
            async let reset: Void = world.pool.withTransaction { connection in
                try await connection.query("SELECT FROM entitlement_sync.operator WHERE name = 'ann' FOR UPDATE")
                isLocked.yield()
                // Long enough for the other to come to the lock, which is looked for.
                for _ in 0..<500 {
                    let waiting = try await connection.query(
                        """
                        SELECT count(*) FROM pg_locks AS l
                         WHERE NOT l.granted AND l.transactionid = pg_current_xact_id()::xid
                        """
                    )
                    if try waiting.first?.decode(Int64.self, at: 0) ?? 0 > 0 { break }
                    try await Task.sleep(for: .milliseconds(10))
                }
                try await connection.query(
                    """
                    DELETE FROM entitlement_sync.operator_session AS s USING entitlement_sync.operator AS o
                     WHERE o.id = s.operator_id AND o.name = 'ann'
                    """
                )
            }
            _ = await locked.first { _ in true }
            // What is only looked at waits for no row.
            await expectRefusal { _ = try await desk.acting(ann, "refuse") }
            try await reset
        }
    }

    @Test func `No older snapshot is acted on`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            for level in ["repeatable read", "serializable"] {
                await expectRefusal("25001") {
                    try await world.pool.withTransaction { connection in
                        try await connection.query("SET TRANSACTION ISOLATION LEVEL \(rawSQL: level)")
                        try await connection.query(
                            "SELECT entitlement_sync.acting(\(PostgresBytes(root.token.digest)), 'view')"
                        )
                    }
                }
            }
        }
    }

    @Test func `What is stored of a session is no session`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            _ = try await desk.enter("root", .admin)
            await expectRefusal {
                try await world.pool.query(
                    "SELECT entitlement_sync.acting(s.digest, 'view') FROM entitlement_sync.operator_session AS s"
                )
            }
        }
    }

    @Test func `An erased account is no operator's any more`() async throws {
        try await World.with { world in
            try await world.add("user")
            try await world.add("other")
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            _ = try await desk.enter("ann", .agent, by: root, user: "user")
            _ = try await desk.enter("bob", .agent, by: root)
            await expectRefusal("22023") { try await desk.operators.link("bob", to: "user", by: root.token.digest) }
            try await desk.operators.link("bob", to: "other", by: root.token.digest)
            _ = try await Erasure(pool: world.pool).erase("user")
            let linked = try await desk.operators.all(by: root.token.digest).compactMap(\.userID)
            #expect(linked == ["other"])
            let keys = try await world.number(
                "SELECT count(*) FROM entitlement_sync.operator AS o WHERE o.user_key IS NOT NULL"
            )
            #expect(keys == 1)
        }
    }

    @Test func `What was only needed for a while is forgotten`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            _ = try await desk.enter("root", .admin)
            _ = try await desk.signIn(.init(name: "nobody", password: "guess"))
            try await world.pool.query(
                """
                WITH attempts AS (UPDATE entitlement_sync.sign_in_attempt SET at = at - interval '31 days')
                UPDATE entitlement_sync.known_client SET used_at = used_at - interval '31 days'
                """
            )
            try await world.pool.query(
                "UPDATE entitlement_sync.sign_in_refusal SET at = at - interval '91 days'"
            )
            try await world.pool.query(
                "UPDATE entitlement_sync.operator_session SET started_at = started_at - interval '13 hours'"
            )
            try await world.pool.query("SELECT entitlement_sync.forget_sign_ins()")
            for table in ["sign_in_attempt", "sign_in_refusal", "known_client", "operator_session"] {
                #expect(
                    try await world.number("SELECT count(*) FROM entitlement_sync.\(rawSQL: table)") == 0,
                    "\(table)"
                )
            }
        }
    }
}
