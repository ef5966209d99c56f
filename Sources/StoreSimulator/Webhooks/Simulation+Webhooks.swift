internal import Foundation

/// A webhook as a store would post it, ready to be posted.
package struct WebhookPost: Sendable, Hashable {
    /// The headers that say who sends it; beside them goes a content type of `application/json`.
    package var headers: [String: String] = [:]
    /// The exact bytes of the body, which are UTF-8: what is signed is these.
    package var body: String

    /// The webhook as the control endpoint shows it.
    var reply: Reply {
        .object { json in
            json.object("headers") { json in
                for (name, value) in headers.sorted(by: { $0.key < $1.key }) {
                    json.key(name)
                    json.value(value)
                }
            }
            json.member("body", body)
        }
    }
}

extension Simulation.State {
    /// Answers a request below `/control/webhooks/`.
    ///
    /// - Returns: `nil` where there is no such path.
    /// - Throws: `ScenarioError` for a fault in the request.
    mutating func webhook(_ request: StoreRequest, _ path: Substring) throws -> Reply? {
        switch (request.method, path) {
        case ("POST", "revenuecat"):
            let webhook: RevenueCatWebhookRequest = try request.decoded()
            return try webhook.post(nowMs: clock.nowMs).reply
        case ("POST", "app-store"): return try appStore.webhook(request.decoded(), nowMs: clock.nowMs).reply
        case ("POST", "google-play"):
            let push: GooglePlayWebhookRequest = try request.decoded()
            guard let notification = push.notifications.first else { return nil }
            return try self.push(notification, packageName: push.packageName, messageID: push.messageID).reply
        default: return nil
        }
    }

    /// A notification of Google Play's, as Pub/Sub pushes it.
    mutating func push(
        _ notification: GooglePlayNotification,
        packageName: String?,
        messageID: String?
    ) throws -> WebhookPost {
        let nowMs = clock.nowMs
        let data = try googlePlay.write(notification, packageName: packageName, nowMs: nowMs)
        let token = try identity.pushToken(PushTokenRequest(), nowMs: nowMs)
        pushNumber += 1
        let id = messageID ?? "\(nowMs)\(Identifiers.padded(pushNumber, to: 5))"
        let time = Date(timeIntervalSince1970: Double(nowMs) / 1000)
            .formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
        let body = JSONBytes.object { json in
            json.object("message") { json in
                json.object("attributes")
                json.member("data", Data(data).base64EncodedString())
                // Each member stands there under both of its names.
                json.member("messageId", id)
                json.member("message_id", id)
                json.member("publishTime", time)
                json.member("publish_time", time)
            }
            json.member("subscription", "projects/\(scenario.firebase.project)/subscriptions/google-play")
        }
        return WebhookPost(
            headers: ["Authorization": "Bearer \(token)"],
            body: String(decoding: body, as: UTF8.self)
        )
    }
}

// The control endpoint without HTTP, for tests in the same process.
extension StoreSimulator {
    /// A webhook of RevenueCat's with these members, to which an id and a time are added where they are missing.
    ///
    /// An empty authorization leaves the header out, an empty secret the signature. It is signed at a moment in Unix
    /// seconds, by default the simulated time.
    ///
    /// - Throws: `ScenarioError` where `event` is no JSON object.
    package func revenueCatWebhook(
        _ event: String,
        authorization: String = StoreSimulator.revenueCatWebhookAuthorization,
        secret: String = StoreSimulator.revenueCatWebhookSecret,
        signedAt: Int64? = nil
    ) throws -> WebhookPost {
        let request = RevenueCatWebhookRequest(
            event: try ScenarioError.explaining {
                try JSONDecoder().decode([String: JSONValue].self, from: Data(event.utf8))
            },
            authorization: authorization,
            secret: secret,
            signedAt: signedAt
        )
        return try request.post(nowMs: simulation.withState { $0.clock.nowMs })
    }

    /// A notification of the App Store: a body with a signed payload, which goes without headers.
    ///
    /// - Throws: `ScenarioError` where there is no such transaction.
    package func appStoreWebhook(_ request: AppStoreWebhookRequest = AppStoreWebhookRequest()) throws -> WebhookPost {
        try simulation.withState { try $0.appStore.webhook(request, nowMs: $0.clock.nowMs) }
    }

    /// A notification of Google Play's, as Pub/Sub pushes it; the app is the scenario's by default.
    ///
    /// The id of a message is the same for its every delivery, and a new one by default.
    ///
    /// - Throws: `ScenarioError` where there is no purchase to take a member from that was left out.
    package func googlePlayWebhook(
        _ notification: GooglePlayNotification,
        packageName: String? = nil,
        messageID: String? = nil
    ) throws -> WebhookPost {
        try simulation.withState { try $0.push(notification, packageName: packageName, messageID: messageID) }
    }

    static let webhookGuide = """
        WEBHOOKS of the stores, ready to be posted: {"headers": {...}, "body": "..."}; send the body byte for byte

          POST   /control/webhooks/revenuecat    {"event": {"type": "RENEWAL", "app_user_id": "user-1"}}: any event; id and
                                                 event_timestamp_ms are added where they are missing. Signed with
                                                 secret: revenuecat-demo-webhook-secret, and sent with
                                                 authorization: revenuecat-demo-authorization; both may be given, ""
                                                 leaves one out. t: when it is signed, in Unix seconds
          POST   /control/webhooks/app-store     {"type": "DID_RENEW", "transaction": "2000000100000009"}; TEST needs no
                                                 transaction. Further members: subtype account uuid environment
          POST   /control/webhooks/google-play   one of
                                                 {"subscription": {"notificationType": 4, "purchaseToken": "tok-a"}}
                                                 {"one_time": {"notificationType": 1, "purchaseToken": "tok-c"}}
                                                 {"voided": {"purchaseToken": "tok-a"}}
                                                 {"test": {}}
                                                 {"raw": "any text in the place of a notification"}
                                                 with a push's token. Further members: package message_id, and in the
                                                 objects subscriptionId sku orderId productType refundType
        """
}
