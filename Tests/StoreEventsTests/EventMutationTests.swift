import Entitlements
import Foundation
@testable import StoreClients
@testable import StoreEvents
import StoreSimulator
import TestSupport
import Testing

/// Altered events: nothing crashes or hangs, and what the App Store did not sign is never taken for its own.
@Suite struct EventMutationTests {
    private static let revenueCat: [[UInt8]] = [
        RevenueCatEventTests.example,
        #"""
        {"event":{"type":"TRANSFER","id":"c2b1","event_timestamp_ms":1791400000000,"environment":"PRODUCTION",
        "transferred_from":["$RCAnonymousID:aa11bb22","mV8wPq2nRt5y"],"transferred_to":["kQ3vZr8mT2fX","null"]}}
        """#,
        #"{"event":{"id":"g-1","type":"REFUND_REVERSED","app_user_id":"\u00e9\ud83d\ude00","aliases":[1,""]}}"#,
    ].map { Array($0.utf8) }

    private static let notifications: [[UInt8]] = [
        #"""
        {"version":"1.0","packageName":"com.example.play","eventTimeMillis":"1791356830123","subscriptionNotification":
        {"version":"1.0","notificationType":4,"purchaseToken":"tok-a","subscriptionId":"monthly"}}
        """#,
        #"""
        {"version":"1.0","packageName":"com.example.play","eventTimeMillis":1791356830123,
        "pendingRefundReviewNotification":{"version":"1.0","pendingRefundToken":"r-1","obfuscatedAccountId":"user-1"}}
        """#,
        #"{"packageName":"com.example.play","voidedPurchaseNotification":{"purchaseToken":"tok-a","refundType":1}}"#,
    ].map { Array($0.utf8) }

    private static let payloads: [[UInt8]] = [
        #"""
        {"notificationType":"DID_RENEW","subtype":"BILLING_RECOVERY","notificationUUID":"u-1","version":"2.0",
        "signedDate":1791356830123,"data":{"appAppleId":1234567890,"bundleId":"com.example.app","environment":"Sandbox",
        "status":1,"signedTransactionInfo":"a.b.c","signedRenewalInfo":"d.e.f"}}
        """#,
        #"""
        {"notificationType":"EXTERNAL_PURCHASE_TOKEN","notificationUUID":"u-2","signedDate":1791356830123,
        "externalPurchaseToken":{"externalPurchaseId":"SANDBOX_1","tokenCreationDate":1,"appAppleId":null}}
        """#,
    ].map { Array($0.utf8) }

    /// Whether an event can be kept as it is.
    private func isSound(_ event: StoreEvent) -> Bool {
        let ids = [event.id] + event.users
        return ids.allSatisfy { (1...255).contains($0.utf8.count) && !$0.utf8.contains(0) }
            && (1...100).contains(event.kind.utf8.count) && Set(event.users).count == event.users.count
            && event.purchases.allSatisfy { (1...2_000).contains($0.value.utf8.count) && !$0.value.utf8.contains(0) }
    }

    private func isJSON(_ body: [UInt8]) -> Bool { Mutations.isJSON(body) }

    /// Alters texts: whether each is refused, or read as an event that can be kept.
    private func check(
        _ texts: [[UInt8]],
        seed: UInt64,
        _ read: ([UInt8]) throws(MalformedEvent) -> StoreEvent
    ) {
        var random = SeededGenerator(seed: seed)
        var accepted = 0
        var refused = 0
        for round in 0..<Mutations.count / 4 {
            let body = Mutations.alter(texts[round % texts.count], Mutations.json, &random)
            do throws(MalformedEvent) {
                let isKept = isSound(try read(body)) && isJSON(body)
                #expect(isKept, "accepted \(body)")
                accepted += 1
            } catch { refused += 1 }
        }
        // Otherwise the test would prove nothing.
        #expect(accepted > Mutations.count / 80)
        #expect(refused > Mutations.count / 8)
    }

    @Test(arguments: 0..<4 as Range<UInt64>)
    func `100: an altered event of RevenueCat's is read or refused`(seed: UInt64) {
        check(Self.revenueCat, seed: seed) { body throws(MalformedEvent) in try RevenueCatEvent.read(body) }
    }

    @Test(arguments: 0..<2 as Range<UInt64>)
    func `100: an altered push is read or refused`(seed: UInt64) {
        let pushes = Self.notifications.map { PlayNotificationTests.push(Data($0).base64EncodedString()) }
        check(pushes, seed: seed) { body throws(MalformedEvent) in
            try PlayNotification.read(body, package: PlayNotificationTests.app)
        }
    }

    @Test(arguments: 2..<4 as Range<UInt64>)
    func `100: an altered notification of Google Play's never has to be sent again`(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var used = 0
        var unused = 0
        for round in 0..<Mutations.count / 4 {
            let seeds = Self.notifications
            let content = Mutations.alter(seeds[round % seeds.count], Mutations.json, &random)
            let push = PlayNotificationTests.push(Data(content).base64EncodedString())
            let event = try PlayNotification.read(push, package: PlayNotificationTests.app)
            #expect(event.id == "m-1" && isSound(event), "\(content)")
            if event.isHint {
                used += 1
                let isRead = isJSON(content)
                #expect(isRead, "accepted \(content)")
            } else {
                unused += 1
            }
        }
        #expect(used > Mutations.count / 80)
        #expect(unused > Mutations.count / 8)
    }

    @Test(arguments: [UInt64(1), 2])
    func `whatever a signed payload says, it is read or refused`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var readable = 0
        for round in 0..<Mutations.count / 4 {
            let payload = Mutations.alter(Self.payloads[round % Self.payloads.count], Mutations.json, &random)
            guard let notification = try? SignedNotification(payload: payload) else { continue }
            readable += 1
            let isKept =
                (1...255).contains(notification.id.utf8.count) && (1...100).contains(notification.type.utf8.count)
                && (notification.subtype.map { (1...100).contains($0.utf8.count) } ?? true) && isJSON(payload)
            #expect(isKept, "accepted \(payload)")
        }
        #expect(readable > Mutations.count / 80)
    }

    /// The text of a body that is signed.
    private func signedText(_ body: [UInt8]) -> String? {
        let object = try? JSONSerialization.jsonObject(with: Data(body))
        return (object as? [String: Any])?["signedPayload"] as? String
    }

    /// A test is short, so that more of it is altered; a renewal holds signed parts in a signed whole.
    @Test(arguments: [(1, "TEST", 1), (2, "TEST", 1), (3, "DID_RENEW", 5)] as [(UInt64, String, Int)])
    func `104: whatever is done to a notification of the App Store's, only the genuine one is taken`(
        seed: UInt64,
        type: String,
        share: Int
    ) async throws {
        let simulator = try AppStoreNotificationTests.simulator()
        let request = AppStoreWebhookRequest(type: type, transaction: type == "TEST" ? nil : "1009")
        let genuine = Array(try simulator.appStoreWebhook(request).body.utf8)
        let signed = try #require(signedText(genuine))
        let notifications = try AppStoreNotificationTests.notifications()
        #expect(await AppStoreNotificationTests.refusal(genuine, notifications) == nil)
        let interesting = Mutations.jws + Mutations.json
        var random = SeededGenerator(seed: seed)
        for number in 0..<Mutations.signed / share {
            let body = Mutations.alter(genuine, interesting, &random)
            guard await AppStoreNotificationTests.refusal(body, notifications) == nil else { continue }
            // What stands around the signed text may be written in another way.
            let isGenuine = signedText(body) == signed
            #expect(isGenuine, "mutation \(number)")
            if !isGenuine { return }
        }
    }
}
