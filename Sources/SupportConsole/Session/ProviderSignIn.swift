import Crypto
import Foundation
package import SignedTokens

/// How operators sign in through the team's identity provider.
package struct ProviderSignIn: Sendable {
    package let provider: SignInProvider
    /// The first whose group a person is in is theirs.
    private let roles: [(role: String, group: String)]
    /// How long the provider's word is good for.
    let lifetime: Duration
    /// How browsers reach the console, without a slash at its end.
    private let consoleURL: String
    private let key: SymmetricKey

    /// The path that the provider sends browsers back to.
    package static let returnPath = "/console/sign-in/return"

    /// Signs in through a provider.
    ///
    /// `roles`: pairs of a role and the group whose people have it. `secret`: the client's, which all processes of the
    /// console have: what one of them gave a browser, another reads.
    package init(
        provider: SignInProvider,
        roles: [(role: String, group: String)],
        lifetime: Duration,
        consoleURL: String,
        secret: String
    ) {
        self.provider = provider
        self.roles = roles
        self.lifetime = lifetime
        self.consoleURL = consoleURL
        key = HKDF<SHA256>.deriveKey(
            inputKeyMaterial: SymmetricKey(data: Data(secret.utf8)),
            info: Data("entitlement-sync: a sign-in that has begun".utf8),
            outputByteCount: 32
        )
    }

    /// The role of a person in some groups; `nil`: they have none here.
    func role(of groups: [String]) -> String? { roles.first { groups.contains($0.group) }?.role }

    /// Where the provider sends browsers after signing out.
    var home: String { consoleURL + "/console/sign-in" }

    /// What a browser keeps while its person is at the provider, sealed: it can neither be read nor made elsewhere.
    struct Begun: Codable, Sendable {
        var state: String
        var nonce: String
        var verifier: String
        var next: String
        /// The session that is to end with the new one, as its hash.
        var previous: [UInt8]?
        /// Seconds since 1970.
        var at: Int64

        /// How long a person has for it, in seconds.
        static let lifetime: Int64 = 600

        var request: SignInProvider.Request { .init(state: state, nonce: nonce, verifier: verifier) }
    }

    /// The longest text that a browser keeps as a cookie, with its name.
    private static let longestCookie = 4_000

    func seal(_ begun: Begun) throws -> String { try sealed(try JSONEncoder().encode(begun), as: "begun") ?? "" }

    /// What a browser shows; `nil`: it is not ours, or too old.
    func open(_ text: String) -> Begun? {
        guard let plain = opened(text, as: "begun"), let begun = try? JSONDecoder().decode(Begun.self, from: plain)
        else { return nil }
        return (0...Begun.lifetime).contains(Int64(Date().timeIntervalSince1970) - begun.at) ? begun : nil
    }

    /// The ID token for a browser to keep; `nil`: it is too long for one.
    func seal(idToken: String) throws -> String? { try sealed(Data(idToken.utf8), as: "hint") }

    func idToken(_ text: String) -> String? {
        opened(text, as: "hint").map { String(decoding: $0, as: UTF8.self) }
    }

    private func sealed(_ plain: Data, as use: String) throws -> String? {
        let text = try AES.GCM.seal(plain, using: key, authenticating: Data(use.utf8)).combined?.base64EncodedString()
        return text.flatMap { $0.utf8.count <= Self.longestCookie ? $0 : nil }
    }

    private func opened(_ text: String, as use: String) -> Data? {
        guard text.utf8.count <= Self.longestCookie, let bytes = Data(base64Encoded: text),
            let box = try? AES.GCM.SealedBox(combined: bytes)
        else { return nil }
        return try? AES.GCM.open(box, using: key, authenticating: Data(use.utf8))
    }
}
