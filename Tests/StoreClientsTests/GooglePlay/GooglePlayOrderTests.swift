import Entitlements
@testable import StoreClients
import Testing
@testable import TextFormats

/// Every combination of the optional members of an order, against a table of its own.
@Suite struct GooglePlayOrderTests {
    private static let asked = "GPA.1111-2222-3333-44444"

    /// A member that is a text.
    private enum Text: CaseIterable {
        case sound, missing, null, empty, number, object

        func json(_ sound: String) -> String? {
            switch self {
            case .sound: "\"\(sound)\""
            case .missing: nil
            case .null: "null"
            case .empty: #""""#
            case .number: "7"
            case .object: "{}"
            }
        }

        var isOdd: Bool { self == .number || self == .object }
    }

    private enum Items: String, CaseIterable {
        case missing = ""
        case null = "null"
        case none = "[]"
        case one = #"[{"productId":"a"}]"#
        case subscription = #"[{"productId":"a","subscriptionDetails":{"basePlanId":"m","offerId":7}}]"#
        case oneTime = #"[{"productId":"a","oneTimePurchaseDetails":{"quantity":1},"total":{"units":"1"}}]"#
        case paidApp = #"[{"paidAppDetails":{},"productTitle":"App"}]"#
        case several = #"[{"productId":"a"},{"productId":"b"}]"#
        case odd = #"{"productId":"a"}"#
        case oddNeighbours = #"[7,{"productId":"a"},{"productId":[]},null]"#

        var right: [String] {
            switch self {
            case .missing, .null, .none, .paidApp, .odd: []
            case .one, .subscription, .oneTime, .oddNeighbours: ["a"]
            case .several: ["a", "b"]
            }
        }
    }

    /// Everything that is not read.
    private enum Rest: CaseIterable {
        case none, sound, odd

        private static let names = [
            "createTime", "lastEventTime", "buyerAddress", "total", "tax", "developerRevenueInBuyerCurrency",
            "orderDetails", "orderHistory", "pointsDetails", "salesChannel", "neverHeardOf",
        ]

        var members: [String] {
            switch self {
            case .none: []
            case .sound:
                [
                    #""createTime":"2026-03-01T08:00:00Z""#, #""total":{"currencyCode":"EUR","units":"9"}"#,
                    #""orderHistory":{"processedEvent":{"eventTime":"2026-03-01T08:00:00Z"}}"#,
                    #""salesChannel":"IN_APP""#, #""orderDetails":{"taxInclusive":true}"#,
                ]
            case .odd: Self.names.map { "\"\($0)\":[null,1e999]" }
            }
        }
    }

    /// What an order leads to.
    private enum Right: Equatable {
        case purchase, unreadable
        /// An order of something that has no token.
        case nothing
        /// No order at all.
        case fault
    }

    private static func right(id: Text, token: Text) -> Right {
        switch token {
        case .sound: .purchase
        case .number, .object: .unreadable
        case .missing: id == .missing ? .fault : .nothing
        case .null, .empty: .nothing
        }
    }

    @Test("every combination of an order's optional members leads to what the table says")
    func table() throws {
        var count = 0
        for id in Text.allCases {
            for token in Text.allCases {
                for state in Text.allCases {
                    for items in Items.allCases {
                        for rest in Rest.allCases {
                            count += 1
                            let members: [(String, String?)] = [
                                ("orderId", id.json("GPA.9")), ("purchaseToken", token.json("tok")),
                                ("state", state.json("PROCESSED")),
                                ("lineItems", items == .missing ? nil : items.rawValue),
                            ]
                            let told = members.compactMap { name, value in value.map { "\"\(name)\":\($0)" } }
                            let body = "{\((told + rest.members).joined(separator: ","))}"
                            let right = Self.right(id: id, token: token)
                            let order: GooglePlayOrder?
                            do throws(JSONFault) {
                                order = try GooglePlayOrder(Array(body.utf8), asked: Self.asked)
                            } catch {
                                #expect(right == .fault, "\(body)")
                                continue
                            }
                            let found: Right =
                                order == nil ? .nothing : order?.purchaseToken == nil ? .unreadable : .purchase
                            #expect(found == right, "\(body)")
                            guard let order else { continue }
                            #expect(order.id == (id == .sound ? "GPA.9" : Self.asked), "\(body)")
                            #expect(order.state == (state == .sound ? "PROCESSED" : ""), "\(body)")
                            #expect(order.productIDs == items.right, "\(body)")
                        }
                    }
                }
            }
        }
        #expect(count == 6_480)
    }

    @Test("an order whose token can't be read is known by its number alone")
    func oddToken() async throws {
        let play = FakePlay()
        play.on("/orders/\(Self.asked)", 200, #"{"orderId":"\#(Self.asked)","purchaseToken":[]}"#)
        let order = try #require(try await play.client().order(Self.asked, lane: .restore))
        #expect(order.purchaseToken == nil && Set(order.identifiers.map(\.kind)) == ["order_id"])
    }

    @Test("what is no order is a failure", arguments: ["", "{}", "[]", "<html>", #"{"purchaseToken":"tok""#])
    func faults(_ body: String) async throws {
        let play = FakePlay()
        play.on("/orders/\(Self.asked)", 200, body)
        await #expect(throws: ReadFailure(.malformed, store: .googlePlay)) {
            try await play.client().order(Self.asked, lane: .restore)
        }
    }
}
