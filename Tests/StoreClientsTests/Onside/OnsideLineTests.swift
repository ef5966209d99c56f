import Entitlements
import Foundation
import Testing

@testable import StoreClients

/// What the transactions of a line come to.
@Suite struct OnsideLineTests {
    private static let now = Instant(microseconds: 1_790_000_000_000_000)
    private static let day = Duration.seconds(86_400)

    private static func written(_ days: Int) -> String {
        Date(timeIntervalSince1970: 1_790_000_000 + Double(days) * 86_400).formatted(.iso8601)
    }

    private static func id(_ number: Int) -> String { "00000000-0000-4000-8000-00000000000\(number)" }

    /// A transaction; times are days from now.
    private func transaction(
        _ number: Int = 1,
        purchased: Int = -10,
        expires: Int? = nil,
        revoked: Int? = nil,
        subscription: String? = nil,
        product: String = "premium",
        type: String = "NON_CONSUMABLE",
        token: String? = "user-1",
        fetched: Int = 0
    ) throws -> OnsideTransaction {
        let members: [String: Any?] = [
            "order_id": Self.id(number), "original_order_id": Self.id(1), "bundle_id": "app", "product_id": product,
            "product_type": type, "purchase_date": Self.written(purchased),
            "original_purchase_date": Self.written(-40), "fetched_at": Self.written(fetched),
            "expires_at": expires.map(Self.written), "revocation_date": revoked.map(Self.written),
            "subscription_id": subscription, "app_account_token": token,
        ]
        let payload = try JSONSerialization.data(withJSONObject: [
            "transactions": [members.mapValues { $0 ?? NSNull() }]
        ])
        return try #require(try OnsideHistory(payload: Array(payload)).transactions.first)
    }

    private func observe(_ transactions: OnsideTransaction...) -> Observation? {
        var query = OnsideBench.query()
        query.askedAt = Self.now
        let lines = OnsideLine.lines(of: transactions, query)
        #expect(lines.count <= 1)
        return lines.first?.observation
    }

    @Test func `every line has exactly one row`() {
        for latest in OnsideStanding.allCases {
            for earlier in OnsideLineRule.Earlier.allCases {
                let rows = onsideLineRules.filter {
                    $0.latest == latest && ($0.earlier == nil || $0.earlier == earlier)
                }
                #expect(rows.count == 1, "\(latest) \(earlier)")
            }
        }
    }

    @Test func `every status has a row, and nothing but 200 is read`() {
        for status in 200...599 { #expect(onsideAnswerRules.contains { $0.statuses.contains(status) }) }
        #expect((0...700).filter { OnsideAnswer(status: $0) == .content } == [200])
    }

    @Test func `a period that goes on gives access until its end`() throws {
        let observation = try #require(observe(transaction(expires: 20, subscription: "grp")))
        #expect(observation.kind == .subscription && observation.status.raw == "active")
        #expect(observation.givesAccess == true && observation.renewal == nil)
        #expect(observation.periodEndsAt == Self.now + Self.day * 20)
        #expect(observation.periodStartsAt == Self.now + Self.day * -10)
        #expect(observation.boughtAt == Self.now + Self.day * -40 && observation.statedAt == Self.now)
        #expect(observation.source == .onside && observation.store == "onside")
        #expect(observation.environment == "production" && observation.entitlements == ["onside:premium"])
        #expect(observation.productID == "premium" && observation.lookupID == Self.id(1))
        #expect(observation.owner == .unnamed && observation.accountID == "user-1")
        #expect(observation.payloadHash == observation.factsHash && !observation.payloadHash.isEmpty)
    }

    @Test(arguments: [0, -1])
    func `a period that is over gives none`(expires: Int) throws {
        let observation = try #require(observe(transaction(expires: expires)))
        #expect(observation.status.raw == "expired" && observation.givesAccess == false)
    }

    @Test func `what never ends is owned`() throws {
        let observation = try #require(observe(transaction()))
        #expect(observation.kind == .oneTime && observation.status.raw == "owned")
        #expect(observation.givesAccess == nil && observation.periodEndsAt == nil)
    }

    @Test(arguments: [-1, 0])
    func `what was taken back gives nothing`(revoked: Int) throws {
        let lifetime = try #require(observe(transaction(revoked: revoked)))
        #expect(lifetime.kind == .oneTime && lifetime.status.raw == "refunded" && lifetime.givesAccess == nil)
        let subscription = try #require(observe(transaction(expires: 20, revoked: revoked)))
        #expect(subscription.kind == .subscription && subscription.status.raw == "refunded")
        #expect(subscription.givesAccess == false)
    }

    @Test func `what will be taken back gives access until then`() throws {
        #expect(try #require(observe(transaction(expires: 20, revoked: 1))).givesAccess == true)
    }

    @Test func `a subscription without an end makes no sense`() throws {
        #expect(observe(try transaction(subscription: "grp")) == nil)
        #expect(observe(try transaction())?.status.raw == "owned")
        #expect(observe(try transaction(revoked: -1, subscription: "grp"))?.status.raw == "refunded")
    }

    @Test func `consumables are left out`() throws {
        #expect(observe(try transaction(type: "CONSUMABLE")) == nil)
        #expect(observe(try transaction(type: "SOMETHING_NEW"))?.status.raw == "owned")
    }

    @Test func `without a token nobody can be told to own it`() throws {
        for token in [nil, ""] {
            let observation = try #require(observe(transaction(token: token)))
            #expect(observation.owner == .unattributable && observation.accountID == nil)
        }
    }

    @Test func `the latest purchase speaks for a line, in whatever order it is told`() throws {
        let old = try transaction(1, purchased: -40, expires: 300)
        let new = try transaction(2, purchased: -10, expires: -1, product: "other")
        let observation = try #require(observe(old, new))
        #expect(observation.status.raw == "expired" && observation.productID == "other")
        #expect(observation.identifiers.map(\.value) == [Self.id(1), Self.id(2)])
        #expect(observation.identifiers.allSatisfy { $0.kind == "store_id" && $0.store == "onside" })
        #expect(observe(new, old) == observation)
    }

    @Test func `a revoked renewal leaves an earlier period that still runs, and no other`() throws {
        let revoked = try transaction(3, purchased: -1, expires: 30, revoked: 0)
        let running = try transaction(2, purchased: -20, expires: 5)
        let over = try transaction(2, purchased: -20, expires: -5)
        let both = try #require(observe(revoked, running))
        #expect(both.status.raw == "active" && both.periodEndsAt == Self.now + Self.day * 5)
        #expect(observe(revoked, over)?.status.raw == "refunded")
        #expect(observe(revoked, try transaction(2, purchased: -20, expires: 5, revoked: -1))?.status.raw == "refunded")
        #expect(observe(revoked, try transaction(2, purchased: -20, subscription: "g")) == nil)
    }

    @Test func `of two statements on one order the newer one counts`() throws {
        let before = try transaction(expires: 5, fetched: -1)
        let after = try transaction(expires: 30)
        let expected = Self.now + Self.day * 30
        #expect(observe(before, after)?.periodEndsAt == expected && observe(after, before)?.periodEndsAt == expected)
        let same = try transaction(expires: 30, revoked: -1)
        #expect(observe(after, same)?.status.raw == "refunded" && observe(same, after)?.status.raw == "refunded")
    }

    @Test func `the same facts have the same hash, whenever they were stated`() throws {
        let today = try #require(observe(transaction(expires: 20)))
        let yesterday = try #require(observe(transaction(expires: 20, fetched: -1)))
        #expect(today.payloadHash == yesterday.payloadHash && today.statedAt != yesterday.statedAt)
        #expect(try #require(observe(transaction(expires: 21))).payloadHash != today.payloadHash)
    }
}
