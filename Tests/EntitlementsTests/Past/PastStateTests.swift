@testable import Entitlements
import Testing

/// How a user stood at a moment, rebuilt from what was written down.
struct PastStateTests {
    @Test func `Before the lapse, after it, and after the comeback each moment has its own state`() throws {
        let past = Past.comeback
        let before = past.state(day)
        #expect(before.type == .subscriber && before.verdict?.id == 1 && before.unknowns.isEmpty)
        let held = try #require(before.purchases.first)
        let row = held.purchase
        #expect(held.owner == .thisUser && row.status.raw == "active" && row.givesAccess == true)
        #expect(row.accessState == .access && row.periodEndsAt == noon + day && held.productID == "monthly")
        #expect(before.readAt == noon - .milliseconds(20))

        let lapsed = past.state(day * 5)
        #expect(lapsed.type == .free && lapsed.verdict?.rule == "store_ended")
        #expect(
            lapsed.purchases.map(\.purchase.status.raw) == ["expired"]
                && lapsed.purchases.map(\.purchase.accessState) == [.ended]
        )

        let back = past.state(day * 11)
        #expect(back.type == .subscriber && back.purchases.map(\.purchase.periodEndsAt) == [noon + day * 40])
        // The very moment of a decision belongs to it.
        #expect(past.state(day * 2).type == .free)
        #expect(past.state(day * 2 - .milliseconds(1)).type == .subscriber)
    }

    @Test func `Before the first decision nothing is known but what that one found`() {
        let state = Past.comeback.state(.zero - hour)
        #expect(state.type == nil && state.verdict == nil && state.purchases.isEmpty)
        guard case .undecided(let next?)? = state.unknowns.first else {
            Issue.record("\(state.unknowns)")
            return
        }
        #expect(next.id == 1)
        #expect(Past().state(.zero).unknowns == [.undecided(next: nil)])
    }

    @Test func `Grants are in force from when they are given until they end or are revoked`() {
        var past = Past.comeback
        past.history.grants = [
            PastGrant(id: 1, createdAt: noon + day, until: noon + day * 3),
            PastGrant(id: 2, createdAt: noon + day * 2, until: noon + day * 9, revokedAt: noon + day * 4),
        ]
        func ids(_ at: Duration) -> [Int64] { past.state(at).grants.map(\.id) }
        #expect(ids(hour) == [] && ids(day) == [1] && ids(day * 2) == [1, 2] && ids(day * 3) == [2])
        #expect(ids(day * 4) == [])
    }

    @Test func `What was only observed leaves the type as the application had it`() {
        var past = Past()
        let paid = item("active", access: true, ends: day)
        past.decide(1, .zero, .storeAccess, .promoted, .free, .subscriber, observed: true, (7, "new", paid))
        #expect(past.state(hour).type == .free)
        #expect(past.state(hour).purchases.map(\.purchase.givesAccess) == [true])
    }

    @Test func `A type that others changed is said to be unknown between the two decisions`() {
        var past = Past.comeback
        past.decide(4, day * 20, .notEligible, .notEligible, .free, .free, isRead: false)
        #expect(
            past.state(day * 15).unknowns == [
                .changedByOthers(after: noon + day * 10, before: noon + day * 20, to: .free)
            ]
        )
        #expect(past.state(day * 21).type == .free)
        #expect(past.state(day * 21).unknowns.isEmpty)
    }

    @Test func `A purchase that support moved is another user's from then on`() {
        var past = Past.comeback
        past.history.transfers = [PastTransfer(at: noon + day * 11, purchase: 7, from: Scene.userKey, to: 2)]
        past.history.lineages = []
        past.line(7, owner: 2, since: day * 11, transferred: day * 11)
        #expect(past.state(day * 10).purchases.map(\.owner) == [.thisUser])
        #expect(past.state(day * 12).purchases.map(\.owner) == [.anotherUser])
    }

    @Test func `What came from another user is theirs before, and another row's items are its own`() {
        var past = Past()
        var before = PastItem(
            decision: 1,
            recordedAt: noon,
            userKey: 2,
            askedAt: noon,
            coverage: .full
        )
        before.purchase = 7
        before.attribution = "new"
        before.observation = item("active", access: true, ends: day)
        past.history.items = [before]
        let paid = item("active", access: true, ends: day * 3)
        past.decide(
            2,
            day,
            .ownerFollowedRevenuecat,
            .promoted,
            .free,
            .subscriber,
            (7, "owner_followed_revenuecat", paid)
        )
        past.line(7, since: day)
        #expect(past.state(hour).purchases.map(\.owner) == [.anotherUser])
        #expect(past.state(day).purchases.map(\.owner) == [.thisUser])
    }

    @Test func `Rows that became one are one from when the other is read without them`() {
        var past = Past()
        let old = item("active", access: true, ends: day)
        past.decide(1, .zero, .storeAccess, .promoted, .free, .subscriber, (7, "new", old), (8, "new", old))
        past.decide(2, hour, .storeAccess, .unchanged, .subscriber, .subscriber, (7, "own", old))
        past.line(7, since: .zero)
        past.line(8, since: .zero, mergedInto: 7)
        #expect(past.state(.zero).purchases.count == 2)
        #expect(past.state(hour).purchases.count == 1)
    }

    @Test func `An absence is noted by the first full reading without access, and forgotten with access`() {
        var past = Past.comeback
        past.decide(4, day * 50, .firstAbsence, .deferred, .subscriber, .subscriber)
        past.decide(5, day * 51, .absenceMargin, .deferred, .subscriber, .subscriber)
        let since = noon + day * 50 - .milliseconds(20)
        #expect(past.state(day * 50).absentSince == since && past.state(day * 51).absentSince == since)
        let paid = item("active", access: true, ends: day * 90)
        past.decide(6, day * 52, .storeAccess, .unchanged, .subscriber, .subscriber, (7, "own", paid))
        #expect(past.state(day * 52).absentSince == nil)
    }

    @Test func `What is not on record is said`() {
        var past = Past.comeback
        past.line(9, since: day)
        past.history.isCut = true
        #expect(past.state(hour).unknowns == [.cut])
        #expect(past.state(day * 3).unknowns == [.unreadPurchases(1), .cut])
        past.decide(4, day * 50, .storeAccess, .unchanged, .subscriber, .subscriber, isRead: false)
        #expect(past.state(day * 51).unknowns == [.unreadPurchases(1), .cut], "what was left out is not missing")
        past.history.isCut = false
        #expect(past.state(day * 51).unknowns.contains(.readingsMissing(1)))
    }
}
