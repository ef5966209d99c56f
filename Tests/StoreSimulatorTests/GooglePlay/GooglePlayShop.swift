import Crypto
import CryptoExtras
import Foundation
import HTTPTypes
import Testing

@testable import StoreSimulator

/// Signs assertions as a client does, well or badly.
struct Assertion {
    var header: [String: any Sendable] = ["alg": "RS256", "typ": "JWT"]
    var claims: [String: any Sendable]
    var key: _RSA.Signing.PrivateKey?

    init() {
        let now = SimulatedClock.machine() / 1000
        claims = [
            "iss": "simulator@simulated-project.iam.gserviceaccount.com",
            "scope": "https://www.googleapis.com/auth/androidpublisher",
            "aud": "https://oauth2.googleapis.com/token",
            "iat": now,
            "exp": now + 3_600,
        ]
    }

    func signed() throws -> String {
        let file = try JSON(StoreSimulator.googleServiceAccount)
        let key = try self.key ?? _RSA.Signing.PrivateKey(pemRepresentation: file["private_key"]?.text ?? "")
        let text = try Self.part(header) + "." + Self.part(claims)
        let signature = try key.signature(for: Data(text.utf8), padding: .insecurePKCS1v1_5)
        return text + "." + Self.base64(signature.rawRepresentation)
    }

    private static func part(_ members: [String: any Sendable]) throws -> String {
        base64(try JSONSerialization.data(withJSONObject: members))
    }

    private static func base64(_ data: Data) -> String {
        data.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }
}

extension Probe {
    static let play = "/google-play/androidpublisher/v3/applications/com.example.app"

    func exchange(_ assertion: String, grant: String = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer")
        async throws -> Answer
    {
        try await send(
            .post,
            "/google-oauth/token",
            authorization: nil,
            contentType: "application/x-www-form-urlencoded",
            body: "grant_type=\(grant)&assertion=\(assertion)"
        )
    }

    /// Asks in the name of the service account.
    func ask(_ method: HTTPRequest.Method = .get, _ path: String, body: String? = nil) async throws -> Answer {
        let token = try await exchange(Assertion().signed()).json["access_token"]?.text ?? ""
        return try await send(method, Self.play + path, authorization: "Bearer \(token)", body: body)
    }

    func subscription(_ token: String) async throws -> JSON {
        try await ask(.get, "/purchases/subscriptionsv2/tokens/\(token)").json
    }
}

extension Probe.Answer {
    var reason: String? { (try? json)?["error"]?["errors"]?[0]?["reason"]?.text }
}

/// What the tests' store holds.
enum GooglePlayShop {
    static let scenario = """
        google_play:
          purchases:
            - {token: tok, account: acc, profile: prof, order_id: GPA.1-2-3-4}
            - {token: fresh, acknowledged: false}
            - {token: one, kind: one_time, product: lifetime, acknowledged: false}
            - {token: gone, state: gone}
            - {token: unpaid, state: pending, acknowledged: false}
        """
}
