import Entitlements
import Foundation
@testable import SignedTokens
@testable import StoreEvents
import StoreSimulator
import Testing

/// The App Store's notifications: which are taken, and whom each one makes us look at.
@Suite struct AppStoreNotificationTests: AppStoreNotices {
    // MARK: Types

    static let types: [(String, String?)] = [
        ("SUBSCRIBED", "INITIAL_BUY"), ("SUBSCRIBED", "RESUBSCRIBE"), ("DID_RENEW", nil),
        ("DID_RENEW", "BILLING_RECOVERY"), ("DID_CHANGE_RENEWAL_PREF", "UPGRADE"),
        ("DID_CHANGE_RENEWAL_PREF", "DOWNGRADE"), ("DID_CHANGE_RENEWAL_PREF", nil),
        ("DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_ENABLED"), ("DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_DISABLED"),
        ("DID_FAIL_TO_RENEW", "GRACE_PERIOD"), ("DID_FAIL_TO_RENEW", nil), ("GRACE_PERIOD_EXPIRED", nil),
        ("EXPIRED", "VOLUNTARY"), ("EXPIRED", "BILLING_RETRY"), ("EXPIRED", "PRICE_INCREASE"),
        ("EXPIRED", "PRODUCT_NOT_FOR_SALE"), ("EXPIRED", nil), ("OFFER_REDEEMED", "INITIAL_BUY"),
        ("OFFER_REDEEMED", "RESUBSCRIBE"), ("OFFER_REDEEMED", "UPGRADE"), ("OFFER_REDEEMED", "DOWNGRADE"),
        ("OFFER_REDEEMED", nil), ("PRICE_INCREASE", "PENDING"), ("PRICE_INCREASE", "ACCEPTED"), ("REFUND", nil),
        ("REFUND_DECLINED", nil), ("REFUND_REVERSED", nil), ("REVOKE", nil), ("CONSUMPTION_REQUEST", nil),
        ("RENEWAL_EXTENDED", nil), ("RENEWAL_EXTENSION", "FAILURE"), ("ONE_TIME_CHARGE", nil),
        ("METADATA_UPDATE", nil), ("MIGRATION", nil), ("MIGRATE", nil), ("PRICE_CHANGE", nil),
        ("SOMETHING_NEW", nil), ("EXPIRED", "FOR_A_NEW_REASON"),
    ]

    @Test(arguments: types)
    func `every type with every subtype, known or not, is a reason to look at the transaction`(
        type: String,
        subtype: String?
    ) async throws {
        var request = AppStoreWebhookRequest(type: type, subtype: subtype, transaction: "1009")
        request.uuid = "b0b7ad51-2b4b-4d5a-9d4a-7f5f6d3b5c10"
        let event = try await Self.notifications().event(webhook(request))
        #expect(event.source == .appStore && event.id == "b0b7ad51-2b4b-4d5a-9d4a-7f5f6d3b5c10")
        #expect(event.kind == (subtype.map { "\(type).\($0)" } ?? type))
        #expect(event.purchases == [purchase("1001"), purchase("1009")])
        #expect(event.users == [Self.token, Self.token.uppercased()])
        #expect(!event.announcesAccess && !event.isBlocked)
    }

    @Test func `a notification says when it was signed, and nothing of access`() async throws {
        let body = try carrying(try sign(transaction()), renewalInfo: try sign(renewalInfo()))
        let event = try await Self.notifications().event(body)
        let expected = StoreEvent(
            source: .appStore,
            id: "b0b7ad51-2b4b-4d5a-9d4a-7f5f6d3b5c10",
            kind: "DID_RENEW",
            occurredAt: Instant(microseconds: Self.now * 1000),
            purchases: [purchase("1001"), purchase("1009")]
        )
        #expect(event == expected)
    }

    @Test func `a purchase without renewal, and one of the sandbox, are looked at where they are`() async throws {
        let once = try await Self.notifications().event(
            webhook(AppStoreWebhookRequest(type: "ONE_TIME_CHARGE", transaction: "1002"))
        )
        #expect(Set(once.purchases) == [purchase("1002")] && once.users.isEmpty)
        let sandbox = try await Self.notifications().event(
            webhook(AppStoreWebhookRequest(type: "DID_RENEW", transaction: "2001"))
        )
        #expect(Set(sandbox.purchases) == [purchase("2001", "sandbox")])
    }

    @Test func `a test is taken and about nobody`() async throws {
        let event = try await Self.notifications().event(webhook(AppStoreWebhookRequest()))
        #expect(event.kind == "TEST" && !event.isHint)
    }

    @Test(arguments: ["", String(repeating: "S", count: 101)])
    func `a subtype that says nothing, or too much, is left out`(subtype: String) async throws {
        let signed = try sign(notification(["subtype": subtype]))
        let event = try await Self.notifications().event(Self.body(signed))
        #expect(event.kind == "DID_RENEW")
    }

    // MARK: Other contents

    @Test func `the summary of an extension is taken and about nobody`() async throws {
        let summary: [String: Any] = [
            "environment": "Production", "appAppleId": Int64(1_234_567_890), "bundleId": "com.example.app",
            "productId": "monthly", "requestIdentifier": "r-1", "storefrontCountryCodes": ["DEU", "PRT"],
            "succeededCount": 5, "failedCount": 2,
        ]
        let changes: [String: Any] = [
            "notificationType": "RENEWAL_EXTENSION", "subtype": "SUMMARY", "data": NSNull(), "summary": summary,
        ]
        let signed = try sign(notification(changes))
        let event = try await Self.notifications().event(Self.body(signed))
        #expect(event.kind == "RENEWAL_EXTENSION.SUMMARY" && !event.isHint)
        let foreign = changed(changes, ["summary": changed(summary, ["bundleId": "com.example.other"])])
        let body = Self.body(try sign(notification(foreign)))
        #expect(await Self.refusal(body, try Self.notifications()) == Refusal.untrusted(.wrongBundle))
    }

    @Test func `a consent that was taken back is taken and about nobody`() async throws {
        let appData: [String: Any] = [
            "environment": "Production", "appAppleId": Int64(1_234_567_890), "bundleId": "com.example.app",
            "signedAppTransactionInfo": "a.b.c",
        ]
        let changes: [String: Any] = ["notificationType": "RESCIND_CONSENT", "data": NSNull(), "appData": appData]
        let signed = try sign(notification(changes))
        let event = try await Self.notifications().event(Self.body(signed))
        #expect(event.kind == "RESCIND_CONSENT" && !event.isHint)
    }

    @Test(arguments: ["UNREPORTED", "CREATED", "ACTIVE_TOKEN_REMINDER"])
    func `a token of a purchase outside the store names its environment by its beginning`(
        subtype: String
    ) async throws {
        func body(_ id: String, app: Int64) throws -> [UInt8] {
            let token: [String: Any] = [
                "externalPurchaseId": id, "tokenCreationDate": Self.now, "appAppleId": app,
                "bundleId": "com.example.app",
            ]
            let changes: [String: Any] = [
                "notificationType": "EXTERNAL_PURCHASE_TOKEN", "subtype": subtype, "data": NSNull(),
                "externalPurchaseToken": token,
            ]
            return Self.body(try sign(notification(changes)))
        }
        let both = try Self.notifications()
        let event = try await both.event(body("0b1c", app: 1_234_567_890))
        #expect(event.kind == "EXTERNAL_PURCHASE_TOKEN.\(subtype)" && !event.isHint)
        // Production names the app, the sandbox need not.
        #expect(await Self.refusal(try body("0b1c", app: 1), both) == Refusal.untrusted(.wrongBundle))
        #expect(await Self.refusal(try body("SANDBOX_0b1c", app: 1), both) == nil)
        let production = try Self.notifications(environments: ["Production"])
        #expect(await Self.refusal(try body("0b1c", app: 1_234_567_890), production) == nil)
        #expect(
            await Self.refusal(try body("SANDBOX_0b1c", app: 1_234_567_890), production)
                == Refusal.untrusted(.wrongEnvironment)
        )
    }
}
