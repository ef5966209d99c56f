import Crypto
import Dispatch
import Foundation

/// Lets operators in.
///
/// What is right is decided in the database; here a password becomes what it shows.
package struct SignIn: Sendable {
    private let operators: Operators
    private let kind: Operators.SessionKind
    private let cost: PasswordKey.Cost

    /// `cost`: of new passwords.
    package init(operators: Operators, kind: Operators.SessionKind, cost: PasswordKey.Cost = .usual) {
        self.operators = operators
        self.kind = kind
        self.cost = cost
    }

    /// What an operator types.
    package struct Credentials: Sendable {
        package var name: String
        package var password: String
        /// Of the second factor; spaces do not count.
        package var code: String?
        /// The password to have from now on, where the old one was another operator's choice.
        package var newPassword: String?
        /// The second factor to have from now on; the code has to be its own.
        package var newDevice: SecondFactor?

        package init(
            name: String,
            password: String,
            code: String? = nil,
            newPassword: String? = nil,
            newDevice: SecondFactor? = nil
        ) {
            self.name = name
            self.password = password
            self.code = code
            self.newPassword = newPassword
            self.newDevice = newDevice
        }
    }

    /// What comes of it.
    package enum Result: Sendable {
        /// The browser or terminal keeps both.
        case signedIn(SessionToken, ClientToken)
        case not(Operators.Outcome)
    }

    /// How long a name has to wait before anything is tried, and whether it comes from a known client; costs no hash.
    package func wait(
        _ typed: Credentials,
        from address: String,
        client: ClientToken?
    ) async throws -> (wait: Duration, isKnown: Bool) {
        guard (1...63).contains(typed.name.utf8.count) else { return (.zero, false) }
        let salt = try await operators.salt(
            of: typed.name,
            from: Self.digest(of: address),
            client: client?.digest,
            usual: cost.text
        )
        return (salt.wait, salt.isKnown)
    }

    private static func digest(of address: String) -> [UInt8] { Array(SHA256.hash(data: Data(address.utf8))) }

    /// Signs an operator in; a try counts as failed until it is completed, also one that lacks something.
    ///
    /// `address`: where it comes from, kept as a hash; `nil` at a terminal. `client`: what the browser or terminal
    /// shows of earlier sign-ins. Throws `PostgresError`; `PasswordKey.Fault` for a new password that is not taken.
    package func attempt(
        _ typed: Credentials,
        from address: String?,
        client: ClientToken?
    ) async throws -> Result {
        // Beyond what a name can be: the database need not be asked.
        guard (1...63).contains(typed.name.utf8.count) else { return .not(.refused) }
        let whence = address.map(Self.digest)
        let salt = try await operators.salt(of: typed.name, from: whence, client: client?.digest, usual: cost.text)
        guard salt.wait == .zero else { return .not(.wait(salt.wait)) }
        guard let storedCost = PasswordKey.Cost(salt.cost) else { return .not(.refused) }
        let key: PasswordKey
        do {
            key = try await Self.apart { try PasswordKey(of: typed.password, salt: salt.bytes, cost: storedCost) }
        } catch PasswordKey.Fault.long { return .not(.refused) }
        var chosen: PasswordKey?
        if let password = typed.newPassword {
            chosen = try await Self.apart { [cost] in
                try PasswordKey(new: password, for: typed.name, replacing: typed.password, cost: cost)
            }
        }
        let code = typed.code?.filter { !$0.isWhitespace }
        let token = SessionToken()
        let client = client ?? ClientToken()
        let outcome = try await operators.signIn(
            Operators.Try(
                name: typed.name,
                key: key.bytes,
                code: code,
                address: whence,
                client: client.digest,
                kind: kind,
                session: token.digest,
                chosen: chosen?.shown,
                device: typed.newDevice?.bytes
            ),
            digest: Array(
                SHA256.hash(data: Data(typed.name.utf8) + [0] + key.bytes + Data((code ?? "").utf8))
            )
        )
        return outcome == .signedIn ? .signedIn(token, client) : .not(outcome)
    }

    /// A thread of its own for what takes a third of a second: no thread of the pool waits for it, and an attacker who guesses passwords
    /// gets one core at most.
    private static let hardWork = DispatchQueue(label: "sign-in.scrypt")

    private static func apart(_ work: @escaping @Sendable () throws -> PasswordKey) async throws -> PasswordKey {
        try await withCheckedThrowingContinuation { continuation in
            hardWork.async { continuation.resume(with: Swift.Result { try work() }) }
        }
    }
}

extension PasswordKey {
    /// What the database is shown of it.
    package var shown: Operators.Shown { Operators.Shown(cost: cost.text, salt: salt, key: bytes) }
}
