import Crypto
import Entitlements
import Foundation
import HTTPTypes
@testable import SignedTokens
import Testing

/// The team's identity provider: who signs in by a genuine answer, and that no other answer signs anyone in.
@Suite struct SignInProviderTests {
    private static let request = SignInProvider.Request(state: "state", nonce: "nonce", verifier: "verifier")
    private static let claims: [String: any Sendable] = [
        "iss": IssuerBench.issuer, "aud": "console", "sub": "s-1", "iat": IssuerBench.now, "exp": IssuerBench.now + 300,
        "nonce": "nonce", "auth_time": IssuerBench.now - 20, "preferred_username": "bea", "email": "bea@example.com",
        "groups": ["staff", "support-approvers"],
    ]

    private func provider(_ bench: IssuerBench) throws -> SignInProvider {
        try SignInProvider(
            issuer: IssuerBench.issuer,
            clientID: "console",
            clientSecret: "a secret: of the client's",
            returnURL: "https://desk.example.com/console/sign-in/return",
            scopes: "openid profile",
            groupsClaim: "groups",
            http: bench.http,
            logger: IssuerBench.logger,
            systemSeconds: bench.seconds
        )
    }

    private func failure(_ bench: IssuerBench, _ provider: SignInProvider? = nil) async throws -> SignInProvider
        .Failure?
    {
        let provider = try provider ?? self.provider(bench)
        do throws(SignInProvider.Failure) {
            _ = try await provider.person(code: "code", Self.request)
            return nil
        } catch { return error }
    }

    @Test func `a code is exchanged with the verifier and the client's secret, and the token says who it is`()
        async throws
    {
        let bench = try IssuerBench()
        let provider = try provider(bench)
        let address = try await provider.address(for: Self.request, again: false)
        let challenge = FirebaseBench.base64URL(Data(SHA256.hash(data: Data("verifier".utf8))))
        for part in [
            IssuerBench.issuer + "/authorize?response_type=code&", "client_id=console&", "state=state&", "nonce=nonce&",
            "redirect_uri=https%3A%2F%2Fdesk.example.com%2Fconsole%2Fsign-in%2Freturn&", "scope=openid%20profile&",
            "code_challenge_method=S256&", "code_challenge=\(challenge)&", "max_age=43200",
        ] { #expect(address.contains(part), "\(part) in \(address)") }
        #expect(try await provider.address(for: Self.request, again: true).contains("max_age=60&prompt=login"))
        let token = try bench.token(Self.claims)
        bench.give(token)
        let person = try await provider.person(code: "co/de", Self.request)
        #expect(
            person
                == .init(
                    subject: "s-1",
                    names: ["bea", "bea@example.com"],
                    groups: ["staff", "support-approvers"],
                    provedAgo: .seconds(20),
                    idToken: token
                )
        )
        let sent = try #require(bench.requests.first { $0.request.method == .post })
        #expect(
            sent.body
                == "grant_type=authorization_code&code=co%2Fde&redirect_uri=https%3A%2F%2Fdesk.example.com%2Fconsole%2Fsign-in%2Freturn"
                + "&code_verifier=verifier"
        )
        let basic = Data("console:a%20secret%3A%20of%20the%20client%27s".utf8).base64EncodedString()
        #expect(sent.request.headerFields[.authorization] == "Basic " + basic)
        #expect(
            await provider.signOutAddress("token", returningTo: "https://desk.example.com/")
                == IssuerBench.issuer
                + "/bye?client_id=console&post_logout_redirect_uri=https%3A%2F%2Fdesk.example.com%2F&id_token_hint=token"
        )
    }

    @Test func `a provider that takes no header gets the secret in the body`() async throws {
        let bench = try IssuerBench()
        bench.set { $0["token_endpoint_auth_methods_supported"] = ["client_secret_post"] }
        bench.give(try bench.token(Self.claims))
        #expect(try await failure(bench) == nil)
        let sent = try #require(bench.requests.first { $0.request.method == .post })
        #expect(sent.body.hasSuffix("&client_id=console&client_secret=a%20secret%3A%20of%20the%20client%27s"))
        #expect(sent.request.headerFields[.authorization] == nil)
    }

    static let refusals: [([String: any Sendable], TokenRefusal)] = [
        (["iss": "https://id.example.com/realms/other"], .wrongIssuer), (["aud": "other"], .wrongAudience),
        (["aud": ["console", "other"]], .wrongAudience),
        (["aud": ["console", "other"], "azp": "other"], .wrongAudience),
        (["azp": "other"], .wrongAudience), (["nonce": "another"], .wrongNonce), (["nonce": NSNull()], .wrongNonce),
        (["exp": IssuerBench.now - 300], .expired), (["exp": NSNull()], .malformed), (["iat": NSNull()], .malformed),
        (["iat": IssuerBench.now - 600], .expired), (["iat": IssuerBench.now + 301], .fromTheFuture),
        (["nbf": IssuerBench.now + 301], .fromTheFuture), (["auth_time": IssuerBench.now + 301], .fromTheFuture),
        (["sub": ""], .wrongSubject), (["sub": NSNull()], .wrongSubject),
    ]

    @Test func `whatever the token says that is not meant for this sign-in is refused`() async throws {
        for (changes, refusal) in Self.refusals {
            let bench = try IssuerBench()
            bench.give(try bench.token(Self.claims, changes))
            #expect(try await failure(bench) == .token(refusal), "\(changes)")
        }
        for (header, signer, refusal) in [
            (["alg": "none"], .rs256, .wrongAlgorithm), (["alg": "HS256"], .rs256, .wrongAlgorithm),
            ([:], .other, .badSignature), (["kid": "gone"], .rs256, .unknownKey),
        ] as [([String: any Sendable], IssuerBench.Signer, TokenRefusal)] {
            let bench = try IssuerBench()
            bench.give(try bench.token(Self.claims, header: header, by: signer))
            #expect(try await failure(bench) == .token(refusal), "\(header)")
        }
        let bench = try IssuerBench()
        bench.give(try bench.token(Self.claims, ["aud": ["console", "other"], "azp": "console"], by: .edDSA))
        #expect(try await failure(bench) == nil)
    }

    @Test(arguments: [-300, 300] as [Int64])
    func `clocks may differ by five minutes, and make no old sign-in a new one`(_ off: Int64) async throws {
        let bench = try IssuerBench()
        bench.give(try bench.token(Self.claims, ["auth_time": IssuerBench.now - 1_000]))
        bench.clock(IssuerBench.now + off)
        let person = try await provider(bench).person(code: "code", Self.request)
        #expect(person.provedAgo == .seconds(1_000))
        bench.clock(IssuerBench.now + off * 3)
        #expect(try await failure(bench) == .token(off < 0 ? .fromTheFuture : .expired))
    }

    @Test func `without a time of the sign-in nothing that asks for a fresh one is done`() async throws {
        let bench = try IssuerBench()
        bench.give(try bench.token(Self.claims, ["auth_time": NSNull()]))
        #expect(try await provider(bench).person(code: "code", Self.request).provedAgo == nil)
    }

    @Test func `groups that the token leaves out are asked for, of the same person`() async throws {
        let bench = try IssuerBench()
        bench.give(try bench.token(Self.claims, ["groups": NSNull()]))
        bench.tell(#"{"sub":"s-1","groups":["support-agents"]}"#)
        #expect(try await provider(bench).person(code: "code", Self.request).groups == ["support-agents"])
        #expect(bench.requests.last?.request.headerFields[.authorization] == "Bearer access")
        bench.tell(#"{"sub":"s-2","groups":["support-admins"]}"#)
        #expect(try await failure(bench) == .token(.wrongSubject))
        bench.tell("", status: 503)
        #expect(try await failure(bench) == .unavailable(.unavailable))
        // A text is a list of one.
        bench.tell(#"{"sub":"s-1","groups":"support-agents"}"#)
        #expect(try await provider(bench).person(code: "code", Self.request).groups == ["support-agents"])
    }

    @Test func `a provider that refuses, or does not answer, signs no one in`() async throws {
        let bench = try IssuerBench()
        let provider = try provider(bench)
        bench.give("", status: 400)
        #expect(try await failure(bench, provider) == .refused("invalid_grant"))
        bench.give("", status: 500)
        #expect(try await failure(bench, provider) == .unavailable(.unavailable))
        bench.give("x.y")
        #expect(try await failure(bench, provider) == .token(.malformed))
        bench.goDown()
        #expect(try await failure(bench, provider) == .unavailable(.unavailable))
        let other = try IssuerBench()
        other.goDown()
        #expect(try await failure(other) == .unavailable(.unavailable))
        #expect(await (try self.provider(other)).signOutAddress(nil, returningTo: "https://desk.example.com/") == nil)
    }
}
