internal import Foundation

extension Simulation.State {
    /// Answers a request below `/control/webhooks/`.
    ///
    /// - Returns: `nil` where there is no such path.
    /// - Throws: `ScenarioError` for a fault in the request.
    mutating func control(_ request: StoreRequest, _ path: Substring) throws -> Reply? {
        switch (request.method, path.dropFirst("/control/webhooks/".count)) {
        case ("POST", "revenuecat"):
            let webhook: RevenueCatWebhookRequest = try request.decoded()
            return try webhook.post(nowMs: clock.nowMs).reply
        case ("POST", "app-store"):
            return try appStore.webhook(request.decoded(), nowMs: clock.nowMs).reply
        case ("POST", "google-play"):
            return try push(request.decoded()).reply
        default: return nil
        }
    }

    /// A notification of Google Play's, as Pub/Sub pushes it.
    ///
    /// - Throws: `ScenarioError` where a member is missing, and what the cryptography library does.
    mutating func push(_ request: GooglePlayWebhookRequest) throws -> WebhookPost {
        let nowMs = clock.nowMs
        let data = try googlePlay.write(request.notification, packageName: request.packageName, nowMs: nowMs)
        let token = try identity.pushToken(PushTokenRequest(), nowMs: nowMs)
        pushNumber += 1
        let id = request.messageID ?? "\(nowMs)\(Identifiers.padded(pushNumber, to: 5))"
        let time = Date(timeIntervalSince1970: Double(nowMs) / 1000).formatted(Self.style)
        var json = JSONBytes()
        json.beginObject()
        json.key("message")
        json.beginObject()
        json.key("attributes")
        json.beginObject()
        json.endObject()
        json.key("data")
        json.value(Data(data).base64EncodedString())
        // Each member stands there under both of its names.
        json.key("messageId")
        json.value(id)
        json.key("message_id")
        json.value(id)
        json.key("publishTime")
        json.value(time)
        json.key("publish_time")
        json.value(time)
        json.endObject()
        json.key("subscription")
        json.value("projects/\(scenario.firebase.project)/subscriptions/google-play")
        json.endObject()
        return WebhookPost(
            headers: ["Authorization": "Bearer \(token)"],
            body: String(decoding: json.bytes, as: UTF8.self)
        )
    }

    private static let style = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
}

// The control endpoint without HTTP, for tests in the same process.
extension StoreSimulator {
    /// A webhook of RevenueCat's.
    ///
    /// - Parameters:
    ///   - event: the event's members, as JSON; an id and a time are added where they are missing.
    ///   - authorization: the header; the demo's by default, none where it is empty.
    ///   - secret: what it is signed with; the demo's by default, nothing where it is empty.
    ///   - signedAt: when it is signed, in Unix seconds; the simulated time by default.
    /// - Returns: headers and body.
    /// - Throws: `ScenarioError` where `event` is no JSON object.
    package func revenueCatWebhook(
        _ event: String,
        authorization: String? = nil,
        secret: String? = nil,
        signedAt: Int64? = nil
    ) throws -> WebhookPost {
        let members: [String: JSONValue]
        do {
            members = try JSONDecoder().decode([String: JSONValue].self, from: Data(event.utf8))
        } catch let error as DecodingError {
            throw ScenarioError(error)
        }
        let request = RevenueCatWebhookRequest(
            event: members,
            authorization: authorization,
            secret: secret,
            signedAt: signedAt
        )
        return try request.post(nowMs: simulation.withState { $0.clock.nowMs })
    }

    /// A notification of the App Store.
    ///
    /// - Parameter request: what it says.
    /// - Returns: a body with a signed payload, which goes without headers.
    /// - Throws: `ScenarioError` where there is no such transaction, and what the cryptography library does.
    package func appStoreWebhook(_ request: AppStoreWebhookRequest = AppStoreWebhookRequest()) throws -> WebhookPost {
        try simulation.withState { try $0.appStore.webhook(request, nowMs: $0.clock.nowMs) }
    }

    /// A notification of Google Play's, as Pub/Sub pushes it.
    ///
    /// - Parameters:
    ///   - notification: what happened.
    ///   - packageName: the app; the scenario's by default.
    ///   - messageID: the same for every delivery of one message; a new one by default.
    /// - Returns: the header with a push's token, and the body.
    /// - Throws: `ScenarioError` where there is no purchase to take a member from that was left out.
    package func googlePlayWebhook(
        _ notification: GooglePlayNotification,
        packageName: String? = nil,
        messageID: String? = nil
    ) throws -> WebhookPost {
        let request = GooglePlayWebhookRequest(
            notification: notification,
            packageName: packageName,
            messageID: messageID
        )
        return try simulation.withState { try $0.push(request) }
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
