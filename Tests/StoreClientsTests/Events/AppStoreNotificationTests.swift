import Entitlements
import Foundation
@testable import SignedTokens
@testable import StoreClients
@testable import StoreEvents
import StoreSimulator
import Testing

/// The App Store's notifications: which are taken, and whom each one makes us look at.
@Suite struct AppStoreNotificationTests {
    typealias Refusal = AppStoreNotifications.Refusal

    private static let token = "7e3fb204-2b4b-4d5a-9d4a-7f5f6d3b5c10"
    private static let now = Int64(Date().timeIntervalSince1970 * 1000)

    static let scenario = """
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

    // MARK: Notifications

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

    static func refusal(_ body: [UInt8], _ notifications: AppStoreNotifications) async -> Refusal? {
        do throws(Refusal) {
            _ = try await notifications.event(body)
            return nil
        } catch { return error }
    }

    /// A body with a signed text.
    static func body(_ signed: String) -> [UInt8] { Array(#"{"signedPayload":"\#(signed)"}"#.utf8) }

    /// What the store would post.
    private func webhook(_ request: AppStoreWebhookRequest) throws -> [UInt8] {
        Array(try SimulatedAppStore(Self.scenario).simulator.appStoreWebhook(request).body.utf8)
    }

    /// Signs as the store does.
    private func sign(_ members: [String: Any]) throws -> String {
        let json = try JSONSerialization.data(withJSONObject: members, options: .sortedKeys)
        return try AppStoreCredentials.authority.get().sign(String(decoding: json, as: UTF8.self))
    }

    /// Members with changes; `NSNull` takes one away.
    private func changed(_ members: [String: Any], _ changes: [String: Any]) -> [String: Any] {
        var members = members
        for (name, value) in changes { members[name] = value is NSNull ? nil : value }
        return members
    }

    private func notification(_ changes: [String: Any] = [:]) -> [String: Any] {
        changed(
            [
                "notificationType": "DID_RENEW", "notificationUUID": "b0b7ad51-2b4b-4d5a-9d4a-7f5f6d3b5c10",
                "version": "2.0", "signedDate": Self.now, "data": data(),
            ],
            changes
        )
    }

    private func data(_ changes: [String: Any] = [:]) -> [String: Any] {
        changed(
            ["environment": "Production", "bundleId": "com.example.app", "appAppleId": Int64(1_234_567_890)],
            changes
        )
    }

    private func transaction(_ changes: [String: Any] = [:]) -> [String: Any] {
        changed(
            [
                "transactionId": "1009", "originalTransactionId": "1001", "bundleId": "com.example.app",
                "productId": "monthly", "type": "Auto-Renewable Subscription", "inAppOwnershipType": "PURCHASED",
                "environment": "Production", "purchaseDate": Self.now - 86_400_000, "signedDate": Self.now,
            ],
            changes
        )
    }

    private func renewalInfo(_ changes: [String: Any] = [:]) -> [String: Any] {
        changed(
            ["originalTransactionId": "1001", "environment": "Production", "signedDate": Self.now],
            changes
        )
    }

    /// A notification whose data hold a signed transaction, and renewal info where there is any.
    private func carrying(_ transaction: String, renewalInfo: String? = nil) throws -> [UInt8] {
        var parts: [String: Any] = ["signedTransactionInfo": transaction]
        if let renewalInfo { parts["signedRenewalInfo"] = renewalInfo }
        return Self.body(try sign(notification(["data": data(parts)])))
    }

    private func purchase(_ id: String, _ environment: String = "production") -> StoreEvent.Purchase {
        StoreEvent.Purchase(store: "app_store", environment: environment, value: id)
    }

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

    // MARK: Whose it is

    @Test func `104: a notification for another app is refused`() async throws {
        let genuine = try webhook(AppStoreWebhookRequest(type: "DID_RENEW", transaction: "1009"))
        #expect(await Self.refusal(genuine, try Self.notifications()) == nil)
        let other = try Self.notifications(bundleID: "com.example.other")
        #expect(await Self.refusal(genuine, other) == Refusal.untrusted(.wrongBundle))
        let named = Self.body(try sign(notification(["data": data(["bundleId": "com.example.App"])])))
        #expect(await Self.refusal(named, try Self.notifications()) == Refusal.untrusted(.wrongBundle))
    }

    @Test(
        arguments: [
            ("Production", 1_234_567_890, 1_234_567_890, nil), ("Production", 1, 1_234_567_890, .wrongBundle),
            ("Production", 1, nil, nil), ("Sandbox", 1, 1_234_567_890, nil), ("Sandbox", nil, 1_234_567_890, nil),
        ] as [(String, Int64?, Int64?, ProofRefusal.Code?)]
    )
    func `104: production names the app's number, and it has to be ours; the sandbox's means nothing`(
        environment: String,
        named: Int64?,
        ours: Int64?,
        code: ProofRefusal.Code?
    ) async throws {
        var changes: [String: Any] = ["environment": environment, "appAppleId": NSNull()]
        if let named { changes["appAppleId"] = named }
        let body = Self.body(try sign(notification(["data": data(changes)])))
        let refusal = await Self.refusal(body, try Self.notifications(appID: ours))
        let expected = code.map { Refusal.untrusted($0) }
        #expect(refusal == expected)
    }

    @Test func `104: an environment that does not count is refused`() async throws {
        let sandbox = try webhook(AppStoreWebhookRequest(type: "DID_RENEW", transaction: "2001"))
        #expect(await Self.refusal(sandbox, try Self.notifications()) == nil)
        let production = try Self.notifications(environments: ["Production"])
        #expect(await Self.refusal(sandbox, production) == Refusal.untrusted(.wrongEnvironment))
        for name in ["Xcode", "LocalTesting", "production", ""] {
            let body = Self.body(try sign(notification(["data": data(["environment": name])])))
            let refusal = await Self.refusal(body, try Self.notifications())
            #expect(refusal == Refusal.untrusted(.wrongEnvironment), "\(name)")
        }
    }

    // MARK: Signatures

    @Test(
        arguments: [
            ("1003", .wrongBundle), ("1004", .wrongEnvironment), ("1005", .untrustedChain), ("1006", .badSignature),
        ] as [(String, ProofRefusal.Code)]
    )
    func `104: a flaw of what is signed is named`(transaction: String, code: ProofRefusal.Code) async throws {
        let body = try webhook(AppStoreWebhookRequest(type: "DID_RENEW", transaction: transaction))
        #expect(await Self.refusal(body, try Self.notifications()) == Refusal.untrusted(code))
    }

    @Test func `104: every part has to be signed by the store, for this app and environment`() async throws {
        let notifications = try Self.notifications()
        let (genuine, renewal) = (try sign(transaction()), try sign(renewalInfo()))
        #expect(await Self.refusal(try carrying(genuine, renewalInfo: renewal), notifications) == nil)
        let stranger = try AppStoreAuthority()
        let written = try JSONSerialization.data(withJSONObject: transaction(), options: .sortedKeys)
        let forged = try stranger.sign(String(decoding: written, as: UTF8.self))
        let cases: [(String, String?, ProofRefusal.Code)] = [
            (forged, renewal, .untrustedChain),
            (try sign(transaction(["bundleId": "com.example.other"])), renewal, .wrongBundle),
            (try sign(transaction(["environment": "Sandbox"])), nil, .wrongEnvironment),
            (try sign(transaction(["environment": "Xcode"])), nil, .wrongEnvironment),
            (genuine, try sign(renewalInfo(["environment": "Sandbox"])), .wrongEnvironment),
            (genuine, forged, .untrustedChain), ("", nil, .malformed), (genuine, "a.b", .malformed),
            (try sign(transaction(["transactionId": NSNull()])), nil, .malformed),
        ]
        for (index, (first, second, code)) in cases.enumerated() {
            let refusal = await Self.refusal(try carrying(first, renewalInfo: second), notifications)
            #expect(refusal == Refusal.untrusted(code), "case \(index)")
        }
    }

    @Test func `104: a part that was altered spoils the whole`() async throws {
        let notifications = try Self.notifications()
        let (signed, renewal) = (try sign(transaction()), try sign(renewalInfo()))
        for index in stride(from: 0, to: min(signed.utf8.count, renewal.utf8.count), by: 23) {
            let first = try carrying(altered(signed, at: index), renewalInfo: renewal)
            #expect(await Self.refusal(first, notifications) != nil, "transaction, byte \(index)")
            let second = try carrying(signed, renewalInfo: altered(renewal, at: index))
            #expect(await Self.refusal(second, notifications) != nil, "renewal info, byte \(index)")
        }
    }

    @Test(arguments: [(nil, 5), ("1009", 41)] as [(String?, Int)])
    func `104: a body that was altered in a byte is not taken`(transaction: String?, step: Int) async throws {
        let notifications = try Self.notifications()
        let genuine = try webhook(
            AppStoreWebhookRequest(type: transaction == nil ? "TEST" : "DID_RENEW", transaction: transaction)
        )
        #expect(await Self.refusal(genuine, notifications) == nil)
        let last = genuine.count - 1
        for index in Array(stride(from: 0, to: last, by: step)) + [last - 2, last - 1, last] {
            var body = genuine
            body[index] = body[index] == UInt8(ascii: "A") ? UInt8(ascii: "B") : UInt8(ascii: "A")
            #expect(await Self.refusal(body, notifications) != nil, "byte \(index)")
        }
    }

    private func altered(_ text: String, at index: Int) -> String {
        var bytes = Array(text.utf8)
        bytes[index] = bytes[index] == UInt8(ascii: "A") ? UInt8(ascii: "B") : UInt8(ascii: "A")
        return String(decoding: bytes, as: UTF8.self)
    }

    @Test func `104: what the store signs for a device is no notification`() async throws {
        let simulator = try SimulatedAppStore(Self.scenario).simulator
        let proof = try #require(try simulator.appStoreProof(ofTransaction: "1009"))
        let refusal = await Self.refusal(Self.body(proof), try Self.notifications())
        #expect(refusal == Refusal.untrusted(.malformed))
    }

    // MARK: Malformed

    @Test(arguments: ["notificationType", "notificationUUID", "signedDate"])
    func `a member that has to be there is missed`(name: String) async throws {
        let body = Self.body(try sign(notification([name: NSNull()])))
        #expect(await Self.refusal(body, try Self.notifications()) == Refusal.untrusted(.malformed))
    }

    @Test(arguments: [
        #"{"notificationType":"","notificationUUID":"u-1","signedDate":1790000000000}"#,
        #"{"notificationType":"\#(String(repeating: "T", count: 101))","notificationUUID":"u-1","signedDate":1}"#,
        #"{"notificationType":"TEST","notificationUUID":"","signedDate":1790000000000}"#,
        #"{"notificationType":"TEST","notificationUUID":"\#(String(repeating: "u", count: 256))","signedDate":1}"#,
        #"{"notificationType":"TEST","notificationUUID":7,"signedDate":1790000000000}"#,
        #"{"notificationType":"TEST","notificationUUID":"u-1","signedDate":-1}"#,
        #"{"notificationType":"TEST","notificationUUID":"u-1","signedDate":7258118400001}"#,
        #"{"notificationType":"TEST","notificationUUID":"u-1","signedDate":1790000000000.5}"#,
        #"{"notificationType":"TEST","notificationUUID":"u-1","signedDate":"1790000000000"}"#,
        #"{"notificationType":"TEST","notificationUUID":"u-1","notificationUUID":"u-2","signedDate":1790000000000}"#,
        #"{"notificationType":"TEST","notificationUUID":"u-1","signedDate":1790000000000,"data":[]}"#,
        #"{"notificationType":"TEST","notificationUUID":"u-1","signedDate":1790000000000,"data":{"bundleId":7}}"#,
        #"{"notificationType":"TEST","notificationUUID":"u-1","signedDate":1790000000000,"data":{"appAppleId":"1"}}"#,
        #"{"notificationType":"TEST","notificationUUID":"u-1","signedDate":1790000000000} x"#, "[]", "null", "",
    ])
    func `a signed text that is no notification is refused`(payload: String) async throws {
        let signed = try AppStoreCredentials.authority.get().sign(payload)
        #expect(await Self.refusal(Self.body(signed), try Self.notifications()) == Refusal.untrusted(.malformed))
    }

    @Test(arguments: [
        "", " ", "no JSON", "null", "7", "[]", "{}", #""signedPayload""#, #"{"signedpayload":"a.b.c"}"#,
        #"{"signedPayload":null}"#, #"{"signedPayload":7}"#, #"{"signedPayload":["a.b.c"]}"#,
        #"{"signedPayload":"a.b.c"} x"#, #"{"signedPayload":"a.b.c"}{}"#, #"{"signedPayload":"a.b.c""#,
        #"{"signedPayload":"a.b.c","signedPayload":"a.b.c"}"#, #"{"signedPayload":"\u0000"}"#,
    ])
    func `a body without a signed text is malformed, and no forgery`(body: String) async throws {
        let refusal = await Self.refusal(Array(body.utf8), try Self.notifications())
        guard case .malformed? = refusal else {
            Issue.record("\(body): \(String(describing: refusal))")
            return
        }
    }

    @Test(
        arguments: [
            ("", .malformed), ("x", .malformed), ("..", .malformed), ("a.b.c", .malformed), ("a.b.c.d", .malformed),
            ("eyJhbGciOiJub25lIn0.e30.", .wrongAlgorithm),
        ] as [(String, ProofRefusal.Code)]
    )
    func `a text that nobody signed is no notification of the store's`(
        text: String,
        code: ProofRefusal.Code
    ) async throws {
        #expect(await Self.refusal(Self.body(text), try Self.notifications()) == Refusal.untrusted(code))
    }

    @Test func `103: a text of any length is refused without being verified`() async throws {
        let longest = String(repeating: "A", count: 600 << 10)
        guard case .malformed? = await Self.refusal(Self.body(longest), try Self.notifications()) else {
            Issue.record("a text of 600 KiB was looked at")
            return
        }
    }

    @Test func `members beside the signed text mean nothing`() async throws {
        let signed = try sign(notification())
        let body = #"{"notificationType":"REFUND","signedPayload":"\#(signed)","bundleId":"com.example.other"}"#
        let event = try await Self.notifications().event(Array(body.utf8))
        #expect(event.kind == "DID_RENEW")
    }
}
