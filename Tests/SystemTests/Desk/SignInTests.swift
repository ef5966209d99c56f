import Postgres
import SupportDesk
import TestSupport
import Testing

/// How operators sign in: password, second factor and code.
@Suite struct SignInTests {
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
            #expect(try await desk.signIn(typed).needs == [.password, .device])
            typed.newPassword = DeskPeople.password
            #expect(try await desk.signIn(typed).needs == [.device])
            let device = SecondFactor()
            typed.newDevice = device
            #expect(try await desk.signIn(typed).needs == [.code])
            typed.code = "000000"
            #expect(try await desk.signIn(typed).isRefused)
            typed.code = try await desk.code(device)
            typed.newPassword = "initial password"
            await #expect(throws: PasswordKey.Fault.same) { try await desk.signIn(typed) }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.operator_session") == 0)
            typed.newPassword = DeskPeople.password
            guard case .signedIn = try await desk.signIn(typed) else {
                Issue.record("root could not sign in")
                return
            }
            #expect(try await desk.signIn(typed).isRefused)
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
            #expect(try await desk.signIn(typed).needs != nil)
            try await world.pool.query(
                "UPDATE entitlement_sync.operator_secret SET expires_at = expires_at - interval '1 hour'"
            )
            #expect(try await desk.signIn(typed).isRefused)
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
            #expect(result.needs == [.device])
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
            #expect(results.filter(\.isRefused).count == 1, "\(results)")
            #expect(try await desk.signIn(shown).isRefused)
            var next = shown
            next.code = try await desk.code(root.device, later: 1)
            guard case .signedIn = try await desk.signIn(next) else {
                Issue.record("the next code was refused")
                return
            }
            // An older one is no good any more, though its half minute is not over.
            #expect(try await desk.signIn(shown).isRefused)
            #expect(try await desk.signIn(.init(name: "root", password: DeskPeople.password)).needs == [.code])
        }
    }
}
