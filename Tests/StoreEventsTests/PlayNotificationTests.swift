import Entitlements
import Foundation
import Logging
@testable import StoreClients
@testable import StoreEvents
import StoreSimulator
import Testing

/// What Pub/Sub pushes for Google Play: which purchase each notification makes us look at.
@Suite struct PlayNotificationTests {
    static let app = "com.example.play"
    private static let moment = Instant(microseconds: 1_791_356_830_123_000)
    private static let token = StoreEvent.Purchase(store: "google_play", value: "tok-a")

    /// A push's body; `data` is base64, left out where it is `nil`.
    static func push(_ data: String?, id: String = "m-1") -> [UInt8] {
        let member = data.map { #""data":"\#($0)","# } ?? ""
        let message = #"{"attributes":{},\#(member)"messageId":"\#(id)","publishTime":"2026-10-06T09:40:30.123Z"}"#
        return Array(#"{"message":\#(message),"subscription":"projects/p/subscriptions/s"}"#.utf8)
    }

    /// Reads a notification, given as the JSON that it is.
    private func read(_ notification: String) throws(MalformedEvent) -> StoreEvent {
        try PlayNotification.read(Self.push(Data(notification.utf8).base64EncodedString()), package: Self.app)
    }

    /// A notification of our app with something that happened.
    private func ours(_ part: String, at time: String = #""1791356830123""#) -> String {
        #"{"version":"1.0","packageName":"com.example.play","eventTimeMillis":\#(time),\#(part)}"#
    }

    private func event(_ kind: String, of purchases: [StoreEvent.Purchase] = []) -> StoreEvent {
        StoreEvent(source: .googlePlay, id: "m-1", kind: kind, occurredAt: Self.moment, purchases: purchases)
    }

    // MARK: What happened

    @Test(arguments: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 18, 19, 20, 22, 14, 15, 16, 21, 0, 99, -1])
    func `every number of a subscription's notification, known or not, is a reason to look at the purchase`(
        number: Int
    ) throws {
        let bare = #""version":"1.0","notificationType":\#(number),"purchaseToken":"tok-a""#
        // The product is said no more, or still.
        for notice in [bare, bare + #","subscriptionId":"monthly""#] {
            let said = try read(ours(#""subscriptionNotification":{\#(notice)}"#))
            #expect(said == event("subscription.\(number)", of: [Self.token]))
        }
    }

    @Test(
        arguments: [
            (#""oneTimeProductNotification":{"version":"1.0","notificationType":1,"sku":"gems","#, "oneTimeProduct.1"),
            (#""oneTimeProductNotification":{"version":"1.0","notificationType":2,"sku":"gems","#, "oneTimeProduct.2"),
            (#""voidedPurchaseNotification":{"orderId":"GPA.1","productType":1,"refundType":1,"#, "voidedPurchase"),
            (#""voidedPurchaseNotification":{"orderId":"GPA.1","productType":2,"refundType":2,"#, "voidedPurchase"),
        ] as [(String, String)]
    )
    func `a one-time product and a voided purchase are a reason to look as well`(part: String, kind: String) throws {
        let said = try read(ours(part + #""purchaseToken":"tok-a"}"#))
        let order = StoreEvent.Purchase(store: "google_play", value: "GPA.1")
        #expect(said == event(kind, of: kind == "voidedPurchase" ? [Self.token, order] : [Self.token]))
    }

    @Test(arguments: [#""GPA.7..3""#, #""GPA.7""#, "null", "7", "\"\""])
    func `an order is followed by its number and by the first order's, with a token and without`(order: String) throws {
        let orders = order.contains("..") ? ["GPA.7..3", "GPA.7"] : order.contains("GPA") ? ["GPA.7"] : []
        for token in ["", #""purchaseToken":"tok-a","#] {
            let said = try read(ours(#""voidedPurchaseNotification":{\#(token)"orderId":\#(order),"refundType":1}"#))
            #expect(said.purchases.map(\.value) == (token.isEmpty ? [] : ["tok-a"]) + orders)
            #expect(said.kind == "voidedPurchase")
        }
    }

    @Test func `a test and what is not known yet are about nobody`() throws {
        let test = try read(ours(#""testNotification":{"version":"1.0"}"#))
        #expect(test == event("test") && !test.isHint)
        let future = try read(ours(#""somethingNewNotification":{"purchaseToken":"tok-a"}"#))
        #expect(future == event("unknown") && !future.isHint)
        let empty = try read(ours(#""subscriptionNotification":null"#))
        #expect(empty == event("unknown"))
    }

    @Test(
        arguments: [
            (#""user-1""#, ["user-1"]), ("\"\"", []), ("null", []), ("7", []), (#"{"id":"user-1"}"#, []),
            (#""\#(String(repeating: "u", count: 255))""#, [String(repeating: "u", count: 255)]),
            (#""\#(String(repeating: "u", count: 256))""#, []),
        ] as [(String, [String])]
    )
    func `a refund under review may name the user, and names the purchase by its order alone`(
        account: String,
        users: [String]
    ) throws {
        let said = try read(
            ours(
                #"""
                "pendingRefundReviewNotification":{"version":"1.0","pendingRefundToken":"refund-1","orderId":"GPA.1",
                "refundReason":7,"obfuscatedAccountId":\#(account),"obfuscatedProfileId":"p"}
                """#
            )
        )
        var expected = event("pendingRefundReview")
        expected.users = users
        expected.purchases = [StoreEvent.Purchase(store: "google_play", value: "GPA.1")]
        #expect(said == expected)
    }

    @Test func `a notification without its number or its token says what it says`() throws {
        let unnumbered = try read(ours(#""subscriptionNotification":{"purchaseToken":"tok-a"}"#))
        #expect(unnumbered == event("subscription", of: [Self.token]))
        let odd = try read(ours(#""subscriptionNotification":{"notificationType":"4","purchaseToken":"tok-a"}"#))
        #expect(odd == event("subscription", of: [Self.token]))
        for token in ["null", "\"\""] {
            let nameless = try read(
                ours(#""subscriptionNotification":{"notificationType":4,"purchaseToken":\#(token)}"#)
            )
            #expect(nameless == event("subscription.4"))
        }
    }

    @Test func `what Google Play sends through Pub/Sub is read`() throws {
        let simulator = try StoreSimulator(
            scenario: Scenario(
                yaml: """
                    google_play:
                      package: com.example.play
                      purchases:
                        - {token: tok-a, order_id: GPA.1-2-3-4}
                        - {token: tok-c, kind: one_time, product: lifetime, order_id: GPA.5-6-7-8}
                    """
            ),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        )
        let expected: [(GooglePlayNotification, String, [String])] = [
            (.subscription(kind: 2, token: "tok-a"), "subscription.2", ["tok-a"]),
            (.oneTime(kind: 1, token: "tok-c"), "oneTimeProduct.1", ["tok-c"]),
            (
                .voided(token: "tok-a", order: "GPA.1-2-3-4..0"), "voidedPurchase",
                ["tok-a", "GPA.1-2-3-4..0", "GPA.1-2-3-4"]
            ),
            (.test, "test", []),
        ]
        for (notification, kind, tokens) in expected {
            let push = try simulator.googlePlayWebhook(notification, messageID: "m-7")
            let said = try PlayNotification.read(Array(push.body.utf8), package: Self.app)
            #expect(said.id == "m-7" && said.kind == kind && said.occurredAt != nil)
            #expect(said.purchases.map(\.value) == tokens)
            let foreign = try PlayNotification.read(Array(push.body.utf8), package: "com.example.other")
            #expect(foreign.kind == "foreign_package" && !foreign.isHint)
        }
        let raw = try simulator.googlePlayWebhook(.raw("no JSON"), messageID: "m-8")
        let said = try PlayNotification.read(Array(raw.body.utf8), package: Self.app)
        #expect(said == StoreEvent(source: .googlePlay, id: "m-8", kind: "undecodable"))
    }

    // MARK: Times

    @Test(
        arguments: [
            ("1791356830123", 1_791_356_830_123), (#""1791356830123""#, 1_791_356_830_123), (#""0""#, 0), ("0", 0),
            ("null", nil), ("\"\"", nil), (#""soon""#, nil), (#"" 1""#, nil), (#""1.5""#, nil), ("1.5", nil),
            ("-1", nil), (#""-1""#, nil), (#""7258118400001""#, nil), ("9223372036854775808", nil),
            (#""9223372036854775808""#, nil), ("true", nil), ("{}", nil), ("[1]", nil),
        ] as [(String, Int64?)]
    )
    func `the time is a number or a text, and what is neither is left out`(time: String, milliseconds: Int64?) throws {
        let said = try read(ours(#""testNotification":{}"#, at: time))
        #expect(said.occurredAt?.microseconds == milliseconds.map { $0 * 1000 })
        #expect(said.kind == "test")
    }

    // MARK: What nobody can use

    @Test(arguments: [
        #""packageName":"com.example.other","#, #""packageName":"com.example.Play","#, #""packageName":null,"#, "",
    ])
    func `what is about another app, or about none, is kept and names nobody`(package: String) throws {
        let said = try read(
            """
            {\(package)"eventTimeMillis":"1791356830123",\
            "subscriptionNotification":{"notificationType":4,"purchaseToken":"tok-a","obfuscatedAccountId":"user-1"}}
            """
        )
        #expect(said == StoreEvent(source: .googlePlay, id: "m-1", kind: "foreign_package"))
    }

    @Test(arguments: [
        "no JSON", "", "[]", "null", "7", #"{"packageName":"com.example.play""#, #"{"packageName":7}"#,
        #"{"packageName":"com.example.play"} x"#,
        #"{"packageName":"com.example.play","packageName":"com.example.play"}"#,
        #"{"packageName":"com.example.play","subscriptionNotification":[]}"#,
        #"{"packageName":"com.example.play","subscriptionNotification":{"purchaseToken":7}}"#,
        #"{"packageName":"com.example.play","subscriptionNotification":{"purchaseToken":"a\u0000b"}}"#,
        #"{"packageName":"com.example.play","testNotification":{"x":\#(String(repeating: "[", count: 40))}}"#,
    ])
    func `a notification that does not read is kept and names nobody`(notification: String) throws {
        let said = try read(notification)
        #expect(said == StoreEvent(source: .googlePlay, id: "m-1", kind: "undecodable"))
    }

    @Test(arguments: ["%%%", "e30", "e30=e30=", "eyJ4Ijoi_-8ifQ==", "e31=", "e30 ", "=", nil] as [String?])
    func `data that is no base64 of Google's is kept and names nobody`(data: String?) throws {
        let said = try PlayNotification.read(Self.push(data), package: Self.app)
        #expect(said == StoreEvent(source: .googlePlay, id: "m-1", kind: "undecodable"))
    }

    @Test func `a message without data is kept and names nobody`() throws {
        let body = #"{"message":{"data":null,"messageId":"m-1"}}"#
        let said = try PlayNotification.read(Array(body.utf8), package: Self.app)
        #expect(said == StoreEvent(source: .googlePlay, id: "m-1", kind: "undecodable"))
    }

    // MARK: Refusals

    @Test(arguments: [
        "", "null", "[]", "{}", "<html></html>", #"{"message":null}"#, #"{"message":[]}"#, #"{"message":{}}"#,
        #"{"message":{"data":"e30="}}"#, #"{"message":{"messageId":""}}"#, #"{"message":{"messageId":7}}"#,
        #"{"message":{"messageId":null}}"#, #"{"message":{"message_id":"m-1"}}"#,
        #"{"message":{"messageId":"m-1","data":7}}"#, #"{"message":{"messageId":"m-1","data":{}}}"#,
        #"{"message":{"messageId":"m-1","messageId":"m-2"}}"#, #"{"message":{"messageId":"m-1","data":"","data":""}}"#,
        #"{"message":{"messageId":"m-1"},"message":{"messageId":"m-1"}}"#, #"{"message":{"messageId":"m-1"}} x"#,
        #"{"message":{"messageId":"m-1"}}{}"#, #"{"message":{"messageId":"a\u0000b"}}"#,
        #"{"message":{"messageId":"m-1","attributes":\#(String(repeating: "[", count: 40))}}"#,
    ])
    func `what is no push of Pub/Sub's is refused`(body: String) {
        #expect(throws: MalformedEvent.self) {
            try PlayNotification.read(Array(body.utf8), package: Self.app)
        }
    }

    @Test func `a message's id has 255 bytes at most`() throws {
        for longest in [String(repeating: "1", count: 255), String(repeating: "é", count: 127)] {
            let said = try PlayNotification.read(Self.push("e30=", id: longest), package: Self.app)
            #expect(said.id == longest)
            for longer in [longest + "11", String(repeating: "1", count: 256)] {
                #expect(throws: MalformedEvent.self) {
                    try PlayNotification.read(Self.push("e30=", id: longer), package: Self.app)
                }
            }
        }
    }

    @Test func `103: data beyond any size that Google sends is refused`() throws {
        let longest = String(repeating: "A", count: 256 << 10)
        #expect(try PlayNotification.read(Self.push(longest), package: Self.app).kind == "undecodable")
        #expect(throws: MalformedEvent.self) {
            try PlayNotification.read(Self.push(longest + "AAAA"), package: Self.app)
        }
    }

    @Test func `a push cut off anywhere is refused, and a notification cut off anywhere names nobody`() throws {
        let notification = Array(
            ours(#""subscriptionNotification":{"notificationType":4,"purchaseToken":"tok-a"}"#).utf8
        )
        for count in notification.indices {
            let data = Data(notification[..<count]).base64EncodedString()
            let said = try PlayNotification.read(Self.push(data), package: Self.app)
            #expect(said.kind == "undecodable" && !said.isHint, "\(count) bytes")
        }
        let whole = Self.push(Data(notification).base64EncodedString())
        #expect(try PlayNotification.read(whole, package: Self.app).isHint)
        for count in whole.indices {
            #expect(throws: MalformedEvent.self, "\(count) bytes") {
                try PlayNotification.read(Array(whole[..<count]), package: Self.app)
            }
        }
    }
}
