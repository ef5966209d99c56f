import Entitlements
@testable import StoreClients
import Testing
@testable import TextFormats

/// Every combination of the optional members of a line item, beside every kind of neighbour, against a table of its own.
@Suite struct GooglePlayLineItemTests {
    private enum End: CaseIterable { case ahead, past, longPast, missing, null, odd }
    private enum Plan: CaseIterable { case renews, stopped, prepaid, none }
    private enum Change: CaseIterable { case none, replacement, unnamedReplacement, removal, deferred }
    /// What stands beside the item in the same purchase.
    private enum Neighbour: CaseIterable { case none, running, over, replacedByIt }

    /// What the item is worth.
    private enum Right: Equatable {
        case gives
        /// A free user gets nothing, a subscriber keeps access for the margin.
        case keeps
        /// Nothing; what is over is said to be.
        case ended, nothing
        case unreadable
    }

    private struct Case {
        var state: String
        var end: End
        var plan: Plan
        var change: Change
        var hasOrder: Bool
        var neighbour: Neighbour

        /// The table, in the words of Google's documentation.
        var right: Right {
            let isMarked = change == .replacement || change == .unnamedReplacement || change == .removal
            // An item that is not owned yet has no order; what was never paid has none in the whole purchase.
            let isOwned = hasOrder || isMarked || (neighbour == .none && change != .deferred)
            guard isOwned else { return neighbour == .none ? .keeps : .nothing }
            let renews =
                plan != .prepaid && change != .removal
                && (plan == .renews || change == .replacement || change == .unnamedReplacement)
            switch (state, end) {
            case ("CANCELED", .ahead): return .gives
            case ("CANCELED", .past), ("CANCELED", .longPast): return .ended
            case ("CANCELED", .missing), ("CANCELED", .null): return .keeps
            case ("CANCELED", _): return .unreadable
            case (_, .past), (_, .longPast):
                let isBesideRunning = neighbour == .running || neighbour == .replacedByIt
                if isBesideRunning { return renews ? .keeps : .ended }
                return renews ? .gives : .keeps
            default: return .gives
            }
        }

        var item: String {
            var members: PlayFixture.Changes = [
                "productId": #""item""#, "offerDetails": nil, "autoRenewingPlan": nil, "expiryTime": nil,
                "latestSuccessfulOrderId": hasOrder ? #""GPA.1""# : nil,
                // Whatever else is told decides nothing.
                "offerPhase": #"{"freeTrial":{}}"#, "signupPromotion": #"{"oneTimeCode":{}}"#,
            ]
            switch end {
            case .ahead: members["expiryTime"] = "\"\(PlayFixture.future)\""
            case .past: members["expiryTime"] = "\"\(PlayFixture.past)\""
            case .longPast: members["expiryTime"] = #""2026-02-01T00:00:00Z""#
            case .missing: break
            case .null: members["expiryTime"] = "null"
            case .odd: members["expiryTime"] = #""soon""#
            }
            switch plan {
            case .renews: members["autoRenewingPlan"] = #"{"autoRenewEnabled":true}"#
            case .stopped: members["autoRenewingPlan"] = "{}"
            case .prepaid: members["prepaidPlan"] = "{}"
            case .none: break
            }
            switch change {
            case .none: break
            case .replacement: members["deferredItemReplacement"] = #"{"productId":"later"}"#
            case .unnamedReplacement: members["deferredItemReplacement"] = "{}"
            case .removal: members["deferredItemRemoval"] = "{}"
            case .deferred: members["itemReplacement"] = #"{"productId":"x","replacementMode":"DEFERRED"}"#
            }
            return PlayFixture.item(members)
        }

        var neighbours: [String] {
            switch neighbour {
            case .none: []
            case .running: [PlayFixture.item(["productId": #""other""#])]
            case .over:
                [PlayFixture.item(["productId": #""other""#, "expiryTime": #""2026-02-01T00:00:00Z""#])]
            case .replacedByIt:
                [
                    PlayFixture.item([
                        "productId": #""other""#, "deferredItemReplacement": #"{"productId":"item"}"#,
                    ])
                ]
            }
        }
    }

    private static var cases: [Case] {
        var cases: [Case] = []
        for state in ["ACTIVE", "IN_GRACE_PERIOD", "CANCELED"] {
            for end in End.allCases {
                for plan in Plan.allCases {
                    for change in Change.allCases {
                        for hasOrder in [true, false] {
                            for neighbour in Neighbour.allCases {
                                cases.append(
                                    Case(
                                        state: state,
                                        end: end,
                                        plan: plan,
                                        change: change,
                                        hasOrder: hasOrder,
                                        neighbour: neighbour
                                    )
                                )
                            }
                        }
                    }
                }
            }
        }
        return cases
    }

    @Test("every combination of a line item's optional members is worth what the table says, in either order")
    func table() throws {
        for row in Self.cases {
            for isFirst in [true, false] {
                let items = isFirst ? [row.item] + row.neighbours : row.neighbours + [row.item]
                let body = PlayFixture.subscription(row.state, items: items)
                let purchase = try SubscriptionPurchase(Array(body.utf8))
                let told = purchase.observations(token: "tok", lineage: ["tok"], at: PlayFixture.now)
                    .filter { $0.entitlements.contains("google_play:item") }
                let found: Right =
                    switch told.first?.accessState {
                    case .access: .gives
                    case .unsettled: .keeps
                    case .ended: .ended
                    case .pending, .unknown, nil:
                        purchase.isUnreadable(at: PlayFixture.now) ? .unreadable : .nothing
                    }
                #expect(found == row.right, "\(row)")
                #expect(told.count <= 1, "\(row)")
            }
        }
    }

    @Test(
        "outside of the states that give access the state alone counts",
        arguments: ["PENDING", "ON_HOLD", "PAUSED", "EXPIRED", "UNSPECIFIED", "NEVER_HEARD_OF"]
    )
    func otherStates(_ state: String) throws {
        for row in Self.cases where row.state == "ACTIVE" {
            let body = PlayFixture.subscription(state, items: [row.item] + row.neighbours)
            let purchase = try SubscriptionPurchase(Array(body.utf8))
            let told = purchase.observations(token: "tok", lineage: ["tok"], at: PlayFixture.now)
            #expect(told.count == 1 && told.first?.givesAccess == false, "\(row)")
            #expect(!purchase.isUnreadable(at: PlayFixture.now), "\(row)")
        }
    }

    @Test("an item without access by the catalogue does not lengthen one that has it")
    func ownEnds() throws {
        let items = [
            PlayFixture.item(["productId": #""badge""#, "offerDetails": nil]),
            PlayFixture.item(["expiryTime": #""2026-03-20T00:00:00Z""#, "offerDetails": nil]),
        ]
        let purchase = try SubscriptionPurchase(Array(PlayFixture.subscription("ACTIVE", items: items).utf8))
        let told = purchase.observations(token: "tok", lineage: ["tok"], at: PlayFixture.now) {
            $0 == ["google_play:pro"]
        }
        #expect(told.map(\.entitlements) == [["google_play:pro"], ["google_play:badge"]])
        #expect(told.first?.periodEndsAt == RFC3339.instant("2026-03-20T00:00:00Z"))
    }

    @Test(
        "a purchase whose access can't be told is none, and is no failure",
        arguments: [
            PlayFixture.subscription("ACTIVE", items: []), PlayFixture.subscription("CANCELED", ["lineItems": nil]),
            PlayFixture.subscription("ACTIVE", ["lineItems": "{}"]),
            PlayFixture.subscription("ACTIVE", ["subscriptionState": "4"]),
            PlayFixture.subscription("ACTIVE", ["externalAccountIdentifiers": "[]"]),
            PlayFixture.subscription("ACTIVE", items: [PlayFixture.item(["productId": nil])]),
            PlayFixture.subscription("ACTIVE", items: ["7"]),
        ]
    )
    func unreadable(_ body: String) throws {
        let purchase = try SubscriptionPurchase(Array(body.utf8))
        #expect(purchase.isUnreadable(at: PlayFixture.now))
        #expect(purchase.observations(token: "tok", lineage: ["tok"], at: PlayFixture.now).isEmpty)
    }

    @Test(
        "a member of an odd shape says nothing of the others",
        arguments: [
            ["startTime": #""yesterday""#], ["acknowledgementState": "1"], ["latestOrderId": "{}"],
            ["linkedPurchaseToken": "[]"], ["canceledStateContext": "7"], ["outOfAppPurchaseContext": "true"],
        ] as [PlayFixture.Changes]
    )
    func oddMembers(_ changes: PlayFixture.Changes) throws {
        let body = PlayFixture.subscription("ACTIVE", items: [PlayFixture.item(), "7"], changes)
        let purchase = try SubscriptionPurchase(Array(body.utf8))
        let told = purchase.observations(token: "tok", lineage: ["tok"], at: PlayFixture.now)
        #expect(told.map(\.givesAccess) == [true])
        #expect(purchase.isUnreadable(at: PlayFixture.now), "the other item")
    }

    // MARK: One-time products

    private enum Offer: String, CaseIterable {
        case none = "null"
        case plain = "{}"
        case kept = #"{"consumptionState":"CONSUMPTION_STATE_YET_TO_BE_CONSUMED","quantity":2,"refundableQuantity":0}"#
        case used = #"{"consumptionState":"CONSUMPTION_STATE_CONSUMED"}"#
        case rented = #"{"rentOfferDetails":{}}"#
        case rentedAndUsed = #"{"rentOfferDetails":{},"consumptionState":"CONSUMPTION_STATE_CONSUMED"}"#
        case ahead = #"{"preorderOfferDetails":{"preorderReleaseTime":"2026-05-01T00:00:00Z"}}"#
        case released = #"{"preorderOfferDetails":{"preorderReleaseTime":"2026-03-10T00:00:00Z"}}"#
        case undated = #"{"preorderOfferDetails":{}}"#
        case odd = #"{"preorderOfferDetails":{"preorderReleaseTime":"soon"}}"#
        case odder = "7"

        /// Whether it is owned, limited and has not begun; `nil` where it can't be read.
        var right: (owned: Bool, limited: Bool, ahead: Bool)? {
            switch self {
            case .none, .plain, .kept, .released, .undated: (true, false, false)
            case .used, .rentedAndUsed: (false, false, false)
            case .rented: (true, true, false)
            case .ahead: (false, false, true)
            case .odd, .odder: nil
            }
        }
    }

    @Test("every combination of a one-time product's optional members is worth what the table says")
    func products() throws {
        for state in ["PURCHASED", "PENDING", "CANCELLED", "NEVER_HEARD_OF"] {
            for first in Offer.allCases {
                for second in Offer.allCases {
                    for isDated in [true, false] {
                        let lines = [("a", first), ("b", second)].map {
                            #"{"productId":"\#($0.0)","productOfferDetails":\#($0.1.rawValue)}"#
                        }
                        let body = PlayFixture.product([
                            "purchaseStateContext": #"{"purchaseState":"\#(state)"}"#,
                            "productLineItem": "[\(lines.joined(separator: ","))]",
                            "purchaseCompletionTime": isDated ? #""2026-03-01T08:00:00Z""# : nil,
                        ])
                        let purchase = try ProductPurchase(Array(body.utf8))
                        let told = purchase.observations(token: "tok", at: PlayFixture.now)
                        guard state == "PURCHASED" else {
                            #expect(told.allSatisfy { $0.accessState != .access }, "\(state) \(first) \(second)")
                            continue
                        }
                        let rights = [first.right, second.right]
                        #expect(purchase.isUnreadable == rights.contains { $0 == nil }, "\(first) \(second)")
                        let owned = told.filter { $0.accessState == .access && !$0.isLimited }.flatMap(\.entitlements)
                        let limited = told.filter { $0.accessState == .access && $0.isLimited }.flatMap(\.entitlements)
                        let ahead = told.filter { $0.accessState == .pending }.flatMap(\.entitlements)
                        func keys(_ holds: ((owned: Bool, limited: Bool, ahead: Bool)) -> Bool) -> [String] {
                            zip(["google_play:a", "google_play:b"], rights).filter { $1.map(holds) ?? false }.map(\.0)
                        }
                        #expect(owned == keys { $0.owned && !$0.limited }, "\(first) \(second)")
                        #expect(limited == keys { $0.limited }, "\(first) \(second)")
                        #expect(ahead == keys { $0.ahead }, "\(first) \(second)")
                    }
                }
            }
        }
    }

    @Test("what is used up says so where our records hold it, and is nothing else")
    func usedUp() throws {
        let body = PlayFixture.product([
            "productLineItem":
                #"[{"productId":"a","productOfferDetails":{"consumptionState":"CONSUMPTION_STATE_CONSUMED"}}]"#
        ])
        let purchase = try ProductPurchase(Array(body.utf8))
        #expect(purchase.observations(token: "tok", at: PlayFixture.now).isEmpty)
        let known = purchase.observations(token: "tok", at: PlayFixture.now, isKnown: true)
        #expect(known.map(\.accessState) == [.ended] && known.first?.entitlements == [])
    }
}
