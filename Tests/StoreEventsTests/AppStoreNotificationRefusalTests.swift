import Foundation
@testable import SignedTokens
@testable import StoreEvents
import StoreSimulator
import Testing

/// The App Store's notifications that are refused: what is not for us, not signed by the store, or no notification.
@Suite struct AppStoreNotificationRefusalTests: AppStoreNotices {
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
        let simulator = try Self.simulator()
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
