internal import Crypto
internal import Foundation

extension StoreSimulator {
    /// What the simulated RevenueCat sends as `Authorization` with its events.
    package static let revenueCatWebhookAuthorization = "revenuecat-demo-authorization"
    /// What it signs them with.
    package static let revenueCatWebhookSecret = "revenuecat-demo-webhook-secret"
}

/// What a webhook of RevenueCat's is to say; also the body of `POST /control/webhooks/revenuecat`.
struct RevenueCatWebhookRequest: ScenarioObject {
    /// The event's members; an id and a time are added where they are missing.
    var event: [String: JSONValue] = [:]
    /// The header; empty: none.
    var authorization = StoreSimulator.revenueCatWebhookAuthorization
    /// What it is signed with; empty: it is not signed.
    var secret = StoreSimulator.revenueCatWebhookSecret
    /// When it is signed, in Unix seconds; the simulated time by default.
    var signedAt: Int64?

    static let fields: [ScenarioField<Self>] = [
        .required("event", \.event), .value("authorization", \.authorization), .value("secret", \.secret),
        .optional("t", \.signedAt),
    ]

    /// The webhook of a moment.
    func post(nowMs: Int64) throws -> WebhookPost {
        var event = event
        if event["id"] == nil { event["id"] = .text(UUID().uuidString.lowercased()) }
        if event["event_timestamp_ms"] == nil { event["event_timestamp_ms"] = .integer(nowMs) }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let members: [String: JSONValue] = ["api_version": .text("1.0"), "event": .object(event)]
        let body = try encoder.encode(members)
        var headers: [String: String] = [:]
        if !authorization.isEmpty { headers["Authorization"] = authorization }
        if !secret.isEmpty {
            let seconds = signedAt ?? nowMs / 1000
            let code = Self.code(of: body, at: seconds, secret: secret)
            headers["X-RevenueCat-Webhook-Signature"] = "t=\(seconds),v1=\(code)"
        }
        return WebhookPost(headers: headers, body: String(decoding: body, as: UTF8.self))
    }

    /// The signature of a body, as lower-case hexadecimal digits.
    ///
    /// - SeeAlso: https://www.revenuecat.com/docs/integrations/webhooks
    static func code(of body: Data, at seconds: Int64, secret: String) -> String {
        let signed = Data("\(seconds).".utf8) + body
        let code = HMAC<SHA256>.authenticationCode(for: signed, using: SymmetricKey(data: Data(secret.utf8)))
        return code.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
    }
}
