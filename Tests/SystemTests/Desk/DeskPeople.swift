import Crypto
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing

/// The operators of one world.
struct DeskPeople: Sendable {
    static let password = "a horse of another colour"

    let world: World

    var operators: Operators { Operators(pool: world.pool) }

    /// Whoever works at the desk: what they show and what makes their codes.
    struct Person: Sendable {
        var name: String
        var token: SessionToken
        var device: SecondFactor
        /// What their terminal shows of earlier sign-ins.
        var client = ClientToken()
    }

    /// Adds an operator, who signs in for the first time; without a session an admin.
    ///
    /// `confirmed`: as if a second admin had confirmed the account.
    func enter(
        _ name: String,
        _ role: DeskRole,
        by admin: Person? = nil,
        user: String? = nil,
        confirmed: Bool = true
    ) async throws -> Person {
        let initial = "initial-\(UUID().uuidString)"
        try await operators.add(
            .init(
                name: name,
                role: role.rawValue,
                userID: user,
                password: try PasswordKey(new: initial, for: "", cost: .least).shown
            ),
            by: admin?.token.digest
        )
        if confirmed {
            try await world.pool.query("UPDATE entitlement_sync.operator SET held_until = NULL WHERE name = \(name)")
            try await world.pool.query("SELECT entitlement_sync.note_held_operators()")
        }
        let device = SecondFactor()
        let typed = SignIn.Credentials(
            name: name,
            password: initial,
            code: try await code(device),
            newPassword: Self.password,
            newDevice: device
        )
        guard case .signedIn(let token, let client) = try await signIn(typed) else {
            Issue.record("\(name) could not sign in")
            throw CancellationError()
        }
        return Person(name: name, token: token, device: device, client: client)
    }

    func signIn(
        _ typed: SignIn.Credentials,
        from address: String? = "192.0.2.1",
        client: ClientToken? = nil
    ) async throws -> SignIn.Result {
        try await SignIn(operators: operators, kind: .terminal, cost: .least)
            .attempt(typed, from: address, client: client)
    }

    /// Signs in with password and code, as if the last code had been long ago.
    func signIn(_ person: Person) async throws -> SignIn.Result {
        try await forgetCode(of: person.name)
        return try await signIn(
            .init(name: person.name, password: Self.password, code: try await code(person.device)),
            client: person.client
        )
    }

    func forgetCode(of name: String) async throws {
        try await world.pool.query(
            """
            UPDATE entitlement_sync.operator_secret AS s SET last_period = NULL
              FROM entitlement_sync.operator AS o WHERE o.id = s.operator_id AND o.name = \(name)
            """
        )
    }

    /// The code of this moment by the database's clock, or of some periods later.
    func code(_ device: SecondFactor, later: Int64 = 0) async throws -> String {
        let period = try await world.number("SELECT floor(extract(epoch FROM clock_timestamp()) / 30)::bigint")
        return Self.code(device.bytes, period: Int64(period) + later)
    }

    /// RFC 6238, made another way than the database makes it.
    static func code(_ secret: [UInt8], period: Int64) -> String {
        let counter = withUnsafeBytes(of: period.bigEndian) { Data($0) }
        let mac = Array(HMAC<Insecure.SHA1>.authenticationCode(for: counter, using: SymmetricKey(data: secret)))
        let offset = Int((mac.last ?? 0) & 0x0F)
        let number = mac[offset..<offset + 4].reduce(UInt32(0)) { $0 << 8 | UInt32($1) } & 0x7FFF_FFFF
        let text = String(number % 1_000_000)
        return String(repeating: "0", count: 6 - text.count) + text
    }

    func acting(_ person: Person, _ duty: String) async throws -> String {
        try await operators.acting(person.token.digest, as: duty).name
    }
}

extension SignIn.Result {
    var isRefused: Bool { if case .not(.refused) = self { true } else { false } }

    var isWaiting: Bool { if case .not(.wait) = self { true } else { false } }

    /// What the sign-in still needs; nil where that is not why it failed.
    var needs: Set<Operators.Need>? { if case .not(.needs(let needs)) = self { needs } else { nil } }
}

/// The state of the refusal, where there has to be one.
func expectRefusal(
    _ state: String = "ES009",
    sourceLocation: SourceLocation = #_sourceLocation,
    _ body: () async throws -> Void
) async {
    let error = await #expect(throws: PostgresError.self, sourceLocation: sourceLocation) { try await body() }
    #expect(error?.sqlState == state, "\(error.map { "\($0)" } ?? "")", sourceLocation: sourceLocation)
}
