import Entitlements
@testable import StoreClients
import Testing
@testable import TextFormats

@Suite struct GooglePlaySubscriptionTests {
    struct Row: Sendable {
        var state: String
        var ends: String
        var status: String
        var givesAccess: Bool
        var isPending = false
    }

    private static let rows = [
        Row(
            state: "UNSPECIFIED",
            ends: PlayFixture.future,
            status: "SUBSCRIPTION_STATE_UNSPECIFIED",
            givesAccess: false
        ),
        Row(state: "PENDING", ends: PlayFixture.future, status: "incomplete", givesAccess: false, isPending: true),
        Row(state: "ACTIVE", ends: PlayFixture.future, status: "active", givesAccess: true),
        Row(state: "ACTIVE", ends: PlayFixture.past, status: "active", givesAccess: true),
        Row(state: "IN_GRACE_PERIOD", ends: PlayFixture.future, status: "in_grace_period", givesAccess: true),
        Row(state: "IN_GRACE_PERIOD", ends: PlayFixture.past, status: "in_grace_period", givesAccess: true),
        Row(state: "ON_HOLD", ends: PlayFixture.past, status: "in_billing_retry", givesAccess: false),
        Row(state: "PAUSED", ends: PlayFixture.past, status: "paused", givesAccess: false),
        Row(state: "CANCELED", ends: PlayFixture.future, status: "active", givesAccess: true),
        Row(state: "CANCELED", ends: PlayFixture.past, status: "expired", givesAccess: false),
        Row(state: "EXPIRED", ends: PlayFixture.past, status: "expired", givesAccess: false),
        // Revoked or replaced: over, whatever end stands there.
        Row(state: "EXPIRED", ends: PlayFixture.future, status: "expired", givesAccess: false),
        Row(
            state: "NEVER_HEARD_OF",
            ends: PlayFixture.future,
            status: "SUBSCRIPTION_STATE_NEVER_HEARD_OF",
            givesAccess: false
        ),
    ]

    @Test("every state says what it gives", arguments: rows)
    func states(_ row: Row) throws {
        let body = PlayFixture.subscription(row.state, items: [PlayFixture.item(["expiryTime": "\"\(row.ends)\""])])
        let observation = try #require(try PlayFixture.observation(body))
        #expect(observation.status.raw == row.status)
        #expect(observation.givesAccess == row.givesAccess)
        #expect(observation.isPaymentPending == row.isPending)
        #expect(observation.entitlements == ["google_play:pro:monthly"])
        #expect(observation.periodEndsAt == RFC3339.instant(row.ends))
        // What the domain makes of the words, so that no two of them contradict each other.
        let standing = accessState(of: .subscription, status: observation.status, givesAccess: row.givesAccess)
        #expect((standing == .access) == row.givesAccess)
        #expect((standing == .pending) == row.isPending)
    }

    @Test("the table of states has each of them once, and the rows above as well")
    func completeness() {
        #expect(
            subscriptionStateRules.map(\.state.rawValue).sorted()
                == SubscriptionPurchase.State.allCases.map(\.rawValue).sorted()
        )
        let tested = Set(Self.rows.map { "SUBSCRIPTION_STATE_\($0.state)" })
        for state in SubscriptionPurchase.State.allCases where state != .pendingCanceled {
            #expect(tested.contains(state.rawValue))
        }
    }

    @Test("what a change of plans replaced has not ended, and gives no access by itself")
    func replaced() throws {
        for (context, word, standing) in [
            (#"{"replacementCancellation":{}}"#, "replaced", AccessState.unsettled),
            (#"{"systemInitiatedCancellation":{}}"#, "expired", .ended), ("{}", "expired", .ended),
            ("null", "expired", .ended),
        ] {
            let body = PlayFixture.subscription(
                "EXPIRED",
                items: [PlayFixture.item(["expiryTime": "\"\(PlayFixture.future)\""])],
                ["canceledStateContext": context]
            )
            let observation = try #require(try PlayFixture.observation(body))
            #expect(observation.status.raw == word && observation.givesAccess == false, "\(context)")
            let meaning = Entitlements.accessState(
                of: .subscription,
                status: observation.status,
                givesAccess: observation.givesAccess
            )
            #expect(meaning == standing, "\(context)")
        }
    }

    @Test("a purchase given up before it was paid is none")
    func givenUp() throws {
        #expect(try PlayFixture.observation(PlayFixture.subscription("PENDING_PURCHASE_CANCELED")) == nil)
    }

    @Test("every fact of a subscription is told")
    func facts() throws {
        let body = PlayFixture.subscription(
            "ACTIVE",
            [
                "latestOrderId": #""GPA.1111-2222-3333-44444..2""#,
                "externalAccountIdentifiers":
                    #"{"obfuscatedExternalAccountId":"acc","obfuscatedExternalProfileId":"p"}"#,
            ]
        )
        let observation = try #require(try PlayFixture.observation(body, token: "new", lineage: ["new", "old"]))
        #expect(observation.source == .googlePlay)
        #expect(observation.kind == .subscription)
        #expect(observation.store == "google_play")
        #expect(observation.environment == "production")
        #expect(observation.productID == "pro")
        #expect(observation.renewal == "will_renew")
        #expect(observation.periodStartsAt == Instant(microseconds: 1_772_352_000_123_000))
        #expect(observation.boughtAt == observation.periodStartsAt)
        #expect(observation.owner == .unnamed)
        #expect(observation.accountID == "acc")
        #expect(observation.lookupID == "new")
        #expect(observation.acknowledgement == nil)
        #expect(observation.payloadHash == observation.factsHash)
        #expect(observation.names("purchase_token") == ["new", "old"])
        #expect(
            observation.names("order_id") == [
                "GPA.1111-2222-3333-44444", "GPA.1111-2222-3333-44444..1", "GPA.1111-2222-3333-44444..2",
            ]
        )
        #expect(observation.identifiers.allSatisfy { $0.store == "google_play" && $0.environment == "production" })
    }

    @Test("a license tester's purchase is none of production's")
    func sandbox() throws {
        let body = PlayFixture.subscription("ACTIVE", ["testPurchase": "{}"])
        let observation = try #require(try PlayFixture.observation(body))
        #expect(observation.environment == "sandbox")
        #expect(observation.identifiers.allSatisfy { $0.environment == "sandbox" })
    }

    @Test(
        "the account is the one that the app named, or the expired purchase's",
        arguments: [
            ([:], nil),
            (["externalAccountIdentifiers": "{}"], nil),
            (["externalAccountIdentifiers": "null"], nil),
            (["externalAccountIdentifiers": #"{"obfuscatedExternalAccountId":""}"#], nil),
            (["externalAccountIdentifiers": #"{"obfuscatedExternalAccountId":"a"}"#], "a"),
            (["externalAccountIdentifiers": #"{"externalAccountId":"linked"}"#], nil),
            (
                [
                    "outOfAppPurchaseContext":
                        #"{"expiredPurchaseToken":"e","expiredExternalAccountIdentifiers":{"obfuscatedExternalAccountId":"b"}}"#
                ],
                "b"
            ),
            (
                [
                    "externalAccountIdentifiers": #"{"obfuscatedExternalAccountId":"a"}"#,
                    "outOfAppPurchaseContext":
                        #"{"expiredExternalAccountIdentifiers":{"obfuscatedExternalAccountId":"b"}}"#,
                ],
                "a"
            ),
        ] as [(PlayFixture.Changes, String?)]
    )
    func account(_ changes: PlayFixture.Changes, _ expected: String?) throws {
        let observation = try #require(try PlayFixture.observation(PlayFixture.subscription("ACTIVE", changes)))
        #expect(observation.accountID == expected)
        let hasExpired =
            changes["outOfAppPurchaseContext"].map { $0?.contains("expiredPurchaseToken") ?? false } ?? false
        #expect(observation.names("purchase_token") == (hasExpired ? ["e", "tok"] : ["tok"]))
    }

    @Test("what has its type's default is left out, and that is no fault")
    func defaults() throws {
        let bare =
            #"{"lineItems":[{"productId":"pro","autoRenewingPlan":{}}],"subscriptionState":"SUBSCRIPTION_STATE_ACTIVE"}"#
        let observation = try #require(try PlayFixture.observation(bare))
        #expect(observation.givesAccess == true)
        #expect(observation.renewal == "will_not_renew")
        #expect(observation.entitlements == ["google_play:pro"])
        #expect(observation.periodStartsAt == nil)
        #expect(observation.periodEndsAt == nil)
        #expect(observation.acknowledgement == nil)
        #expect(observation.names("order_id") == [])
    }

    @Test("members and words that are new are no fault")
    func unknownMembers() throws {
        let body = PlayFixture.subscription(
            "ACTIVE",
            items: [PlayFixture.item(["offerPhase": #"{"neverHeardOf":{"x":[1,2]}}"#])],
            ["onHoldStateContext": "{}", "newest": "[[{}]]", "acknowledgementState": #""NEVER_HEARD_OF""#]
        )
        let observation = try #require(try PlayFixture.observation(body))
        #expect(observation.givesAccess == true)
        #expect(observation.acknowledgement == nil)
    }

    @Test(
        "a body that is no subscription is refused",
        arguments: [
            "", "{}", "[]", "null", #"{"error":{"code":410}}"#, #"{"kind":"androidpublisher#productPurchaseV2"}"#,
            PlayFixture.subscription("ACTIVE") + "x", "<!DOCTYPE html><html></html>",
        ]
    )
    func refuses(_ body: String) {
        #expect(throws: JSONFault.self) { try SubscriptionPurchase(Array(body.utf8)) }
    }

    // MARK: Items

    @Test("add-ons have their own ends: what runs gives access, and the best of it names the product")
    func addOns() throws {
        let items = [
            PlayFixture.item(["expiryTime": "\"\(PlayFixture.past)\""]),
            PlayFixture.item(["productId": #""extra""#, "expiryTime": #""2026-03-20T00:00:00Z""#]),
            PlayFixture.item(["productId": #""more""#, "offerDetails": nil]),
        ]
        let observation = try #require(try PlayFixture.observation(PlayFixture.subscription("CANCELED", items: items)))
        #expect(observation.givesAccess == true)
        #expect(observation.entitlements == ["google_play:extra:monthly", "google_play:more"])
        #expect(observation.productID == "more")
        #expect(observation.periodEndsAt == RFC3339.instant(PlayFixture.future))
        let over = items.map {
            $0.replacing("2026-03-20", with: "2026-03-10").replacing("2026-04-01", with: "2026-03-11")
        }
        let ended = try #require(try PlayFixture.observation(PlayFixture.subscription("CANCELED", items: over)))
        #expect(ended.givesAccess == false)
        #expect(ended.entitlements.count == 3)
    }

    @Test("an add-on whose period is over gives nothing beside a running plan, be it that it renews late")
    func endedAddOn() throws {
        func entitlements(_ end: String) throws -> [String]? {
            let addOn = PlayFixture.item(["productId": #""extra""#, "expiryTime": "\"\(end)\""])
            let body = PlayFixture.subscription("ACTIVE", items: [PlayFixture.item(), addOn])
            return try PlayFixture.observation(body)?.entitlements
        }
        #expect(try entitlements("2026-03-10T00:00:00Z") == ["google_play:pro:monthly"])
        #expect(try entitlements(PlayFixture.past) == ["google_play:pro:monthly"])
    }

    @Test("what a plan will be replaced with gives nothing yet, and promises that it goes on")
    func deferred() throws {
        let items = [
            PlayFixture.item(["deferredItemReplacement": #"{"productId":"max"}"#, "autoRenewingPlan": "{}"]),
            PlayFixture.item(["productId": #""max""#, "latestSuccessfulOrderId": nil, "expiryTime": nil]),
        ]
        let observation = try #require(try PlayFixture.observation(PlayFixture.subscription("ACTIVE", items: items)))
        #expect(observation.entitlements == ["google_play:pro:monthly"])
        #expect(observation.productID == "pro")
        #expect(observation.renewal == "will_renew")
        #expect(observation.periodEndsAt == RFC3339.instant(PlayFixture.future))
    }

    @Test("50: a prepaid plan is never said to renew")
    func prepaid() throws {
        let item = PlayFixture.item(["autoRenewingPlan": nil, "prepaidPlan": "{}"])
        let observation = try #require(try PlayFixture.observation(PlayFixture.subscription("ACTIVE", items: [item])))
        #expect(observation.renewal == "will_not_renew")
        #expect(observation.announcesEnd)
        #expect(observation.givesAccess == true)
    }

    @Test("56: after a refund without revocation the state alone counts")
    func refunded() throws {
        // The voided order leaves no trace in the answer.
        let observation = try #require(try PlayFixture.observation(PlayFixture.subscription("ACTIVE")))
        #expect(observation.givesAccess == true)
    }

    // MARK: Acknowledgement

    @Test(
        "what waits for its acknowledgement says until when",
        arguments: [
            ("ACTIVE", false, false, PlayFixture.future, 3 * 86_400),
            ("CANCELED", false, false, PlayFixture.future, 3 * 86_400),
            ("ACTIVE", false, true, PlayFixture.future, 180),
            // Thirty days, and six of them.
            ("ACTIVE", true, false, PlayFixture.future, 3 * 86_400),
            ("ACTIVE", true, false, "2026-03-07T08:00:00.123Z", 3 * 86_400),
            ("ACTIVE", true, false, "2026-03-03T08:00:00.123Z", 86_400),
            ("CANCELED", false, false, PlayFixture.past, nil),
            ("EXPIRED", false, false, PlayFixture.future, nil),
            ("PENDING", false, false, PlayFixture.future, nil),
            ("ON_HOLD", false, false, PlayFixture.future, nil),
        ] as [(String, Bool, Bool, String, Int64?)]
    )
    func acknowledgement(state: String, prepaid: Bool, test: Bool, ends: String, seconds: Int64?) throws {
        let plan: PlayFixture.Changes = prepaid ? ["autoRenewingPlan": nil, "prepaidPlan": "{}"] : [:]
        let item = PlayFixture.item(plan.merging(["expiryTime": "\"\(ends)\""]) { $1 })
        var changes: PlayFixture.Changes = ["acknowledgementState": #""ACKNOWLEDGEMENT_STATE_PENDING""#]
        if test { changes["testPurchase"] = "{}" }
        let observation = try #require(
            try PlayFixture.observation(PlayFixture.subscription(state, items: [item], changes))
        )
        let expected = seconds.map {
            Acknowledgement(
                productID: "pro",
                token: "tok",
                kind: .subscription,
                deadline: Instant(microseconds: 1_772_352_000_123_000) + .seconds($0)
            )
        }
        #expect(observation.acknowledgement == expected)
    }

    // MARK: Order numbers

    @Test(
        "a renewal's number holds the first order's",
        arguments: [
            ("GPA.1-2-3-4", "GPA.1-2-3-4"), ("GPA.1-2-3-4..0", "GPA.1-2-3-4"), ("GPA.1-2-3-4..12", "GPA.1-2-3-4"),
            ("GPA.1..", "GPA.1.."), ("GPA.1..x", "GPA.1..x"), ("..0", "..0"), ("GPA.1..0..1", "GPA.1..0"),
        ]
    )
    func orderNumbers(_ text: String, _ base: String) {
        #expect(OrderNumber.base(text) == base)
    }
}
