import Foundation
import Postgres
import TestSupport
import Testing

/// Webhooks that no store sent, and what operators read of them.
struct ForgedWebhookTests {
    private struct Forgery: Sendable {
        var store: String
        var name: String
        var reason: String
        var webhook: Webhook
    }

    private static func revenueCat(_ endpoints: EndpointSite) async throws -> [Forgery] {
        let now = AccessScene.now
        func webhook(_ more: String = "") async throws -> Webhook {
            try await endpoints.webhook("revenuecat", "{\"event\": \(AccessScene.event)\(more)}")
        }
        var tampered = try await webhook()
        tampered.body = tampered.body.replacing("RENEWAL", with: "EXPIRATION")
        var garbled = try await webhook()
        garbled.headers["X-RevenueCat-Webhook-Signature"] = "v1=hunter2"
        let cases: [(name: String, reason: String, webhook: Webhook)] = [
            ("rc-authorization", "wrong_authorization", try await webhook(", \"authorization\": \"hunter2\"")),
            ("rc-no-authorization", "missing", try await webhook(", \"authorization\": \"\"")),
            ("rc-secret", "wrong_signature", try await webhook(", \"secret\": \"hunter2\"")),
            ("rc-no-signature", "missing", try await webhook(", \"secret\": \"\"")),
            ("rc-replayed", "not_now", try await webhook(", \"t\": \(now - 600)")),
            ("rc-ahead", "not_now", try await webhook(", \"t\": \(now + 600)")),
            ("rc-tampered", "wrong_signature", tampered), ("rc-garbled", "malformed", garbled),
        ]
        return cases.map { Forgery(store: "revenuecat", name: $0.name, reason: $0.reason, webhook: $0.webhook) }
    }

    private static func appStore(_ endpoints: EndpointSite) async throws -> [Forgery] {
        struct Body: Decodable { var signedPayload: String }
        var parts: [[Substring]] = []
        for type in ["DID_RENEW", "EXPIRED"] {
            let request = #"{"type": "\#(type)", "transaction": "2000000700000001"}"#
            let genuine = try await endpoints.webhook("app-store", request)
            let body = try JSONDecoder().decode(Body.self, from: Data(genuine.body.utf8))
            parts.append(body.signedPayload.split(separator: "."))
        }
        let (renewed, expired) = (parts[0], parts[1])
        try #require(renewed.count == 3 && expired.count == 3)
        let other = (renewed[2].hasPrefix("AAAA") ? "BBBB" : "AAAA") + String(renewed[2].dropFirst(4))
        // {"alg":"none"}
        let unsigned = "eyJhbGciOiJub25lIn0.\(renewed[1])."
        let cases: [(name: String, reason: String, payload: String)] = [
            ("as-signature", "bad_signature", "\(renewed[0]).\(renewed[1]).\(other)"),
            ("as-payload", "bad_signature", "\(renewed[0]).\(expired[1]).\(renewed[2])"),
            ("as-unsigned", "wrong_algorithm", unsigned), ("as-garbage", "malformed", "hunter2"),
        ]
        return cases.map {
            let webhook = Webhook(headers: [:], body: "{\"signedPayload\":\"\($0.payload)\"}")
            return Forgery(store: "app-store", name: $0.name, reason: $0.reason, webhook: webhook)
        }
    }

    private static func googlePlay(_ endpoints: EndpointSite) async throws -> [Forgery] {
        let now = AccessScene.now
        let request = #"{"subscription": {"notificationType": 4, "purchaseToken": "tok-ann"}}"#
        let genuine = try await endpoints.webhook("google-play", request)
        let tokens: [(name: String, reason: String, token: String?)] = [
            ("gp-none", "missing", nil),
            (
                "gp-audience", "wrong_audience",
                try await endpoints.pushToken(#"{"audience": "https://example.org/hook"}"#)
            ),
            ("gp-account", "wrong_subject", try await endpoints.pushToken(#"{"email": "x@other.iam.example.com"}"#)),
            ("gp-unverified", "wrong_subject", try await endpoints.pushToken(#"{"email_verified": false}"#)),
            ("gp-issuer", "wrong_issuer", try await endpoints.pushToken(#"{"iss": "https://example.org"}"#)),
            ("gp-tampered", "bad_signature", try await endpoints.pushToken(#"{"tampered": true}"#)),
            ("gp-unsigned", "malformed", try await endpoints.pushToken(#"{"alg": "none"}"#)),
            ("gp-public-secret", "wrong_algorithm", try await endpoints.pushToken(#"{"alg": "HS256"}"#)),
            (
                "gp-expired", "expired",
                try await endpoints.pushToken(#"{"iat": \#(now - 7200), "exp": \#(now - 3600)}"#)
            ),
            ("gp-users", "wrong_audience", try await endpoints.token(#"{"sub": "ann"}"#)),
            ("gp-strange-key", "unknown_key", try await endpoints.pushToken(#"{"kid": "nobodys-key"}"#)),
        ]
        return tokens.map {
            var webhook = Webhook(headers: [:], body: genuine.body)
            webhook.headers["Authorization"] = $0.token.map { "Bearer \($0)" }
            return Forgery(store: "google-play", name: $0.name, reason: $0.reason, webhook: webhook)
        }
    }

    @Test func `72: a webhook that does not show who sent it is refused and writes nothing, a right one is kept once`()
        async throws
    {
        let settings = ["LOG_LEVEL": "trace"]
        try await EndpointSite.with(scenario: AccessScene.scenario, users: ["ann"], settings: settings) { endpoints in
            let endpoint = try await endpoints.open("serve")
            var forgeries = try await Self.revenueCat(endpoints)
            forgeries += try await Self.appStore(endpoints)
            forgeries += try await Self.googlePlay(endpoints)
            let before = try await endpoints.site.content()
            var refusals: [String: Refusal] = [:]
            for forgery in forgeries {
                let answer = try await endpoint.post(forgery.webhook, to: forgery.store, name: forgery.name)
                #expect(answer.status == 401 && answer["WWW-Authenticate"] == "Bearer", "\(forgery.name): \(answer)")
                let problem = try answer.problem
                #expect(problem.detail == "the request does not show that it comes from the store", "\(problem)")
                refusals[forgery.name] = Refusal(
                    endpoint: forgery.store.replacing("-", with: "_"),
                    reason: forgery.reason
                )
            }
            let isSame = try await endpoints.site.content() == before
            #expect(isSame, "nothing is written")

            // What is sent as it should be is kept, once.
            let genuine = [
                "revenuecat": try await endpoints.webhook("revenuecat", #"{"event": \#(AccessScene.event)}"#),
                "app-store": try await endpoints.webhook(
                    "app-store",
                    #"{"type": "DID_RENEW", "transaction": "2000000700000001"}"#
                ),
                "google-play": try await endpoints.webhook(
                    "google-play",
                    #"{"subscription": {"notificationType": 4, "purchaseToken": "tok-ann"}}"#
                ),
            ]
            for (store, webhook) in genuine {
                for _ in 0..<3 {
                    let answer = try await endpoint.post(webhook, to: store)
                    #expect(answer.status == 200 && answer.body.isEmpty, "\(store): \(answer)")
                }
            }
            let kept = try await endpoints.site.texts(
                "SELECT concat_ws(' ', l.source, l.state) FROM entitlement_sync.inbox_log AS l ORDER BY 1"
            )
            #expect(kept == ["app_store received", "google_play received", "revenuecat received"])
            var secrets = ["hunter2", "revenuecat-demo", "tok-ann"]
            for webhook in forgeries.map(\.webhook) + Array(genuine.values) {
                secrets.append(String(webhook.body.suffix(40)))
                for value in webhook.headers.values { secrets.append(String(value.suffix(40))) }
            }
            try await Refusal.expectLines(refusals, of: endpoint, withoutAnyOf: secrets)
            try await endpoint.close()
        }
    }
}
