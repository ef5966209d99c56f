import Entitlements
import Foundation
@testable import SignedTokens
@testable import StoreClients
@testable import StoreEvents
import StoreSimulator
import TestSupport

/// One moment for all that is signed, so that a test can name it.
private let signedAtMs = Int64(Date().timeIntervalSince1970 * 1000)

/// The App Store's notifications, for the suites that read them: what the store would post, and what it would sign,
/// with any member changed.
protocol AppStoreNotices {}

extension AppStoreNotices {
    typealias Refusal = AppStoreNotifications.Refusal

    static var token: String { "7e3fb204-2b4b-4d5a-9d4a-7f5f6d3b5c10" }
    static var now: Int64 { signedAtMs }

    static var scenario: String {
        """
        app_store:
          customers:
            - id: alice
              transactions:
                - {original: "1001", product: monthly, purchased: -32d}
                - original: "1001"
                  transaction: "1009"
                  product: monthly
                  purchased: -2d
                  account_token: "\(token)"
                - {original: "1002", product: lifetime, type: non_consumable}
                - {original: "1003", product: monthly, group: "21000003", flaw: foreign_bundle}
                - {original: "1004", product: monthly, group: "21000004", flaw: foreign_environment}
                - {original: "1005", product: monthly, group: "21000005", flaw: foreign_root}
                - {original: "1006", product: monthly, group: "21000006", flaw: bad_signature}
            - {id: bob, environment: Sandbox, transactions: [{original: "2001", product: monthly}]}
        """
    }

    static func notifications(
        bundleID: String = "com.example.app",
        appID: Int64? = 1_234_567_890,
        environments: Set<String> = ["Production", "Sandbox"]
    ) throws -> AppStoreNotifications {
        let root = try StoreSimulator.appStoreRoot
        return AppStoreNotifications(
            proofs: AppStoreProofs(roots: [root], expected: .init(bundleID: bundleID, environments: environments)),
            bundleID: bundleID,
            appID: appID
        )
    }

    static func simulator() throws -> StoreSimulator {
        try StoreSimulator(scenario: Scenario(yaml: scenario), logger: .quiet)
    }

    static func refusal(_ body: [UInt8], _ notifications: AppStoreNotifications) async -> Refusal? {
        do throws(Refusal) {
            _ = try await notifications.event(body)
            return nil
        } catch { return error }
    }

    /// A body with a signed text.
    static func body(_ signed: String) -> [UInt8] { Array(#"{"signedPayload":"\#(signed)"}"#.utf8) }

    /// What the store would post.
    func webhook(_ request: AppStoreWebhookRequest) throws -> [UInt8] {
        Array(try Self.simulator().appStoreWebhook(request).body.utf8)
    }

    /// Signs as the store does.
    func sign(_ members: [String: Any]) throws -> String {
        let json = try JSONSerialization.data(withJSONObject: members, options: .sortedKeys)
        return try AppStoreCredentials.authority.get().sign(String(decoding: json, as: UTF8.self))
    }

    /// Members with changes; `NSNull` takes one away.
    func changed(_ members: [String: Any], _ changes: [String: Any]) -> [String: Any] {
        var members = members
        for (name, value) in changes { members[name] = value is NSNull ? nil : value }
        return members
    }

    func notification(_ changes: [String: Any] = [:]) -> [String: Any] {
        changed(
            [
                "notificationType": "DID_RENEW", "notificationUUID": "b0b7ad51-2b4b-4d5a-9d4a-7f5f6d3b5c10",
                "version": "2.0", "signedDate": Self.now, "data": data(),
            ],
            changes
        )
    }

    func data(_ changes: [String: Any] = [:]) -> [String: Any] {
        changed(
            ["environment": "Production", "bundleId": "com.example.app", "appAppleId": Int64(1_234_567_890)],
            changes
        )
    }

    func transaction(_ changes: [String: Any] = [:]) -> [String: Any] {
        changed(
            [
                "transactionId": "1009", "originalTransactionId": "1001", "bundleId": "com.example.app",
                "productId": "monthly", "type": "Auto-Renewable Subscription", "inAppOwnershipType": "PURCHASED",
                "environment": "Production", "purchaseDate": Self.now - 86_400_000, "signedDate": Self.now,
            ],
            changes
        )
    }

    func renewalInfo(_ changes: [String: Any] = [:]) -> [String: Any] {
        changed(
            ["originalTransactionId": "1001", "environment": "Production", "signedDate": Self.now],
            changes
        )
    }

    /// A notification whose data hold a signed transaction, and renewal info where there is any.
    func carrying(_ transaction: String, renewalInfo: String? = nil) throws -> [UInt8] {
        var parts: [String: Any] = ["signedTransactionInfo": transaction]
        if let renewalInfo { parts["signedRenewalInfo"] = renewalInfo }
        return Self.body(try sign(notification(["data": data(parts)])))
    }

    func purchase(_ id: String, _ environment: String = "production") -> StoreEvent.Purchase {
        StoreEvent.Purchase(store: "app_store", environment: environment, value: id)
    }
}
