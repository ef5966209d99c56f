import Entitlements
import Foundation
import HTTPTypes
import Logging
@testable import SignedTokens
@testable import StoreEvents
import TestSupport
import Testing
import Transport

/// Tokens of Pub/Sub's pushes: ours, and nobody else's.
@Suite struct PushTokenTests {
    private static let audience = "https://api.example.com/v1/webhooks/google-play"
    private static let account = "push@demo-project.iam.gserviceaccount.com"

    private func tokens(
        _ bench: FirebaseBench,
        audience: String = audience,
        account: String = account,
        keysURL: String = PushTokens.usualKeysURL
    ) throws -> PushTokens {
        try PushTokens(
            audience: audience,
            serviceAccount: account,
            keysURL: keysURL,
            http: bench.http,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            systemSeconds: { FirebaseBench.now }
        )
    }

    private static func claims(_ changes: [String: any Sendable] = [:]) -> [String: any Sendable] {
        let usual: [String: any Sendable] = [
            "iss": "https://accounts.google.com", "aud": audience, "azp": "1", "sub": "1", "email": account,
            "email_verified": true, "iat": FirebaseBench.now - 10, "exp": FirebaseBench.now + 3_590,
        ]
        return usual.merging(changes) { $1 }.filter { !($0.value is NSNull) }
    }

    private func failure(_ token: String, _ tokens: PushTokens) async -> TokenFailure? {
        do throws(TokenFailure) {
            try await tokens.check(token)
            return nil
        } catch { return error }
    }

    static let refusals: [(name: String, changes: [String: any Sendable], refusal: TokenRefusal?)] = [
        ("as it should be", [:], nil), ("the issuer's short name", ["iss": "accounts.google.com"], nil),
        ("clocks that differ", ["iat": FirebaseBench.now + 300, "exp": FirebaseBench.now + 3_900], nil),
        ("just over", ["exp": FirebaseBench.now - 299, "iat": FirebaseBench.now - 3_600], nil),
        ("expired", ["exp": FirebaseBench.now - 300, "iat": FirebaseBench.now - 3_900], .expired),
        ("from ahead", ["iat": FirebaseBench.now + 301], .fromTheFuture),
        ("of endless life", ["exp": FirebaseBench.now + 90_000], .malformed),
        ("another audience", ["aud": "https://api.example.com/v1/webhooks/google-play/"], .wrongAudience),
        ("several audiences", ["aud": [audience]], .malformed),
        ("another issuer", ["iss": "https://securetoken.google.com/demo-project"], .wrongIssuer),
        ("another account", ["email": "push@other.iam.gserviceaccount.com"], .wrongSubject),
        ("an address nobody has verified", ["email_verified": false], .wrongSubject),
        ("a verification as text", ["email_verified": "true"], .malformed),
        ("no word of verification", ["email_verified": NSNull()], .wrongSubject),
        ("no address", ["email": NSNull()], .wrongSubject), ("no expiry", ["exp": NSNull()], .malformed),
        ("no date", ["iat": NSNull()], .malformed),
    ]

    @Test func `a push is taken only with our own account's token`() async throws {
        let bench = try FirebaseBench()
        let tokens = try tokens(bench)
        for each in Self.refusals {
            let token = try bench.sign(try FirebaseBench.text(Self.claims(each.changes)))
            #expect(await failure(token, tokens) == each.refusal.map { .refused($0) }, "\(each.name)")
        }
        #expect(bench.requests.map(\.path) == ["/oauth2/v3/certs"])
    }

    @Test func `what Google did not sign is refused, and without keys nobody is`() async throws {
        let bench = try FirebaseBench()
        let tokens = try tokens(bench)
        let payload = try FirebaseBench.text(Self.claims())
        let genuine = try bench.sign(payload)
        #expect(await failure(genuine, tokens) == nil)
        let parts = genuine.split(separator: ".").map(String.init)
        let moved = try bench.sign(try FirebaseBench.text(Self.claims(["sub": "2"]))).split(separator: ".")
        let cases: [(String, TokenRefusal)] = [
            (parts[0] + "." + moved[1] + "." + parts[2], .badSignature),
            (try bench.sign(payload, header: ["kid": "key-1"]), .badSignature),
            (try bench.sign(payload, header: ["kid": "key-2"], key: 2), .unknownKey),
            (try bench.sign(payload, header: ["alg": "HS256"]), .wrongAlgorithm),
            (parts[0] + "." + parts[1] + ".", .malformed), ("", .malformed),
            (String(repeating: "x", count: 9_000), .tooLarge),
        ]
        for (text, refusal) in cases { #expect(await failure(text, tokens) == .refused(refusal), "\(refusal)") }
        bench.answer(fails: true)
        guard case .unread? = await failure(genuine, try self.tokens(bench)) else {
            Issue.record("without keys nobody can tell")
            return
        }
    }

    @Test func `settings that can't be used are named, all at once`() throws {
        let bench = try FirebaseBench()
        typealias Faults = SettingFaults<PushTokens.Fault>
        #expect(throws: Faults(faults: [.audience, .serviceAccount, .keysURL])) {
            try tokens(bench, audience: "", account: "push", keysURL: "keys")
        }
        for account in ["", "@", "a@", "@b", "a@b@c"] {
            #expect(throws: Faults(faults: [.serviceAccount]), "\(account)") { try tokens(bench, account: account) }
        }
        #expect(throws: Faults(faults: [.insecureKeysURL])) { try tokens(bench, keysURL: "http://example.com/keys") }
    }
}
