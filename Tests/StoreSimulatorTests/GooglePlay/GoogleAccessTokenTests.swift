import Crypto
import CryptoExtras
import Foundation
import HTTPTypes
import Testing

@testable import StoreSimulator

@Suite("Google's access tokens")
struct GoogleAccessTokenTests {
    @Test("A good assertion gets a token, which lets in until it is revoked")
    func token() async throws {
        try await Probe.run(GooglePlayShop.scenario) { probe in
            let granted = try await probe.exchange(Assertion().signed())
            #expect(granted.status == 200)
            #expect(try granted.json["expires_in"]?.integer == 3_599)
            #expect(try granted.json["token_type"]?.text == "Bearer")
            let token = try #require(try granted.json["access_token"]?.text)
            let path = Probe.play + "/purchases/subscriptionsv2/tokens/tok"
            #expect(try await probe.send(.get, path, authorization: "Bearer \(token)").status == 200)
            _ = try await probe.control(.delete, "/google-play/access-tokens")
            #expect(try await probe.send(.get, path, authorization: "Bearer \(token)").reason == "authError")
        }
    }

    @Test("Whoever has no token, or one that ran out, is not let in")
    func noToken() async throws {
        try await Probe.run(GooglePlayShop.scenario + "\n  token_lifetime: 0ms\n  expires_in: text") { probe in
            let granted = try await probe.exchange(Assertion().signed())
            #expect(try granted.json["expires_in"]?.text == "0")
            let token = try #require(try granted.json["access_token"]?.text)
            let path = Probe.play + "/purchases/subscriptionsv2/tokens/tok"
            for authorization in [nil, "Bearer \(token)", "Bearer x", token, "Bearer sk_test"] {
                let answer = try await probe.send(.get, path, authorization: authorization)
                #expect(answer.status == 401)
                #expect(answer.reason == "authError")
                #expect(try answer.json["error"]?["status"]?.text == "UNAUTHENTICATED")
            }
        }
    }

    enum Flaw: String, CaseIterable {
        case otherKey, algorithm, issuer, audience, noIssued, noExpiry, expired, early, tooLong, scope, noScope
    }

    @Test("A flawed assertion is refused in the endpoint's words", arguments: Flaw.allCases)
    func flaws(_ flaw: Flaw) async throws {
        var assertion = Assertion()
        let now = SimulatedClock.machine() / 1000
        var error = "invalid_grant"
        let description: String
        switch flaw {
        case .otherKey:
            assertion.key = try _RSA.Signing.PrivateKey(keySize: .bits2048)
            description = "Invalid JWT Signature."
        case .algorithm:
            assertion.header["alg"] = "HS256"
            description = "Invalid JWT Signature."
        case .issuer:
            assertion.claims["iss"] = "nobody@example.com"
            description = "Invalid grant: account not found"
        case .audience:
            assertion.claims["aud"] = "https://example.com/token"
            description = "Invalid JWT: Failed audience check."
        case .noIssued:
            assertion.claims["iat"] = nil
            description = "Invalid JWT: iat is not set"
        case .noExpiry:
            assertion.claims["exp"] = nil
            description = "Invalid JWT: exp is not set"
        case .expired:
            assertion.claims["iat"] = now - 7_200
            assertion.claims["exp"] = now - 3_600
            description = "Invalid JWT: Token must be a short-lived token (60 minutes)"
        case .early:
            assertion.claims["iat"] = now + 600
            assertion.claims["exp"] = now + 4_000
            description = "Invalid JWT: Token must be a short-lived token (60 minutes)"
        case .tooLong:
            assertion.claims["exp"] = now + 3_700
            description = "Invalid JWT: Token must be a short-lived token (60 minutes)"
        case .scope, .noScope:
            assertion.claims["scope"] = flaw == .scope ? "https://www.googleapis.com/auth/pubsub" : nil
            error = "invalid_scope"
            description = "Invalid OAuth scope or ID token audience provided."
        }
        let text = try assertion.signed()
        try await Probe.run { [error] probe in
            let answer = try await probe.exchange(text)
            #expect(answer.status == 400)
            #expect(try answer.json["error"]?.text == error)
            #expect(try answer.json["error_description"]?.text?.hasPrefix(description) == true)
        }
    }

    @Test("Other grants, and texts that are no assertion, are refused")
    func otherGrants() async throws {
        try await Probe.run { probe in
            let good = try Assertion().signed()
            #expect(try await probe.exchange(good, grant: "password").json["error"]?.text == "unsupported_grant_type")
            for text in ["", "x", "a.b.c", good + "x"] { #expect(try await probe.exchange(text).status == 400) }
            // A clock that is four minutes fast is let in, also where the simulated time is months away.
            probe.simulator.shiftClock(byMilliseconds: 90 * 86_400_000)
            var fast = Assertion()
            let now = SimulatedClock.machine() / 1000
            fast.claims["iat"] = now + 240
            fast.claims["exp"] = now + 3_840
            #expect(try await probe.exchange(fast.signed()).status == 200)
        }
    }

    @Test("The key file is a service account's, and each simulator of the process has the same")
    func keyFile() async throws {
        try await Probe.run { probe in
            let file = try await probe.control(.get, "/google-play/service-account.json")
            #expect(file.status == 200)
            #expect(file.text == StoreSimulator.googleServiceAccount)
            #expect(try file.json["type"]?.text == "service_account")
            #expect(try file.json["token_uri"]?.text == "https://oauth2.googleapis.com/token")
            #expect(try file.json["private_key"]?.text?.hasPrefix("-----BEGIN PRIVATE KEY-----\n") == true)
        }
    }
}
