import Entitlements
import Foundation
import Postgres
import Storage
import SupportDesk
import Synchronization
import Testing

/// Operators: how they come to be, how they sign in, and what their roles let them do.
@Suite struct SignInTests {
    /// So low that tests are quick.
    private static let cheap = PasswordHash.Cost(logN: 4, blockSize: 1, parallelism: 1)
    private static let chosen = "a horse of another colour"

    /// Seconds since 1970, which pass when a code is wanted.
    private final class Clock: Sendable {
        private let seconds = Mutex<Int64>(1_800_000_000)

        var time: Int64 { seconds.withLock { $0 } }

        func advance() -> Int64 {
            seconds.withLock { seconds in
                seconds += 30
                return seconds
            }
        }
    }

    /// Operators of one world, and a clock for their codes.
    private final class Desk: Sendable {
        let world: World
        let now = Clock()
        var operators: Operators { Operators(pool: world.pool) }

        init(world: World) { self.world = world }

        func signIn(_ shown: SignIn.Credentials, from address: String = "192.0.2.1") async throws -> SignIn.Result {
            let signIn = SignIn(
                operators: operators,
                kind: .terminal,
                cost: SignInTests.cheap,
                systemSeconds: { [now] in now.time }
            )
            return try await signIn.attempt(shown, from: address)
        }

        /// A code of this moment; no other is like it.
        func code(_ device: OneTimeCode) -> String {
            let seconds = now.advance()
            return device.code(seconds / 30)
        }

        /// Adds an operator and signs in for the first time.
        func enter(_ name: String, _ role: DeskRole, by session: SessionToken? = nil, user: String? = nil) async throws
            -> (token: SessionToken, device: OneTimeCode)
        {
            let initial = "initial-\(UUID().uuidString)"
            let hash = try PasswordHash(
                of: initial,
                for: "",
                cost: SignInTests.cheap
            )
            try await operators.add(
                .init(name: name, role: role.rawValue, userID: user, password: hash.text),
                by: session?.digest
            )
            let device = OneTimeCode()
            let result = try await signIn(
                .init(
                    name: name,
                    password: initial,
                    code: code(device),
                    newPassword: SignInTests.chosen,
                    newDevice: role.needsSecondFactor ? device : nil
                )
            )
            guard case .signedIn(let token) = result else {
                Issue.record("\(name) could not sign in: \(result)")
                throw CancellationError()
            }
            return (token, device)
        }

        func acting(_ token: SessionToken, _ duty: DeskDuty) async throws -> String {
            try await operators.acting(token.digest, as: duty.rawValue).name
        }
    }

    private static func expectRefusal(_ body: () async throws -> Void) async {
        let error = await #expect(throws: PostgresError.self) { try await body() }
        #expect(error?.sqlState == "ES006")
    }

    private static func isRefused(_ result: SignIn.Result) -> Bool {
        if case .refused = result { true } else { false }
    }

    @Test func `The duties of the roles are the same in the database as in the domain`() async throws {
        try await World.with { world in
            let rows = try await world.texts(
                "SELECT d.duty || ' ' || d.role FROM entitlement_sync.desk_duty AS d"
            )
            let wanted = DeskDuty.allCases.flatMap { duty in duty.roles.map { "\(duty.rawValue) \($0.rawValue)" } }
            #expect(Set(rows) == Set(wanted) && rows.count == wanted.count)
        }
    }

    @Test func `The first operator is an admin, who needs nobody; all others need one`() async throws {
        try await World.with { world in
            let desk = Desk(world: world)
            await Self.expectRefusal { _ = try await desk.enter("ann", .agent) }
            let (admin, _) = try await desk.enter("root", .admin)
            await Self.expectRefusal { _ = try await desk.enter("eve", .admin) }
            let (agent, _) = try await desk.enter("ann", .agent, by: admin)
            await Self.expectRefusal { _ = try await desk.enter("bob", .agent, by: agent) }
            #expect(try await desk.acting(agent, .work) == "ann")
            await Self.expectRefusal { _ = try await desk.acting(agent, .approve) }
            await Self.expectRefusal { _ = try await desk.acting(SessionToken(), .view) }
            let names = try await desk.operators.all(by: admin.digest).map(\.name)
            #expect(names == ["ann", "root"])
            await Self.expectRefusal { _ = try await desk.operators.all(by: agent.digest) }
        }
    }

    @Test func `An initial password opens nothing before the operator has chosen one, and a device where needed`()
        async throws
    {
        try await World.with { world in
            let desk = Desk(world: world)
            let hash = try PasswordHash(of: "initial password", for: "", cost: SignInTests.cheap)
            try await desk.operators.add(
                .init(name: "root", role: "admin", userID: nil, password: hash.text),
                by: nil
            )
            let first = try await desk.signIn(.init(name: "root", password: "initial password"))
            guard case .needsEnrolment(password: true, device: true) = first else {
                Issue.record("\(first)")
                return
            }
            await #expect(throws: PasswordHash.Fault.same) {
                let device = OneTimeCode()
                _ = try await desk.signIn(
                    .init(
                        name: "root",
                        password: "initial password",
                        code: desk.code(device),
                        newPassword: "initial password",
                        newDevice: device
                    )
                )
            }
            // Whoever asks the database itself is told the same.
            guard case .somebody(let facts) = try await desk.operators.begin("root", from: [1]) else {
                Issue.record("root is not known")
                return
            }
            let session = Operators.NewSession(
                digest: SessionToken().digest,
                kind: .terminal,
                lasts: .seconds(60),
                idle: .seconds(60)
            )
            for period in [nil, Int64(1)] {
                #expect(try await !desk.operators.complete(facts, from: [1], period: period, session: session))
            }
            try await world.pool.query("UPDATE entitlement_sync.operator SET role = 'viewer'")
            #expect(try await !desk.operators.complete(facts, from: [1], period: nil, session: session))
            try await world.pool.query("UPDATE entitlement_sync.operator SET role = 'admin'")
            // A device whose code is wrong is not taken up.
            let wrong = try await desk.signIn(
                .init(
                    name: "root",
                    password: "initial password",
                    code: "000000",
                    newPassword: Self.chosen,
                    newDevice: OneTimeCode()
                )
            )
            #expect(Self.isRefused(wrong))
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.operator_session") == 0)
        }
    }

    @Test func `A code is taken once, also by two at the same time`() async throws {
        try await World.with { world in
            let desk = Desk(world: world)
            let (_, device) = try await desk.enter("root", .admin)
            let code = desk.code(device)
            let shown = SignIn.Credentials(name: "root", password: Self.chosen, code: code)
            async let one = desk.signIn(shown)
            async let two = desk.signIn(shown)
            let results = try await [one, two]
            #expect(results.filter(Self.isRefused).count == 1, "\(results)")
            #expect(Self.isRefused(try await desk.signIn(shown)))
            // Both have looked before either signed in.
            guard case .somebody(var facts) = try await desk.operators.begin("root", from: [1]) else {
                Issue.record("root is not known")
                return
            }
            func complete(_ period: Int64) async throws -> Bool {
                let session = Operators.NewSession(
                    digest: SessionToken().digest,
                    kind: .terminal,
                    lasts: .seconds(60),
                    idle: .seconds(60)
                )
                return try await desk.operators.complete(facts, from: [1], period: period, session: session)
            }
            let next = (facts.lastPeriod ?? 0) + 1
            #expect(try await complete(next))
            #expect(try await !complete(next))
            #expect(try await !complete(next - 1))
            // The password was changed meanwhile.
            facts.password = "scrypt$of$another"
            #expect(try await !complete(next + 1))
            // Without one, with the right password.
            guard case .needsCode = try await desk.signIn(.init(name: "root", password: Self.chosen)) else {
                Issue.record("no code was asked for")
                return
            }
        }
    }

    @Test func `Guessing is slowed by account and by address, whether or not there is such an operator`() async throws {
        try await World.with { world in
            let desk = Desk(world: world)
            _ = try await desk.enter("root", .admin)
            for name in ["root", "nobody"] {
                for turn in 0..<5 {
                    let result = try await desk.signIn(
                        .init(name: name, password: "guess \(turn) of many"),
                        from: "198.51.100.\(turn)"
                    )
                    #expect(Self.isRefused(result))
                }
                let slowed = try await desk.signIn(.init(name: name, password: Self.chosen), from: "198.51.100.9")
                guard case .wait(let wait) = slowed else {
                    Issue.record("\(name): \(slowed)")
                    continue
                }
                #expect(wait > .seconds(5) && wait <= .seconds(15))
            }
            for turn in 0..<21 {
                _ = try await desk.signIn(.init(name: "user-\(turn)", password: "guess"), from: "203.0.113.1")
            }
            let slowed = try await desk.signIn(.init(name: "another", password: "guess"), from: "203.0.113.1")
            guard case .wait = slowed else {
                Issue.record("the address: \(slowed)")
                return
            }
            let noted = try await world.number(
                "SELECT count(*) FROM entitlement_sync.operator_event WHERE kind = 'sign_in_failed'"
            )
            #expect(noted == 5 + 5 + 21)
        }
    }

    @Test func `Who is disabled is out at once; who is reset begins anew; the last admin stays`() async throws {
        try await World.with { world in
            let desk = Desk(world: world)
            let (admin, _) = try await desk.enter("root", .admin)
            let (agent, _) = try await desk.enter("ann", .agent, by: admin)
            let last = await #expect(throws: PostgresError.self) {
                try await desk.operators.disable("root", by: admin.digest)
            }
            #expect(last?.sqlState == "22023")
            // By hand, which leaves the session as it is.
            try await world.pool.query("UPDATE entitlement_sync.operator SET disabled_at = now() WHERE name = 'ann'")
            await Self.expectRefusal { _ = try await desk.acting(agent, .view) }
            try await world.pool.query("UPDATE entitlement_sync.operator SET disabled_at = NULL WHERE name = 'ann'")
            #expect(try await desk.acting(agent, .view) == "ann")
            try await desk.operators.disable("ann", by: admin.digest)
            await Self.expectRefusal { _ = try await desk.acting(agent, .view) }
            #expect(Self.isRefused(try await desk.signIn(.init(name: "ann", password: Self.chosen))))
            let hash = try PasswordHash(of: "initial password", for: "", cost: SignInTests.cheap)
            try await desk.operators.reset("ann", password: hash.text, by: admin.digest)
            #expect(Self.isRefused(try await desk.signIn(.init(name: "ann", password: Self.chosen))))
            let result = try await desk.signIn(
                .init(name: "ann", password: "initial password", newPassword: "yet another password")
            )
            guard case .signedIn(let token) = result else {
                Issue.record("\(result)")
                return
            }
            #expect(try await desk.acting(token, .work) == "ann")
            try await desk.operators.signOut(token.digest)
            await Self.expectRefusal { _ = try await desk.acting(token, .view) }
        }
    }

    @Test func `A session ends when it is not used, and at its end`() async throws {
        try await World.with { world in
            let desk = Desk(world: world)
            for change in ["seen_at = now() - interval '61 minutes'", "ends_at = now()"] {
                let (admin, device) = try await desk.enter("root-\(change.prefix(1))", .admin, by: nil)
                #expect(try await desk.acting(admin, .manage).hasPrefix("root"))
                try await world.pool.query(
                    PostgresQuery("UPDATE entitlement_sync.operator_session SET \(rawSQL: change)")
                )
                await Self.expectRefusal { _ = try await desk.acting(admin, .view) }
                _ = device
                try await world.pool.query("DELETE FROM entitlement_sync.operator_session")
                try await world.pool.query("DELETE FROM entitlement_sync.operator_secret")
                try await world.pool.query("DELETE FROM entitlement_sync.operator")
            }
        }
    }

    @Test func `No secret of an operator can be read by those who read operators`() async throws {
        try await World.with { world in
            let desk = Desk(world: world)
            _ = try await desk.enter("root", .admin)
            for role in ["support", "auditor", "api", "client", "worker"] {
                for table in ["operator_secret", "operator_session", "sign_in_failure"] {
                    let refusal = await #expect(throws: PostgresError.self, "\(role) \(table)") {
                        try await world.pool.withTransaction { connection in
                            try await connection.query("SET LOCAL ROLE entitlement_sync_\(rawSQL: role)")
                            try await connection.query("SELECT * FROM entitlement_sync.\(rawSQL: table)")
                        }
                    }
                    #expect(refusal?.sqlState == SQLState.insufficientPrivilege)
                }
            }
            for change in [
                "UPDATE entitlement_sync.operator_event SET kind = 'x'", "DELETE FROM entitlement_sync.operator_event",
            ] {
                await #expect(throws: PostgresError.self) { try await world.pool.query(PostgresQuery(rawSQL: change)) }
            }
        }
    }

    @Test func `The desk's own role can sign people in, and lets nobody do what their role may not`() async throws {
        try await World.with { world in
            let desk = Desk(world: world)
            let (admin, _) = try await desk.enter("root", .admin)
            try await world.pool.withTransaction { connection in
                try await connection.query("SET LOCAL ROLE entitlement_sync_support")
                for statement in [
                    "SELECT * FROM entitlement_sync.begin_sign_in('root', 'x'::bytea)",
                    "SELECT * FROM entitlement_sync.note_failed_sign_in('root')",
                    "SELECT name, role FROM entitlement_sync.operator",
                ] { try await connection.query(PostgresQuery(rawSQL: statement)) }
                try await connection.query(
                    "SELECT * FROM entitlement_sync.operators(\(PostgresBytes(admin.digest)))"
                )
            }
            for statement in [
                "INSERT INTO entitlement_sync.operator (name, role) VALUES ('eve', 'admin')",
                "SELECT entitlement_sync.add_operator(NULL, 'eve', 'admin', NULL, 'x')",
                "SELECT entitlement_sync.count_sign_in('operator', 'x'::bytea, 4)",
            ] {
                await #expect(throws: PostgresError.self, "\(statement)") {
                    try await world.pool.withTransaction { connection in
                        try await connection.query("SET LOCAL ROLE entitlement_sync_support")
                        try await connection.query(PostgresQuery(rawSQL: statement))
                    }
                }
            }
        }
    }
}
