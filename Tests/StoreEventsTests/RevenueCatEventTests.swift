import Entitlements
@testable import StoreClients
@testable import StoreEvents
import Testing

/// RevenueCat's webhooks: which users each one has checked, and which of them announce access.
@Suite struct RevenueCatEventTests {
    /// What a type comes to.
    enum Effect: Sendable { case announcesAccess, check, nothing }

    private static let user = "kQ3vZr8mT2fXw1LdYp6sNb4HcJe7"
    private static let anonymous = "$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0"
    private static let formerOwner = "mV8wPq2nRt5yUo1iAs4dFg7hJk3Z"

    static let example = #"""
        {"api_version":"1.0","event":{"type":"RENEWAL","id":"7a0d3c55-6a4f-4c0e-8a10-9a2c7f3b1e20",
         "app_id":"appa1b2c3d4e5","event_timestamp_ms":1791356830123,"app_user_id":"kQ3vZr8mT2fXw1LdYp6sNb4HcJe7",
         "original_app_user_id":"$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0",
         "aliases":["$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0","kQ3vZr8mT2fXw1LdYp6sNb4HcJe7"],
         "product_id":"com.example.app.premium.monthly","entitlement_id":null,"entitlement_ids":["premium"],
         "period_type":"NORMAL","purchased_at_ms":1791356800000,"expiration_at_ms":1794035200000,"store":"APP_STORE",
         "environment":"PRODUCTION","is_trial_conversion":false,"presented_offering_id":null,"offer_code":null,
         "price":10.87,"currency":"EUR","price_in_purchased_currency":9.99,"tax_percentage":0.18,
         "commission_percentage":0.15,"takehome_percentage":0.85,"transaction_id":"480001234599999",
         "original_transaction_id":"480001230000001","is_family_share":false,"country_code":"PT",
         "renewal_number":3,"subscriber_attributes":{}}}
        """#

    /// Reads an event, given as the JSON object that it is.
    private func read(_ event: String) throws(MalformedEvent) -> StoreEvent {
        try RevenueCatEvent.read(Array(#"{"api_version":"1.0","event":\#(event)}"#.utf8))
    }

    /// Reads a renewal with some members beside its id and type.
    private func renewal(_ members: String) throws(MalformedEvent) -> StoreEvent {
        try read(#"{"id":"e-1","type":"RENEWAL",\#(members)}"#)
    }

    // MARK: Types

    static let types: [(String, Effect)] = [
        ("TEST", .nothing), ("INITIAL_PURCHASE", .announcesAccess), ("RENEWAL", .announcesAccess),
        ("NON_RENEWING_PURCHASE", .announcesAccess),
        ("PRODUCT_CHANGE", .check), ("CANCELLATION", .check), ("UNCANCELLATION", .announcesAccess),
        ("BILLING_ISSUE", .check),
        ("SUBSCRIPTION_PAUSED", .check), ("EXPIRATION", .check), ("SUBSCRIPTION_EXTENDED", .announcesAccess),
        ("TRANSFER", .check),
        ("TEMPORARY_ENTITLEMENT_GRANT", .announcesAccess), ("REFUND_REVERSED", .announcesAccess),
        ("INVOICE_ISSUANCE", .nothing),
        ("VIRTUAL_CURRENCY_TRANSACTION", .nothing), ("EXPERIMENT_ENROLLMENT", .nothing),
        ("PURCHASE_REDEEMED", .announcesAccess),
        ("PRICE_INCREASE_CONSENT_REQUIRED", .nothing), ("PRICE_INCREASE_CONSENT_APPROVED", .nothing),
        ("PAYWALL_IMPRESSION", .nothing), ("PAYWALL_CLOSE", .nothing), ("PAYWALL_CANCEL", .nothing),
        ("PAYWALL_EXIT_OFFER", .nothing), ("PAYWALL_COMPONENT_INTERACTED", .nothing), ("SUBSCRIBER_ALIAS", .check),
        ("REFUND", .check),
    ]

    @Test(arguments: types)
    func `a type announces access, is a reason to check, or means nothing`(type: String, effect: Effect) throws {
        let event = try read(#"{"id":"e-1","type":"\#(type)","app_user_id":"\#(Self.user)"}"#)
        #expect(event.source == .revenueCat && event.id == "e-1" && event.kind == type)
        #expect(event.announcesAccess == (effect == .announcesAccess))
        #expect(event.users == (effect == .nothing ? [] : [Self.user]))
        #expect(event.isHint == (effect != .nothing))
        #expect(event.purchases.isEmpty && !event.isBlocked)
    }

    @Test func `every documented type has its meaning, and no other has one`() {
        let names = Self.types.map(\.0)
        #expect(Set(RevenueCatEvent.meanings.keys) == Set(names))
        #expect(Set(names).count == names.count)
    }

    @Test(arguments: ["SUBSCRIPTION_MOVED", "renewal", "Renewal", "RENEWAL ", "initial_purchase", "x"])
    func `a type that nobody knows may speak of access`(type: String) throws {
        let event = try read(#"{"id":"e-1","type":"\#(type)","app_user_id":"\#(Self.user)"}"#)
        #expect(
            event == StoreEvent(source: .revenueCat, id: "e-1", kind: type, announcesAccess: true, users: [Self.user])
        )
    }

    // MARK: Whole events

    @Test func `a renewal says whom to look at, and that access goes on`() throws {
        let event = try RevenueCatEvent.read(Array(Self.example.utf8))
        let expected = StoreEvent(
            source: .revenueCat,
            id: "7a0d3c55-6a4f-4c0e-8a10-9a2c7f3b1e20",
            kind: "RENEWAL",
            occurredAt: Instant(microseconds: 1_791_356_830_123_000),
            announcesAccess: true,
            users: [Self.user]
        )
        #expect(event == expected)
    }

    @Test func `77: a transfer is a reason to look at everybody on both of its sides`() throws {
        let event = try read(
            #"""
            {"type":"TRANSFER","id":"c2b1","app_id":"appa1b2c3d4e5","event_timestamp_ms":1791400000000,
             "store":"APP_STORE","environment":"PRODUCTION",
             "transferred_from":["$RCAnonymousID:aa11bb22cc33dd44ee55ff6677889900","mV8wPq2nRt5yUo1iAs4dFg7hJk3Z"],
             "transferred_to":["kQ3vZr8mT2fXw1LdYp6sNb4HcJe7"]}
            """#
        )
        let expected = StoreEvent(
            source: .revenueCat,
            id: "c2b1",
            kind: "TRANSFER",
            occurredAt: Instant(microseconds: 1_791_400_000_000_000),
            users: [Self.formerOwner, Self.user]
        )
        #expect(event == expected)
    }

    @Test func `77: a transfer may list one customer several times, or leave a side out`() throws {
        let doubled = try read(
            #"{"id":"t","type":"TRANSFER","transferred_to":["a","b","a"],"transferred_from":["b","c","c"]}"#
        )
        #expect(doubled.users == ["a", "b", "c"])
        let oneSided = try read(#"{"id":"t","type":"TRANSFER","transferred_from":["a"],"transferred_to":[]}"#)
        #expect(oneSided.users == ["a"])
        #expect(try !read(#"{"id":"t","type":"TRANSFER"}"#).isHint)
    }

    @Test func `71, 186: a transaction of coins and an experiment are about nobody's access`() throws {
        let coins = try read(
            #"""
            {"type":"VIRTUAL_CURRENCY_TRANSACTION","id":"vc-1","app_id":"appa1b2c3d4e5",
             "event_timestamp_ms":1791356830123,"app_user_id":"kQ3vZr8mT2fXw1LdYp6sNb4HcJe7",
             "purchase_environment":"PRODUCTION","source":"in_app_purchase",
             "adjustments":[{"amount":10,"currency":{"code":"GLD","name":"Gold","description":null}}],
             "product_display_name":"A pack","virtual_currency_transaction_id":"vct-1"}
            """#
        )
        let moment = Instant(microseconds: 1_791_356_830_123_000)
        let nothing = StoreEvent(
            source: .revenueCat,
            id: "vc-1",
            kind: "VIRTUAL_CURRENCY_TRANSACTION",
            occurredAt: moment
        )
        #expect(coins == nothing)
        let experiment = try read(
            #"""
            {"type":"EXPERIMENT_ENROLLMENT","id":"x-1","event_timestamp_ms":1791356830123,"app_user_id":"ann",
             "aliases":["ann"],"experiment_id":"prexp1","experiment_variant":"b","offering_id":"sale",
             "experiment_enrolled_at_ms":1791356830000}
            """#
        )
        #expect(!experiment.isHint && !experiment.announcesAccess && experiment.occurredAt == moment)
    }

    @Test func `51: a temporary grant announces access, however little it says`() throws {
        let event = try read(
            #"""
            {"event_timestamp_ms":1791356830123,"app_user_id":"kQ3vZr8mT2fXw1LdYp6sNb4HcJe7","store":"APP_STORE",
             "type":"TEMPORARY_ENTITLEMENT_GRANT","id":"g-1","app_id":"appa1b2c3d4e5"}
            """#
        )
        #expect(event.announcesAccess && event.users == [Self.user])
    }

    // MARK: Promises

    @Test(
        arguments: [
            (#""environment":"PRODUCTION""#, true), (#""environment":"SANDBOX""#, false),
            (#""environment":"ELSEWHERE""#, true), (#""entitlement_ids":["premium"]"#, true),
            (#""entitlement_ids":["badge","premium"]"#, true), (#""entitlement_ids":[]"#, false),
            (#""entitlement_ids":null"#, false), (#""environment":"SANDBOX","entitlement_ids":["premium"]"#, false),
        ] as [(String, Bool)]
    )
    func `71, 157: the sandbox and what gives no access announce nothing, and are checked all the same`(
        members: String,
        announcesAccess: Bool
    ) throws {
        let event = try renewal(#""app_user_id":"ann",\#(members)"#)
        #expect(event.announcesAccess == announcesAccess)
        #expect(event.users == ["ann"])
    }

    // MARK: Ids

    @Test func `9, 11: every id of a customer is a candidate, in the order of its rank, anonymous ones apart`() throws {
        let anonymous = Self.anonymous
        let event = try renewal(
            #""aliases":["c","\#(anonymous)","a"],"original_app_user_id":"b","app_user_id":"\#(anonymous)""#
        )
        #expect(event.users == ["b", "c", "a"], "the named ids come first, wherever they stand")
        let ranked = try renewal(#""aliases":["c"],"original_app_user_id":"b","app_user_id":"a""#)
        #expect(ranked.users == ["a", "b", "c"])
        let nobody = try renewal(#""app_user_id":"\#(anonymous)","aliases":["\#(anonymous)"]"#)
        #expect(nobody.users.isEmpty && !nobody.isBlocked)
        #expect(nobody.anonymous == [anonymous] && nobody.isHint, "the customer may sign in later")
        #expect(event.anonymous.isEmpty, "a name of ours says enough")
        let odd = try renewal(#""app_user_id":"x$RCAnonymousID:1""#)
        #expect(odd.users == ["x$RCAnonymousID:1"], "only the beginning makes an id anonymous")
    }

    @Test func `what names no user of ours is followed by the purchase, where its store can be asked`() throws {
        let ids = #""original_transaction_id":"1","transaction_id":"2","environment":"SANDBOX""#
        let unnamed = try renewal(#""app_user_id":"\#(Self.anonymous)","store":"APP_STORE",\#(ids)"#)
        #expect(unnamed.purchases.map(\.value) == ["1", "2"])
        #expect(unnamed.purchases.allSatisfy { $0.store == "app_store" && $0.environment == "sandbox" })
        #expect(try renewal(#""app_user_id":"ann","store":"APP_STORE",\#(ids)"#).purchases.isEmpty)
        #expect(try renewal(#""app_user_id":"\#(Self.anonymous)","store":"STRIPE",\#(ids)"#).purchases.isEmpty)
        let crowd = (0..<9).map { "\"$RCAnonymousID:\($0)\"" }.joined(separator: ",")
        #expect(try read(#"{"id":"t","type":"TRANSFER","transferred_to":[\#(crowd)]}"#).anonymous.count == 5)
    }

    @Test func `12: an id comes once, and differs by letter case`() throws {
        let event = try renewal(
            #""app_user_id":"ann","original_app_user_id":"ann","aliases":["Ann","ann","bob","ANN","bob"]"#
        )
        #expect(event.users == ["ann", "Ann", "bob", "ANN"])
    }

    @Test(arguments: [
        "no_user", "null", "none", "nil", "(null)", "NaN", #"\x00"#, "", "unidentified", "undefined", "unknown",
        "anonymous", "guest", "-1", "0", "[]", "{}", "[object Object]",
    ])
    func `15: an id that broken apps share is flagged, and nobody's`(id: String) throws {
        let written = id.replacing(#"\"#, with: #"\\"#)
        let named = try renewal(#""app_user_id":"\#(written)","original_app_user_id":"ann""#)
        #expect(named.isBlocked && named.users == ["ann"])
        for member in ["aliases", "transferred_from", "transferred_to"] {
            let listed = try read(#"{"id":"t","type":"TRANSFER","\#(member)":["bob","\#(written)"]}"#)
            #expect(listed.isBlocked && listed.users == ["bob"], "\(member)")
        }
        let test = try read(#"{"id":"t","type":"TEST","app_user_id":"\#(written)"}"#)
        #expect(!test.isBlocked, "what is about nobody names nobody")
    }

    @Test(arguments: ["Guest", "NULL", "nan", " null", "guest2", "00"])
    func `15: an id that only looks like a shared one is somebody's`(id: String) throws {
        let event = try renewal(#""app_user_id":"\#(id)""#)
        #expect(!event.isBlocked && event.users == [id])
    }

    @Test func `an id that could not be a user's is left out`() throws {
        let longest = String(repeating: "é", count: 127) + "x"
        #expect(longest.utf8.count == 255)
        let huge = String(repeating: "x", count: 3_000)
        let event = try renewal(
            #""app_user_id":"\#(longest)","aliases":["\#(longest)x","\#(huge)","a\u0000b","ann"]"#
        )
        #expect(event.users == [longest, "ann"])
        #expect(!event.isBlocked)
    }

    @Test func `two hundred of a customer's names are looked up, however many nobody's there are before them`() throws {
        let nobodies = (0..<1_000).map { "$RCAnonymousID:\($0)" }
        let aliases = (0..<201).map { "alias-\($0)" }
        let written = (nobodies + aliases).map { "\"\($0)\"" }.joined(separator: ",")
        let event = try renewal(#""app_user_id":"ann","aliases":[\#(written)]"#)
        let expected = ["ann"] + aliases.prefix(199)
        #expect(event.users == expected)
    }

    // MARK: Odd texts

    @Test func `members that nobody knows are passed over`() throws {
        let plain = try renewal(#""app_user_id":"ann""#)
        let rich = try renewal(
            #"""
            "ID":"other","event":{"id":"inner"},
            "subscriber_attributes":{"$email":{"value":"a@example.com","updated_at_ms":1}},"app_user_id":"ann",
            "experiments":[{"experiment_id":"x","id":"y"}],"price":-1.5e2,"note":"\u00e9\ud83d\ude00"
            """#
        )
        #expect(rich == plain)
    }

    @Test(arguments: [
        #""subscriber_attributes":{"$displayName":{"value":"Kim \ud83d","updated_at_ms":1}}"#,
        #""subscriber_attributes":{"\ude00\ud83d":{"value":"\udc00"}},"offer_code":"\ud800\u0041""#,
        #""metadata":[["\udbff",{"a\udfff":["\ud83d"]}]]"#, #""price":1e400,"takehome_percentage":-1E+99999999"#,
        #""currency_amount":\#(String(repeating: "9", count: 5000))"#, #""tax":{"a":[1e-999,{"b":2.5e+4000}]}"#,
        #""environment":"\ud83d","event_timestamp_ms":1e400,"entitlement_ids":["\ud83d",1e999]"#,
        #""original_app_user_id":"\ud83d","aliases":["\ud83d","a\udc00b",1e400]"#,
    ])
    func `text that was cut in the middle of an emoji and numbers beyond a double lose no event`(member: String) throws
    {
        let user = Self.user
        for event in [
            try renewal(#""app_user_id":"\#(user)",\#(member)"#), try renewal(#"\#(member),"app_user_id":"\#(user)""#),
        ] {
            #expect(event.id == "e-1" && event.users == [user] && event.isHint && event.announcesAccess)
        }
    }

    @Test func `an id with half of a character is no id`() throws {
        let event = try renewal(
            #""app_user_id":"ann\ud83d","aliases":["bob","bob\ude00"],"transferred_to":["\ud83dbob"]"#
        )
        #expect(event.users == ["bob"])
        #expect(throws: MalformedEvent.self) { try read(#"{"id":"e\ud83d","type":"RENEWAL","app_user_id":"ann"}"#) }
    }

    @Test func `a member of a wrong type counts as missing`() throws {
        let event = try renewal(
            #"""
            "app_user_id":7,"original_app_user_id":{"id":"ann"},"aliases":"bob","transferred_from":null,
            "transferred_to":{"a":["carol"]},"environment":["SANDBOX"],"event_timestamp_ms":"soon"
            """#
        )
        #expect(event == StoreEvent(source: .revenueCat, id: "e-1", kind: "RENEWAL", announcesAccess: true))
        let mixed = try renewal(#""aliases":[1,null,"ann",["bob"],{"id":"carol"},true,"dave"]"#)
        #expect(mixed.users == ["ann", "dave"], "one that is no text takes nobody else away")
    }

    @Test(
        arguments: [
            ("0", 0), ("1791356830123", 1_791_356_830_123), ("7258118400000", 7_258_118_400_000), ("-1", nil),
            ("7258118400001", nil), ("9223372036854775808", nil), ("1.5", nil), ("1e3", nil), ("null", nil),
            ("true", nil), ("{}", nil), (#""1791356830123""#, nil),
        ] as [(String, Int64?)]
    )
    func `a time that no event can have is dropped`(written: String, milliseconds: Int64?) throws {
        let event = try renewal(#""event_timestamp_ms":\#(written),"app_user_id":"ann""#)
        #expect(event.occurredAt?.microseconds == milliseconds.map { $0 * 1000 })
        #expect(event.users == ["ann"])
    }

    // MARK: Refusals

    @Test(arguments: [
        "{}", #"{"type":"RENEWAL"}"#, #"{"id":"e-1"}"#, #"{"id":"","type":"RENEWAL"}"#, #"{"id":"e-1","type":""}"#,
        #"{"id":null,"type":"RENEWAL"}"#, #"{"id":7,"type":"RENEWAL"}"#, #"{"id":"e-1","type":["RENEWAL"]}"#,
        #"{"id":"e-1","type":null}"#, #"{"id":"\#(String(repeating: "x", count: 256))","type":"RENEWAL"}"#,
        #"{"id":"\#(String(repeating: "é", count: 128))","type":"RENEWAL"}"#,
        #"{"id":"e-1","type":"\#(String(repeating: "X", count: 101))"}"#, #"{"id":"a\u0000b","type":"RENEWAL"}"#,
    ])
    func `an event without an id or a type that can be kept is refused`(event: String) {
        #expect(throws: MalformedEvent(reason: "its id or type is missing, or too long")) { try read(event) }
    }

    @Test func `an id of 255 bytes and a type of a hundred can be kept`() throws {
        let id = String(repeating: "i", count: 255)
        let type = String(repeating: "T", count: 100)
        let event = try read(#"{"id":"\#(id)","type":"\#(type)"}"#)
        #expect(event.id == id && event.kind == type)
    }

    @Test(arguments: [
        "", " ", "null", "[]", "7", "<html></html>", "{}", #"{"Event":{"id":"e","type":"T"}}"#, #"{"event":null}"#,
        #"{"event":[]}"#, #"{"event":"x"}"#, #"{"event":{"id":"e","type":"T"}} x"#,
        #"{"event":{"id":"e","type":"T"}}{}"#,
        #"{"event":{"id":"e","type":"T"},"event":{"id":"e","type":"T"}}"#, #"[{"event":{"id":"e","type":"T"}}]"#,
        #"{"event":{"id":"e","type":"T",}}"#, #"{"event":{"id":"e" "type":"T"}}"#, "\u{FEFF}{}",
    ])
    func `a body that holds no event, or something beside it, is refused`(body: String) {
        #expect(throws: MalformedEvent.self) { try RevenueCatEvent.read(Array(body.utf8)) }
    }

    @Test(arguments: [
        #""id":"e-2""#, #""type":"TEST""#, #""t\u0079pe":"TEST""#, #""app_user_id":"bob""#, #""aliases":[]"#,
        #""environment":"SANDBOX""#, #""event_timestamp_ms":2"#, #""entitlement_ids":[]"#, #""transferred_to":[]"#,
    ])
    func `a member that is said twice is refused`(second: String) {
        let first = #""app_user_id":"ann","aliases":["ann"],"environment":"PRODUCTION","event_timestamp_ms":1"#
        let lists = #""entitlement_ids":["premium"],"transferred_to":["ann"]"#
        #expect(throws: MalformedEvent(reason: "a member stands in it twice")) {
            try renewal("\(first),\(lists),\(second)")
        }
    }

    @Test func `103: a body nests to the limit and no deeper`() throws {
        func nested(_ depth: Int) -> String {
            String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
        }
        // The body and its event are two levels of the 32.
        for member in ["note", "aliases", "app_user_id"] {
            #expect(try renewal(#""\#(member)":\#(nested(30))"#).id == "e-1", "\(member)")
            #expect(throws: MalformedEvent(reason: "it is nested too deep"), "\(member)") {
                try renewal(#""\#(member)":\#(nested(31))"#)
            }
        }
    }

    @Test func `103: a body that is too large is not looked at`() throws {
        let body = Array(Self.example.utf8)
        let blank = [UInt8](repeating: 0x20, count: (4 << 20) - body.count)
        #expect(try RevenueCatEvent.read(body + blank).kind == "RENEWAL")
        #expect(throws: MalformedEvent(reason: "it is too large")) { try RevenueCatEvent.read(body + blank + [0x20]) }
    }

    @Test func `a body cut off anywhere is refused`() {
        let whole = Array(Self.example.utf8)
        for count in whole.indices {
            #expect(throws: MalformedEvent.self, "\(count) bytes") { try RevenueCatEvent.read(Array(whole[..<count])) }
        }
    }
}

extension StoreEvent {
    /// Whether there is a user to read.
    var isHint: Bool { !users.isEmpty || !purchases.isEmpty || !anonymous.isEmpty }
}
