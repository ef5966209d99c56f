import Crypto
import Foundation
import HTTPTypes
import Testing

@testable import StoreSimulator

/// Events that are ready to be posted, as RevenueCat, the App Store and Pub/Sub would post them.
@Suite struct WebhookPostTests {
    private static let scenario = """
        app_store:
          customers:
            - id: alice
              transactions:
                - {original: "1001", product: monthly, purchased: -32d}
                - {original: "1001", transaction: "1009", product: monthly, purchased: -2d, expires: +28d}
                - {original: "1002", product: lifetime, type: non_consumable}
            - {id: bob, environment: Sandbox, transactions: [{original: "2001", product: monthly}]}
        google_play:
          package: com.example.play
          purchases:
            - {token: tok-a, order_id: GPA.1-2-3-4}
            - {token: tok-c, kind: one_time, product: lifetime, order_id: GPA.5-6-7-8}
        """

    private struct Event {
        var headers: JSON
        var text: String
        var body: JSON
    }

    private func event(_ probe: Probe, _ path: String, _ request: String) async throws -> Event {
        let answer = try await probe.control(.post, "/webhooks/\(path)", request)
        #expect(answer.status == 200, "\(request): \(answer.text)")
        let json = try answer.json
        let text = try #require(json["body"]?.text)
        return Event(headers: try #require(json["headers"]), text: text, body: try JSON(text))
    }

    // MARK: RevenueCat

    /// The seconds and the code of a signature's header.
    private func signature(_ header: String?) throws -> (seconds: String, code: [UInt8]) {
        let parts = try #require(header).split(separator: ",")
        try #require(parts.count == 2 && parts[0].hasPrefix("t=") && parts[1].hasPrefix("v1="))
        let digits = Array(parts[1].dropFirst(3))
        try #require(digits.count == 64 && String(digits) == String(digits).lowercased())
        let code = stride(from: 0, to: 64, by: 2).compactMap { UInt8(String(digits[$0...($0 + 1)]), radix: 16) }
        return (String(parts[0].dropFirst(2)), code)
    }

    private func isSigned(_ text: String, _ header: String?, secret: String) throws -> Bool {
        let (seconds, code) = try signature(header)
        return HMAC<SHA256>.isValidAuthenticationCode(
            code,
            authenticating: Data("\(seconds).\(text)".utf8),
            using: SymmetricKey(data: Data(secret.utf8))
        )
    }

    @Test func `the signature is the one that RevenueCat would make`() {
        let body = """
            {"api_version":"1.0","event":{"id":"3f1c7f0e-3b0e-4a55-9a3f-0d8f2f6d1c11","type":"TEST",\
            "environment":"PRODUCTION","event_timestamp_ms":1790000000123,\
            "app_user_id":"kQ3vZr8mT2fXw1LdYp6sNb4HcJe7","note":"café/9.90"}}
            """
        let code = RevenueCatWebhookRequest.code(
            of: Data(body.utf8),
            at: 1_790_000_000,
            secret: "example-signing-secret-not-real"
        )
        #expect(code == "1c0f10286fad25e67dbe60e922f5410c3641a987bce0951a9999c367f064a78e")
    }

    @Test func `a webhook of RevenueCat's carries any event, signed`() async throws {
        try await Probe.run(Self.scenario) { probe in
            let request = """
                {"event": {"type": "RENEWAL", "app_user_id": "ann/é", "aliases": ["ann", "x\\"y"], "price": 9.99, "is_new": true,
                           "expiration_at_ms": null, "subscriber_attributes": {"$email": {"value": "a@x"}}}}
                """
            let posted = try await event(probe, "revenuecat", request)
            #expect(posted.body["api_version"]?.text == "1.0")
            let members = try #require(posted.body["event"])
            #expect(members["type"]?.text == "RENEWAL" && members["app_user_id"]?.text == "ann/é")
            #expect(members["aliases"] == .array([.string("ann"), .string("x\"y")]))
            #expect(members["price"] == .fraction(9.99) && members["is_new"] == .bool(true))
            #expect(members["expiration_at_ms"] == .null)
            #expect(members["subscriber_attributes"]?["$email"]?["value"]?.text == "a@x")
            #expect(members["event_timestamp_ms"]?.integer == probe.nowMs)
            #expect(UUID(uuidString: members["id"]?.text ?? "") != nil)
            #expect(posted.headers.keys == ["Authorization", "X-RevenueCat-Webhook-Signature"])
            #expect(posted.headers["Authorization"]?.text == "revenuecat-demo-authorization")
            let header = posted.headers["X-RevenueCat-Webhook-Signature"]?.text
            #expect(try isSigned(posted.text, header, secret: "revenuecat-demo-webhook-secret"))
            #expect(try !isSigned(posted.text, header, secret: "other"))
            #expect(try signature(header).seconds == "\(probe.nowMs / 1000)")
        }
    }

    @Test func `an event's own id and time are kept, and who sends it can be chosen`() async throws {
        try await Probe.run { probe in
            let request = #"""
                {"event": {"id": "e-1", "event_timestamp_ms": 17}, "authorization": "Bearer other", "secret": "s", "t": 1790000000}
                """#
            let chosen = try await event(probe, "revenuecat", request)
            #expect(chosen.text == #"{"api_version":"1.0","event":{"event_timestamp_ms":17,"id":"e-1"}}"#)
            #expect(chosen.headers["Authorization"]?.text == "Bearer other")
            let header = chosen.headers["X-RevenueCat-Webhook-Signature"]?.text
            #expect(header?.hasPrefix("t=1790000000,v1=") == true)
            #expect(try isSigned(chosen.text, header, secret: "s"))
            let bare = try await event(probe, "revenuecat", #"{"event":{},"authorization":"","secret":""}"#)
            #expect(bare.headers == .object([:]))

            let same = try probe.simulator.revenueCatWebhook(
                #"{"id":"e-1","event_timestamp_ms":17}"#,
                authorization: "Bearer other",
                secret: "s",
                signedAt: 1_790_000_000
            )
            #expect(same.body == chosen.text && same.headers["X-RevenueCat-Webhook-Signature"] == header)
            #expect(throws: ScenarioError.self) { try probe.simulator.revenueCatWebhook("[]") }
        }
    }

    // MARK: App Store

    private func payload(_ event: Event) throws -> SignedToken {
        try SignedToken(try #require(event.body["signedPayload"]?.text))
    }

    @Test func `a notification of the App Store holds what it is about, each part signed`() async throws {
        let chain = try AppStoreCredentials.authority.get().chain()
        try await Probe.run(Self.scenario) { probe in
            let request = #"{"type":"DID_RENEW","subtype":null,"account":"alice","transaction":"1009"}"#
            let posted = try await event(probe, "app-store", request)
            #expect(posted.headers == .object([:]) && posted.body.keys == ["signedPayload"])
            let outer = try payload(posted)
            #expect(outer.claims["notificationType"]?.text == "DID_RENEW" && outer.claims["subtype"] == nil)
            #expect(outer.claims["version"]?.text == "2.0" && outer.claims["signedDate"]?.integer == probe.nowMs)
            #expect(UUID(uuidString: outer.claims["notificationUUID"]?.text ?? "") != nil)
            let data = try #require(outer.claims["data"])
            #expect(data["environment"]?.text == "Production" && data["bundleId"]?.text == "com.example.app")
            #expect(data["appAppleId"]?.integer == 1_234_567_890 && data["status"]?.integer == 1)
            let transaction = try SignedToken(try #require(data["signedTransactionInfo"]?.text))
            #expect(transaction.claims["transactionId"]?.text == "1009")
            #expect(transaction.claims["originalTransactionId"]?.text == "1001")
            let renewal = try SignedToken(try #require(data["signedRenewalInfo"]?.text))
            #expect(renewal.claims["originalTransactionId"]?.text == "1001")
            let certificates = JSON.array(chain.map { JSON.string($0) })
            for part in [outer, transaction, renewal] {
                #expect(part.header["alg"]?.text == "ES256" && part.signature.count == 64)
                #expect(part.header["x5c"] == certificates)
            }
        }
    }

    @Test func `a notification's id, environment and subject can be chosen`() async throws {
        try await Probe.run(Self.scenario) { probe in
            let refund = #"{"type":"REFUND","transaction":"1002","uuid":"u-1","subtype":"X"}"#
            let once = try payload(try await event(probe, "app-store", refund))
            #expect(once.claims["notificationUUID"]?.text == "u-1" && once.claims["subtype"]?.text == "X")
            #expect(once.claims["data"]?["signedRenewalInfo"] == nil && once.claims["data"]?["status"] == nil)

            let test = try payload(try await event(probe, "app-store", #"{"type":"TEST","environment":"Sandbox"}"#))
            #expect(test.claims["data"]?["environment"]?.text == "Sandbox")
            #expect(test.claims["data"]?["signedTransactionInfo"] == nil)
            let usual = try payload(try await event(probe, "app-store", ""))
            #expect(usual.claims["notificationType"]?.text == "TEST")
            #expect(usual.claims["data"]?["environment"]?.text == "Production")

            // The account's own environment, and the purchase's newest transaction.
            let sandbox = try payload(try await event(probe, "app-store", #"{"type":"EXPIRED","transaction":"2001"}"#))
            #expect(sandbox.claims["data"]?["environment"]?.text == "Sandbox")
            let request = AppStoreWebhookRequest(type: "DID_RENEW", account: "bob", transaction: "2001")
            let body = try JSON(try probe.simulator.appStoreWebhook(request).body)
            let same = try SignedToken(try #require(body["signedPayload"]?.text))
            #expect(same.claims["data"]?["environment"]?.text == "Sandbox")
            #expect(try probe.simulator.appStoreWebhook().headers.isEmpty)
        }
    }

    // MARK: Google Play

    private func notification(_ event: Event) throws -> JSON {
        let data = try #require(Data(base64Encoded: event.body["message"]?["data"]?.text ?? ""))
        return try JSON(String(decoding: data, as: UTF8.self))
    }

    @Test func `Pub/Sub pushes a notification of Google Play's with a token and both spellings`() async throws {
        try await Probe.run(Self.scenario) { probe in
            let request = #"{"subscription":{"notificationType":4,"purchaseToken":"tok-a"}}"#
            let first = try await event(probe, "google-play", request)
            #expect(first.body.keys == ["message", "subscription"])
            #expect(first.body["subscription"]?.text == "projects/demo-project/subscriptions/google-play")
            let message = try #require(first.body["message"])
            let names: Set = ["attributes", "data", "messageId", "message_id", "publishTime", "publish_time"]
            #expect(message.keys == names)
            #expect(message["messageId"] == message["message_id"] && message["messageId"]?.text?.isEmpty == false)
            #expect(message["publishTime"] == message["publish_time"])
            #expect(message["publishTime"]?.text?.hasSuffix("Z") == true)
            let said = try notification(first)
            #expect(said.keys == ["version", "packageName", "eventTimeMillis", "subscriptionNotification"])
            #expect(said["version"]?.text == "1.0" && said["packageName"]?.text == "com.example.play")
            #expect(said["eventTimeMillis"]?.text == "\(probe.nowMs)")
            let notice = try #require(said["subscriptionNotification"])
            #expect(notice["version"]?.text == "1.0" && notice["notificationType"]?.integer == 4)
            #expect(notice["purchaseToken"]?.text == "tok-a" && notice["subscriptionId"] == nil)

            let header = try #require(first.headers["Authorization"]?.text)
            #expect(first.headers.keys == ["Authorization"] && header.hasPrefix("Bearer "))
            let token = try SignedToken(String(header.dropFirst("Bearer ".count)))
            let set = try await probe.send(.get, "/google-keys/oauth", authorization: nil).json
            #expect(try token.isSigned(by: set))
            #expect(token.claims["aud"]?.text == "https://app.example.com/webhooks/google-play")

            let second = try await event(probe, "google-play", request)
            #expect(second.body["message"]?["messageId"] != message["messageId"])
        }
    }

    @Test func `every kind of notification can be pushed, and what is none`() async throws {
        try await Probe.run(Self.scenario) { probe in
            func said(_ request: String) async throws -> JSON {
                try notification(try await event(probe, "google-play", request))
            }
            let bought = try await said(
                #"{"one_time":{"notificationType":1,"purchaseToken":"tok-c"},"package":"com.example.other"}"#
            )
            #expect(bought["packageName"]?.text == "com.example.other")
            #expect(bought["oneTimeProductNotification"]?["sku"]?.text == "lifetime")
            #expect(bought["oneTimeProductNotification"]?["notificationType"]?.integer == 1)
            let voided = try await said(#"{"voided":{"purchaseToken":"tok-c"}}"#)["voidedPurchaseNotification"]
            #expect(voided?["orderId"]?.text == "GPA.5-6-7-8" && voided?["productType"]?.integer == 2)
            #expect(voided?["refundType"]?.integer == 1 && voided?["version"] == nil)
            let given = try await said(
                #"{"voided":{"purchaseToken":"x","orderId":"GPA.9","productType":1,"refundType":2}}"#
            )["voidedPurchaseNotification"]
            #expect(given?["orderId"]?.text == "GPA.9" && given?["productType"]?.integer == 1)
            #expect(given?["refundType"]?.integer == 2)
            let renewed = try await said(
                #"{"subscription":{"notificationType":2,"purchaseToken":"x","subscriptionId":"pro"}}"#
            )
            #expect(renewed["subscriptionNotification"]?["subscriptionId"]?.text == "pro")
            #expect(try await said(#"{"test":{}}"#)["testNotification"] == .object(["version": .string("1.0")]))

            let raw = try await event(probe, "google-play", #"{"raw":"no JSON","message_id":"m-1"}"#)
            #expect(raw.body["message"]?["data"]?.text == Data("no JSON".utf8).base64EncodedString())
            #expect(raw.body["message"]?["message_id"]?.text == "m-1")
            let same = try probe.simulator.googlePlayWebhook(.raw("no JSON"), messageID: "m-1")
            #expect(same.body == raw.text && same.headers["Authorization"] == raw.headers["Authorization"]?.text)
            let other = try probe.simulator.googlePlayWebhook(.subscription(kind: 13, token: "t"), packageName: "p")
            #expect(other.body.contains("messageId"))
        }
    }

    // MARK: Control

    @Test(arguments: [
        ("revenuecat", "{}", "event is missing"), ("revenuecat", #"{"event":[]}"#, "event has the wrong type"),
        ("revenuecat", #"{"event":{},"secrets":"s"}"#, "secrets is no known key"),
        ("app-store", #"{"type":"DID_RENEW"}"#, "transaction is missing; only TEST needs none"),
        ("app-store", #"{"type":"DID_RENEW","transaction":"9"}"#, "which no account has"),
        ("app-store", #"{"type":"DID_RENEW","account":"carol","transaction":"1009"}"#, "account is \"carol\""),
        ("app-store", #"{"type":"DID_RENEW","account":"bob","transaction":"1009"}"#, "which bob does not have"),
        ("app-store", #"{"environment":"Xcode"}"#, "use one of Production, Sandbox"),
        ("google-play", "{}", "give one of subscription, one_time, voided, test and raw"),
        ("google-play", #"{"test":{},"raw":""}"#, "give one of subscription"),
        ("google-play", #"{"test":{"version":"2.0"}}"#, "test has members"),
        ("google-play", #"{"subscription":{"purchaseToken":"t"}}"#, "subscription.notificationType is missing"),
        ("google-play", #"{"one_time":{"notificationType":1,"purchaseToken":"x"}}"#, "one_time.sku is missing"),
        ("google-play", #"{"voided":{"purchaseToken":"x"}}"#, "voided.orderId is missing"),
    ])
    func `a request that cannot be carried out says why`(path: String, body: String, message: String) async throws {
        try await Probe.run(Self.scenario) { probe in
            let answer = try await probe.control(.post, "/webhooks/\(path)", body)
            #expect(answer.status == 400)
            #expect(try answer.json["error"]?.text?.contains(message) == true, "\(answer.text)")
        }
    }

    @Test func `other paths and methods are none`() async throws {
        try await Probe.run { probe in
            let unknown = try await probe.control(.post, "/webhooks/onside", "{}")
            let read = try await probe.control(.get, "/webhooks/app-store")
            #expect(unknown.status == 404 && read.status == 404)
        }
    }

    @Test func `the guide tells every word`() {
        let words =
            RevenueCatWebhookRequest.fields.map(\.name)
            + AppStoreWebhookRequest.fields.map(\.name)
            + GooglePlayWebhookRequest.fields.map(\.name)
            + ["notificationType", "purchaseToken", "subscriptionId", "sku", "orderId", "productType", "refundType"]
        for word in words { #expect(StoreSimulator.webhookGuide.contains(word), "\(word) is missing") }
        #expect(StoreSimulator.guide.contains(StoreSimulator.webhookGuide))
        #expect(StoreSimulator.guide.contains(IdentitySimulation.guide))
        #expect(StoreSimulator.webhookGuide.contains(StoreSimulator.revenueCatWebhookSecret))
        #expect(StoreSimulator.webhookGuide.contains(StoreSimulator.revenueCatWebhookAuthorization))
    }
}
