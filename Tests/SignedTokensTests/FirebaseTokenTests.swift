import Crypto
import CryptoExtras
import Entitlements
import Foundation
import HTTPTypes
@testable import SignedTokens
import TestSupport
import Testing
import Transport

/// ID tokens of Firebase: whom a genuine one names, and that nothing else names anybody.
@Suite struct FirebaseTokenTests {
    private func failure(_ token: String, _ tokens: FirebaseTokens) async -> TokenFailure? {
        do throws(TokenFailure) {
            _ = try await tokens.user(of: token)
            return nil
        } catch { return error }
    }

    @Test func `a genuine token names its user, and one request for keys serves many`() async throws {
        let bench = try FirebaseBench()
        let tokens = try bench.tokens()
        let token = try bench.token()
        let user = TokenUser(
            id: "ann",
            expiresAt: Instant(microseconds: (FirebaseBench.now + 3_590) * 1_000_000),
            signInProvider: "apple.com",
            signedInAt: Instant(microseconds: (FirebaseBench.now - 86_400) * 1_000_000)
        )
        #expect(try await tokens.user(of: token) == user)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<50 { group.addTask { #expect(await failure(token, tokens) == nil) } }
        }
        #expect(try await tokens.user(of: try bench.token(key: 1)) == user, "two keys are alive")
        #expect(bench.requests.map(\.path) == ["/service_accounts/v1/jwk/securetoken@system.gserviceaccount.com"])
        #expect(bench.requests.first?.authority == "www.googleapis.com")
    }

    static let refusals: [(name: String, changes: [String: any Sendable], refusal: TokenRefusal)] = [
        ("expired", ["exp": FirebaseBench.now - 60], .expired),
        ("issued ahead", ["iat": FirebaseBench.now + 61], .fromTheFuture),
        ("signed in ahead", ["auth_time": FirebaseBench.now + 61], .fromTheFuture),
        ("another project's audience", ["aud": "other-project"], .wrongAudience),
        ("several audiences", ["aud": [FirebaseBench.project]], .malformed),
        ("another project's issuer", ["iss": "https://securetoken.google.com/other-project"], .wrongIssuer),
        ("a session cookie", ["iss": "https://session.firebase.google.com/demo-project"], .wrongIssuer),
        (
            "a custom token",
            [
                "aud": "https://identitytoolkit.googleapis.com/google.identity.identitytoolkit.v1.IdentityToolkit",
                "iss": "firebase-adminsdk@demo-project.iam.gserviceaccount.com",
            ], .wrongAudience
        ),
        ("a push's token", ["iss": "https://accounts.google.com"], .wrongIssuer),
        ("nobody", ["sub": ""], .wrongSubject),
        ("somebody with a name too long", ["sub": String(repeating: "x", count: 129)], .wrongSubject),
        ("a tenant", ["firebase": ["tenant": "t-1"]], .tenant), ("no subject", ["sub": NSNull()], .malformed),
        ("no expiry", ["exp": NSNull()], .malformed), ("no sign-in", ["auth_time": NSNull()], .malformed),
        ("an expiry as text", ["exp": "1800003590"], .malformed), ("a negative time", ["iat": -1], .malformed),
    ]

    @Test func `whatever is not this project's valid token names nobody`() async throws {
        let bench = try FirebaseBench()
        let tokens = try bench.tokens()
        for each in Self.refusals {
            #expect(
                await failure(try bench.token(each.changes), tokens) == .refused(each.refusal),
                "\(each.name)"
            )
        }
        // A minute is forgiven, as clocks differ.
        for changes in [
            ["exp": FirebaseBench.now - 59], ["iat": FirebaseBench.now + 60, "auth_time": FirebaseBench.now + 60],
            ["sub": String(repeating: "x", count: 128)],
        ] as [[String: any Sendable]] {
            #expect(await failure(try bench.token(changes), tokens) == nil, "\(changes)")
        }
        let anonymous = try bench.token(["firebase": ["sign_in_provider": "anonymous"] as [String: any Sendable]])
        #expect(try await tokens.user(of: anonymous).id == "ann")
        // A provider that is no short word is left out, and refuses nobody.
        for odd in ["", "a b", String(repeating: "x", count: 65), "ä"] {
            let token = try bench.token(["firebase": ["sign_in_provider": odd] as [String: any Sendable]])
            #expect(try await tokens.user(of: token).signInProvider == nil, "\(odd)")
        }
    }

    @Test func `a header of another kind, and a signature of another making, are refused`() async throws {
        let bench = try FirebaseBench()
        let tokens = try bench.tokens()
        let genuine = try bench.token()
        let parts = genuine.split(separator: ".").map(String.init)
        let unsigned = try bench.token(header: ["alg": "none", "kid": NSNull()]).split(separator: ".").dropLast()
        let publicKey = SymmetricKey(data: Data(bench.keys[0].publicKey.pemRepresentation.utf8))
        let shared = try bench.token(header: ["alg": "HS256"]).split(separator: ".").dropLast().joined(separator: ".")
        let code = HMAC<SHA256>.authenticationCode(for: Data(shared.utf8), using: publicKey)
        let cases: [(String, TokenRefusal)] = [
            (unsigned.joined(separator: ".") + ".", .malformed),
            (shared + "." + FirebaseBench.base64URL(Data(code)), .wrongAlgorithm),
            (try bench.token(header: ["alg": "RS512"]), .wrongAlgorithm),
            (try bench.token(header: ["kid": NSNull()]), .malformed),
            (try bench.token(header: ["kid": ""]), .malformed),
            (try bench.token(header: ["crit": ["b64"]]), .malformed),
            (try bench.token(header: ["kid": "key-1"]), .badSignature),
            (try bench.token(header: ["kid": "key-2"], key: 2), .unknownKey),
            (
                parts[0] + "." + (try bench.token(["sub": "bob"]).split(separator: ".")[1]) + "." + parts[2],
                .badSignature
            ),
            (genuine + ".x", .malformed), (genuine + "=", .malformed), ("a.b", .malformed), ("", .malformed),
            (try bench.sign("[]"), .malformed), (try bench.sign("{}"), .malformed),
            (try bench.sign(try FirebaseBench.text(FirebaseBench.claims()) + " x"), .malformed),
            (try bench.token(["note": String(repeating: "x", count: 100_000)]), .tooLarge),
        ]
        for (text, refusal) in cases {
            #expect(await failure(text, tokens) == .refused(refusal), "\(text.prefix(60))… \(refusal)")
        }
        #expect(await failure(genuine, tokens) == nil)
    }

    @Test func `altered in any character it names nobody`() async throws {
        let bench = try FirebaseBench()
        let tokens = try bench.tokens()
        let genuine = Array(try bench.token().utf8)
        for index in genuine.indices {
            var altered = genuine
            altered[index] = altered[index] == UInt8(ascii: "A") ? UInt8(ascii: "B") : UInt8(ascii: "A")
            let failure = await failure(String(decoding: altered, as: UTF8.self), tokens)
            guard case .refused? = failure else {
                Issue.record("character \(index): \(String(describing: failure))")
                continue
            }
        }
    }

    @Test func `after a rotation the new key is fetched, and a retired one is gone`() async throws {
        let bench = try FirebaseBench()
        let tokens = try bench.tokens()
        let old = try bench.token()
        #expect(await failure(old, tokens) == nil)
        try bench.rotate(to: [1, 2])
        #expect(await failure(try bench.token(key: 2), tokens) == nil)
        #expect(bench.requests.count == 2)
        bench.wait(.seconds(60))
        #expect(await failure(old, tokens) == .refused(.unknownKey))
    }

    @Test func `names that nobody knows lead to one request a minute, and are refused meanwhile`() async throws {
        let bench = try FirebaseBench()
        let tokens = try bench.tokens()
        #expect(await failure(try bench.token(), tokens) == nil)
        let strange = try bench.token(header: ["kid": "key-9"])
        for _ in 0..<20 { #expect(await failure(strange, tokens) == .refused(.unknownKey)) }
        #expect(bench.requests.count == 2)
        bench.wait(.seconds(61))
        for _ in 0..<20 { #expect(await failure(strange, tokens) == .refused(.unknownKey)) }
        #expect(bench.requests.count == 3)
        #expect(await failure(try bench.token(), tokens) == nil, "the others go on")
    }

    @Test func `while the set can't be had the known keys serve for a day, and without any nobody is refused`()
        async throws
    {
        let bench = try FirebaseBench()
        let tokens = try bench.tokens()
        bench.answer(fails: true)
        guard case .unread? = await failure(try bench.token(), tokens) else {
            Issue.record("without keys nobody can tell")
            return
        }
        bench.answer()
        bench.wait(.seconds(1))
        let fresh: [String: any Sendable] = ["exp": FirebaseBench.now + 200_000]
        #expect(await failure(try bench.token(fresh), tokens) == nil)
        bench.answer(status: 500)
        // Six hours fresh, then asked for again, and in use for most of another day.
        bench.wait(.seconds(21_601))
        for _ in 0..<5 { #expect(await failure(try bench.token(fresh), tokens) == nil) }
        #expect(bench.requests.count == 3)
        bench.wait(.seconds(82_000))
        #expect(await failure(try bench.token(fresh), tokens) == nil)
        bench.wait(.seconds(1_000))
        guard case .unread? = await failure(try bench.token(fresh), tokens) else {
            Issue.record("keys do not serve for ever")
            return
        }
    }

    @Test(arguments: [
        (200, "<html>"), (200, ""), (200, "{}"), (200, #"{"keys":[]}"#), (404, "{}"), (503, ""), (302, ""),
    ])
    func `what is no key set refuses nobody`(status: Int, body: String) async throws {
        let bench = try FirebaseBench()
        bench.answer(status: status, body: body)
        guard case .unread? = await failure(try bench.token(), try bench.tokens()) else {
            Issue.record("\(status) \(body)")
            return
        }
    }

    @Test(arguments: [
        ("public, max-age=21600, must-revalidate", nil, 21_600), ("max-age=100", "30", 70), ("Max-Age = 900", nil, 900),
        ("MAX-AGE=900,max-age=700", nil, 700), ("max-age=10", nil, 60), ("max-age=999999", nil, 86_400),
        ("max-age=-5", nil, 60), ("max-age=soon", nil, 60), ("no-store", nil, 60), ("", nil, 60), (nil, nil, 60),
        ("max-age=900", "soon", 900), ("max-age=99999999999999999999", nil, 60), ("s-maxage=900", nil, 60),
    ])
    func `keys are kept as long as the answer says`(control: String?, age: String?, seconds: Int64) {
        var headers: HTTPFields = [:]
        headers[.cacheControl] = control
        headers[.age] = age
        #expect(CacheLifetime.lifetime(headers) == .seconds(seconds))
    }

    @Test func `settings that can't be used are named, all at once`() throws {
        let bench = try FirebaseBench()
        typealias Faults = SettingFaults<FirebaseTokens.Fault>
        #expect(throws: Faults(faults: [.projectID, .keysURL])) {
            try bench.tokens(project: "a/b", keysURL: "https://www.googleapis.com")
        }
        #expect(throws: Faults(faults: [.insecureKeysURL])) { try bench.tokens(keysURL: "http://example.com/keys") }
        for url in ["ftp://example.com/keys", "keys", "https://user@example.com/keys", "https://example.com/a b"] {
            #expect(throws: Faults(faults: [.keysURL]), "\(url)") { try bench.tokens(keysURL: url) }
        }
        _ = try bench.tokens(project: "example.com:demo", keysURL: "http://127.0.0.1:8080/keys?x=1")
    }

    @Test(arguments: [UInt64(1), 2])
    func `whatever is done to a token, nobody but the genuine one's user is named`(seed: UInt64) async throws {
        let bench = try FirebaseBench()
        let tokens = try bench.tokens()
        for forgery in Mutations.forgeries(of: try bench.token(), seed: seed) {
            try #require(await failure(forgery, tokens) != nil, "\(forgery)")
        }
        #expect(bench.requests.count <= 2)
    }
}
