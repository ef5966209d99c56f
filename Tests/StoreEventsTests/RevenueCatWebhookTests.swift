import Crypto
import Foundation
import HTTPTypes
@testable import StoreClients
@testable import StoreEvents
import TestSupport
import Testing

/// Webhooks of RevenueCat's, and what is none.
@Suite struct RevenueCatWebhookTests {
    private static let now: Int64 = 1_790_000_000
    private static let secret = "example-signing-secret-not-real"
    private static let body = """
        {"api_version":"1.0","event":{"id":"3f1c7f0e-3b0e-4a55-9a3f-0d8f2f6d1c11","type":"TEST","environment":"PRODUCTION",\
        "event_timestamp_ms":1790000000123,"app_user_id":"kQ3vZr8mT2fXw1LdYp6sNb4HcJe7","note":"café/9.90"}}
        """
    private static let code = "1c0f10286fad25e67dbe60e922f5410c3641a987bce0951a9999c367f064a78e"
    private static let other = String(repeating: "0", count: 64)

    private func refusal(
        _ signature: String?,
        body: String = body,
        authorization: String? = nil,
        at seconds: Int64 = now,
        expecting expected: String? = nil,
        secret: String? = secret
    ) throws -> WebhookRefusal? {
        let made = RevenueCatWebhooks(authorization: expected, secret: secret, systemSeconds: { seconds })
        let webhooks = try #require(made)
        var headers: HTTPFields = [:]
        headers[try #require(HTTPField.Name("x-revenuecat-webhook-signature"))] = signature
        headers[.authorization] = authorization
        do throws(WebhookRefusal) {
            try webhooks.check(headers, body: Array(body.utf8))
            return nil
        } catch { return error }
    }

    @Test func `a signature holds for the bytes that were sent, and for no others`() throws {
        #expect(Self.body.utf8.count == 216)
        let genuine = "t=1790000000,v1=\(Self.code)"
        #expect(try refusal(genuine) == nil)
        for other in [
            Self.body + " ", String(Self.body.dropLast()), Self.body.replacing("/", with: #"\/"#),
            Self.body.replacing("é", with: #"\u00e9"#), Self.body.replacing("TEST", with: "EXPIRATION"), "",
        ] {
            #expect(try refusal(genuine, body: other) == .wrongSignature)
        }
        #expect(try refusal(genuine, secret: Self.secret + " ") == .wrongSignature)
        #expect(try refusal("t=1790000001,v1=\(Self.code)") == .wrongSignature, "the time is signed as well")
        #expect(try refusal("t=01790000000,v1=\(Self.code)") == .wrongSignature, "as it was written")
    }

    @Test func `a replay is refused after five minutes`() throws {
        let genuine = "t=1790000000,v1=\(Self.code)"
        for (shift, refused) in [(-301, true), (-300, false), (300, false), (301, true)] as [(Int64, Bool)] {
            #expect(try refusal(genuine, at: Self.now + shift) == (refused ? .notNow : nil), "\(shift)")
        }
    }

    @Test(
        arguments: [
            ("t=1790000000,v1=\(other),v1=\(code)", nil), ("v1=\(code), t=1790000000", nil),
            ("t=1790000000,v0=x,v1=\(code),v2=", nil), (nil, .missing), ("", .malformed), ("t=1790000000", .malformed),
            ("v1=\(code)", .malformed), ("t=,v1=\(code)", .malformed), ("t=now,v1=\(code)", .malformed),
            ("t=-1790000000,v1=\(code)", .malformed), ("t=1790000000,t=1790000000,v1=\(code)", .malformed),
            ("t=1790000000,v1=\(code.uppercased())", .malformed), ("t=1790000000,v1=\(code)00", .malformed),
            ("t=1790000000;v1=\(code)", .malformed), ("t=1790000000,v1=\(other)", .wrongSignature),
            (String(repeating: "t=1790000000,", count: 400) + "v1=\(code)", .malformed),
        ] as [(String?, WebhookRefusal?)]
    )
    func `a header is read as it is documented`(signature: String?, expected: WebhookRefusal?) throws {
        #expect(try refusal(signature) == expected)
    }

    @Test func `what is set up has to hold, all of it`() throws {
        let genuine = "t=1790000000,v1=\(Self.code)"
        #expect(try refusal(nil, authorization: "Bearer x", expecting: "Bearer x", secret: nil) == nil)
        #expect(try refusal(genuine, authorization: "Bearer x", expecting: "Bearer x") == nil)
        for sent in ["Bearer y", "bearer x", "Bearer  x", "", "x"] {
            #expect(
                try refusal(genuine, authorization: sent, expecting: "Bearer x") == .wrongAuthorization,
                "\(sent)"
            )
        }
        #expect(try refusal(genuine, expecting: "Bearer x") == .missing)
        #expect(try refusal(nil, authorization: "Bearer x", expecting: "Bearer x") == .missing)
        #expect(RevenueCatWebhooks(authorization: nil, secret: nil) == nil)
        #expect(RevenueCatWebhooks(authorization: "", secret: "") == nil, "an open door is no door")
    }

    @Test func `altered in any byte of body or header it is refused`() throws {
        let genuine = "t=1790000000,v1=\(Self.code)"
        var random = SeededGenerator(seed: 7)
        for _ in 0..<20_000 {
            let header = Mutations.alter(Array(genuine.utf8), Array("tv1=,0123456789abcdef ".utf8), &random)
            let body = Mutations.alter(Array(Self.body.utf8), Mutations.json, &random)
            if header != Array(genuine.utf8) {
                let text = String(decoding: header, as: UTF8.self)
                let isSame = text.contains("t=1790000000,") && text.contains(Self.code)
                #expect(try isSame || refusal(text) != nil, "\(text)")
            }
            guard body != Array(Self.body.utf8), let text = String(validating: body, as: UTF8.self) else { continue }
            #expect(try refusal(genuine, body: text) == .wrongSignature)
        }
    }
}
