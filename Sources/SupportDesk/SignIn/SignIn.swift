import Crypto
import Entitlements
import Foundation
package import Storage

/// Lets operators in: password, then the second factor where the role or the operator has one.
package struct SignIn: Sendable {
    private let operators: Operators
    private let kind: Operators.SessionKind
    private let cost: PasswordHash.Cost
    private let systemSeconds: @Sendable () -> Int64

    /// Makes one.
    ///
    /// - Parameters:
    ///   - operators: who there is.
    ///   - kind: where they sit.
    ///   - cost: of new passwords.
    ///   - systemSeconds: the system's clock, in seconds since 1970, for one-time codes.
    package init(
        operators: Operators,
        kind: Operators.SessionKind,
        cost: PasswordHash.Cost = .usual,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    ) {
        self.operators = operators
        self.kind = kind
        self.cost = cost
        self.systemSeconds = systemSeconds
    }

    /// What an operator shows.
    package struct Credentials: Sendable {
        package var name: String
        package var password: String
        /// Of the second factor.
        package var code: String?
        /// The password to have from now on, where the old one was somebody else's choice.
        package var newPassword: String?
        /// The second factor to have from now on; the code has to be its own.
        package var newDevice: OneTimeCode?

        package init(
            name: String,
            password: String,
            code: String? = nil,
            newPassword: String? = nil,
            newDevice: OneTimeCode? = nil
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
        case signedIn(SessionToken)
        /// Right so far; a code of the second factor is missing.
        case needsCode
        /// Right so far; the operator has to choose a password, to take up a second factor, or both.
        case needsEnrolment(password: Bool, device: Bool)
        /// Name, password or code are wrong; nobody is told which.
        case refused
        /// Too many have failed.
        case wait(Duration)
    }

    /// How long an operator stays signed in at most, and how long without doing anything.
    private var lifetime: (lasts: Duration, idle: Duration) {
        switch kind {
        case .console: (.seconds(12 * 3600), .seconds(1800))
        case .terminal: (.seconds(12 * 3600), .seconds(3600))
        }
    }

    /// Signs somebody in.
    ///
    /// A try counts as failed until it is completed, also one that lacks a code or has to choose a password.
    ///
    /// - Parameters:
    ///   - shown: what the operator shows.
    ///   - address: whence; kept as a hash.
    /// - Returns: what came of it.
    /// - Throws: `PostgresError`; `PasswordHash.Fault` for a new password that is not taken.
    package func attempt(_ shown: Credentials, from address: String) async throws -> Result {
        let origin = Array(SHA256.hash(data: Data(address.utf8)))
        var known: Operators.Facts?
        switch try await operators.begin(shown.name, from: origin) {
        case .wait(let wait): return .wait(wait)
        case .nobody: break
        case .somebody(let facts): known = facts
        }
        // Whether there is such an operator must not show in how long it takes.
        let hash = known.flatMap { PasswordHash($0.password) } ?? .ofNobody(at: cost)
        let isRight = await Self.check(shown.password, hash)
        guard let facts = known, isRight, let role = DeskRole(rawValue: facts.role) else {
            try await operators.noteFailure(shown.name)
            return .refused
        }
        let device = facts.codeSecret.flatMap(OneTimeCode.init(secret:))
        let needsPassword = facts.isInitial && shown.newPassword == nil
        let needsDevice = role.needsSecondFactor && device == nil && shown.newDevice == nil
        if needsPassword || needsDevice { return .needsEnrolment(password: needsPassword, device: needsDevice) }

        var period: Int64?
        if let factor = device ?? shown.newDevice {
            guard let code = shown.code else { return .needsCode }
            period = factor.period(of: code, at: systemSeconds(), after: device == nil ? nil : facts.lastPeriod)
            guard period != nil else {
                try await operators.noteFailure(shown.name)
                return .refused
            }
        }
        guard let settled = try await enrol(facts, shown, device: device) else { return .refused }
        let token = SessionToken()
        let session = Operators.NewSession(
            digest: token.digest,
            kind: kind,
            lasts: lifetime.lasts,
            idle: lifetime.idle
        )
        guard try await operators.complete(settled, from: origin, period: period, session: session) else {
            try await operators.noteFailure(shown.name)
            return .refused
        }
        return .signedIn(token)
    }

    /// Stores what the operator has chosen.
    ///
    /// - Returns: what is known afterwards; `nil`: somebody else changed it meanwhile.
    private func enrol(
        _ facts: Operators.Facts,
        _ shown: Credentials,
        device: OneTimeCode?
    ) async throws -> Operators.Facts? {
        let newDevice = device == nil ? shown.newDevice : nil
        guard shown.newPassword != nil || newDevice != nil else { return facts }
        var hash: String?
        if let chosen = shown.newPassword {
            guard chosen != shown.password else { throw PasswordHash.Fault.same }
            hash = try await Self.hash(chosen, shown.name, cost).text
        }
        guard try await operators.enrol(facts, password: hash, device: newDevice?.stored) else { return nil }
        var settled = facts
        settled.password = hash ?? facts.password
        return settled
    }

    /// A third of a second of work: not on whoever waits.
    @concurrent
    private static func check(_ password: String, _ hash: PasswordHash) async -> Bool { hash.matches(password) }

    @concurrent
    private static func hash(
        _ password: String,
        _ name: String,
        _ cost: PasswordHash.Cost
    ) async throws -> PasswordHash {
        try PasswordHash(of: password, for: name, cost: cost)
    }
}
