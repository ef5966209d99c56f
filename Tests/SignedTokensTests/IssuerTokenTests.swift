import Crypto
import Entitlements
import Foundation
import HTTPTypes
@testable import SignedTokens
import Testing
import Transport

/// Tokens of the app's users by any issuer: whom a genuine one names, and that nothing else names a user.
@Suite struct IssuerTokenTests {
    private static let claims: [String: any Sendable] = [
        "iss": IssuerBench.issuer, "aud": "app", "sub": "ann", "iat": IssuerBench.now - 10,
        "exp": IssuerBench.now + 300,
    ]

    private func tokens(
        _ bench: IssuerBench,
        keysURL: String? = nil,
        claim: String = "sub"
    ) throws -> IssuerTokens {
        try IssuerTokens(
            issuer: IssuerBench.issuer,
            audience: "app",
            keysURL: keysURL,
            claim: claim,
            http: bench.http,
            logger: IssuerBench.logger,
            systemSeconds: bench.seconds
        )
    }

    private func failure(_ token: String, _ tokens: IssuerTokens) async -> TokenFailure? {
        do throws(TokenFailure) {
            _ = try await tokens.user(of: token)
            return nil
        } catch { return error }
    }

    @Test(arguments: [IssuerBench.Signer.rs256, .es256, .edDSA])
    func `a genuine token of each algorithm names its user`(_ signer: IssuerBench.Signer) async throws {
        let bench = try IssuerBench()
        let tokens = try tokens(bench)
        let expected = TokenUser(id: "ann", expiresAt: Instant(microseconds: (IssuerBench.now + 300) * 1_000_000))
        #expect(try await tokens.user(of: try bench.token(Self.claims, by: signer)) == expected)
        let several = try bench.token(Self.claims, ["aud": ["other", "app"]], by: signer)
        #expect(try await tokens.user(of: several) == expected)
        #expect(
            bench.requests.map(\.request.path) == [
                "/realms/team/.well-known/openid-configuration", "/realms/team/keys",
            ],
            "asked once, by discovery"
        )
    }

    @Test func `the user may be another claim, and the keys may be at an address of their own`() async throws {
        let bench = try IssuerBench()
        let tokens = try tokens(bench, keysURL: IssuerBench.issuer + "/keys", claim: "https://example.com/user")
        let token = try bench.token(Self.claims, ["https://example.com/user": "bob"])
        #expect(try await tokens.user(of: token).id == "bob")
        #expect(await failure(try bench.token(Self.claims), tokens) == .refused(.wrongSubject))
        let several = try bench.token(Self.claims, ["https://example.com/user": ["bob", "ann"]])
        #expect(await failure(several, tokens) == .refused(.wrongSubject))
        #expect(bench.requests.map(\.request.path) == ["/realms/team/keys"])
    }

    @Test func `whatever is no valid token of this issuer for this audience names no user`() async throws {
        let bench = try IssuerBench()
        let tokens = try tokens(bench)
        let now = IssuerBench.now
        for (changes, refusal) in [
            (["iss": "https://id.example.com/realms/other"], .wrongIssuer),
            (["iss": IssuerBench.issuer + "/"], .wrongIssuer),
            (["aud": "other"], .wrongAudience), (["aud": ["other"]], .wrongAudience),
            (["aud": NSNull()], .wrongAudience),
            (["exp": now - 60], .expired), (["exp": NSNull()], .malformed), (["exp": "1800000300"], .malformed),
            (["iat": now + 61], .fromTheFuture), (["nbf": now + 61], .fromTheFuture), (["sub": ""], .wrongSubject),
            (["sub": NSNull()], .wrongSubject), (["sub": String(repeating: "x", count: 129)], .wrongSubject),
        ] as [([String: any Sendable], TokenRefusal)] {
            #expect(await failure(try bench.token(Self.claims, changes), tokens) == .refused(refusal), "\(changes)")
        }
        let genuine = try bench.token(Self.claims)
        let parts = genuine.split(separator: ".")
        let secret = SymmetricKey(data: Data(try bench.keySet().utf8))
        let shared = try bench.token(Self.claims, header: ["alg": "HS256"]).split(separator: ".").dropLast()
            .joined(separator: ".")
        let code = HMAC<SHA256>.authenticationCode(for: Data(shared.utf8), using: secret)
        for (token, refusal) in [
            (try bench.token(Self.claims, by: .other), .badSignature),
            (try bench.token(Self.claims, header: ["kid": "ES256"]), .wrongAlgorithm),
            (try bench.token(Self.claims, header: ["alg": "ES256"]), .wrongAlgorithm),
            (try bench.token(Self.claims, header: ["alg": "PS256"]), .wrongAlgorithm),
            (try bench.token(Self.claims, header: ["alg": "none"]), .wrongAlgorithm),
            (try bench.token(Self.claims, header: ["kid": "gone"]), .unknownKey),
            (try bench.token(Self.claims, header: ["kid": NSNull()]), .unknownKey),
            (shared + "." + FirebaseBench.base64URL(Data(code)), .wrongAlgorithm),
            (parts[0] + "." + parts[1] + ".", .malformed), (genuine + ".x", .malformed),
        ] as [(String, TokenRefusal)] {
            #expect(await failure(token, tokens) == .refused(refusal), "\(token.prefix(40)) \(refusal)")
        }
    }

    @Test func `a key without a name is found where it is the only one`() async throws {
        let bench = try IssuerBench()
        bench.keys(try bench.keySet(names: false))
        let tokens = try tokens(bench)
        #expect(try await tokens.user(of: try bench.token(Self.claims, header: ["kid": NSNull()])).id == "ann")
        #expect(
            await failure(try bench.token(Self.claims, header: ["kid": NSNull()], by: .other), tokens)
                == .refused(.badSignature)
        )
    }

    @Test func `a discovery document of another issuer, or one that leads to plain http, is none`() async throws {
        for (name, value) in [
            ("issuer", "https://evil.example.com"), ("jwks_uri", "http://id.example.com/keys"),
            ("jwks_uri", "file:///etc/passwd"), ("jwks_uri", NSNull()),
        ] as [(String, any Sendable)] {
            let bench = try IssuerBench()
            bench.set { $0[name] = value }
            let failure = await failure(try bench.token(Self.claims), try tokens(bench))
            #expect(failure == .unread(ReadFailure(.unavailable)), "\(name): \(String(describing: failure))")
        }
    }

    @Test func `beside Firebase, each token is verified by whom it names as its issuer`() async throws {
        let (firebase, bench) = (try FirebaseBench(), try IssuerBench())
        let both = try #require(AppTokens(firebase: try firebase.tokens(), issuer: try tokens(bench)))
        #expect(try await both.user(of: try firebase.token(["sub": "fay"])).id == "fay")
        #expect(try await both.user(of: try bench.token(Self.claims)).id == "ann")
        let posing = try firebase.token(["iss": IssuerBench.issuer, "aud": "app"])
        await #expect(throws: TokenFailure.refused(.unknownKey)) { try await both.user(of: posing) }
        #expect(AppTokens(firebase: nil, issuer: nil) == nil)
    }

    @Test func `what is wrong with the settings is told at once`() throws {
        let http = try IssuerBench().http
        for (issuer, audience, keys, claim, faults) in [
            ("http://id.example.com", "", nil, "", [.audience, .claim, .insecureIssuer]),
            ("id.example.com", "app", "http://id.example.com/keys", "sub", [.issuer, .insecureKeysURL]),
            ("https://id.example.com?x=1", "app", "keys", "sub", [.issuer, .keysURL]),
        ] as [(String, String, String?, String, [IssuerTokens.Fault])] {
            #expect(throws: SettingFaults(faults: faults)) {
                try IssuerTokens(
                    issuer: issuer,
                    audience: audience,
                    keysURL: keys,
                    claim: claim,
                    http: http,
                    logger: IssuerBench.logger
                )
            }
        }
    }
}
