@testable import Entitlements
import Testing

/// Decisions of the past, made again.
struct ReplayTests {
    @Test func `Under the rules, products and margins of then every decision agrees`() {
        var past = Past.comeback
        past.decide(4, day * 50, .firstAbsence, .deferred, .subscriber, .subscriber)
        past.decide(5, day * 50 + hour, .absenceMargin, .deferred, .subscriber, .subscriber)
        past.decide(6, day * 52, .absenceConfirmed, .demoted, .subscriber, .free)
        past.decide(7, day * 53, .notEligible, .notEligible, .free, .free, isRead: false)
        past.decide(8, day * 54, .accountGone, .notEligible, nil, nil, isRead: false)
        #expect(past.replay() == Array(repeating: .agrees, count: 8))
    }

    @Test func `A product that gives no access today changes whoever had it, and nobody else`() throws {
        let results = Past.comeback.replay(ProductCatalog(["premium": false]))
        guard case .differs(let first) = results[0], case .differs(let last) = results[2] else {
            Issue.record("\(results)")
            return
        }
        #expect(first.outcome == "unchanged" && first.rule == "no_access" && first.typeAfter == .free)
        #expect(first.why.contains("premium"))
        #expect(last.outcome == "nothing_to_restore" && last.typeAfter == .free)
        guard case .differs(let lapse) = results[1] else {
            Issue.record("\(results)")
            return
        }
        #expect(lapse.outcome == "deferred", "what could never give access has not ended")
    }

    @Test func `A reading that stopped at its yes decides nothing once the yes is gone`() {
        var past = Past()
        let paid = item("active", access: true, ends: day)
        past.decide(1, .zero, .storeAccess, .promoted, .free, .subscriber, coverage: .partial, (7, "new", paid))
        past.line(7, since: .zero)
        #expect(past.replay() == [.agrees])
        guard case .differs(let now)? = past.replay(ProductCatalog(["premium": false])).first else {
            Issue.record("it agrees")
            return
        }
        #expect(now.outcome == nil && now.rule == "incomplete" && now.typeAfter == .free)
        guard case .differs(let unmapped)? = past.replay(ProductCatalog([:])).first else {
            Issue.record("it agrees")
            return
        }
        #expect(unmapped.rule == "incomplete" || unmapped.rule == "product_unmapped")
        #expect(unmapped.why.contains("not in the table"))
    }

    @Test func `A wider margin of today keeps whom yesterday's demoted`() {
        var past = Past.comeback
        past.decide(4, day * 50, .firstAbsence, .deferred, .subscriber, .subscriber)
        past.decide(5, day * 52, .absenceConfirmed, .demoted, .subscriber, .free)
        let wide = DecisionSettings(mode: .full, absenceMargin: day * 3)
        guard case .differs(let now)? = past.replay(catalog, wide).last else {
            Issue.record("it agrees")
            return
        }
        #expect(now.rule == "absence_margin" && now.outcome == "deferred" && now.typeAfter == .subscriber)
    }

    @Test(arguments: [Rule.promoteOnly, .demotionsPaused, .brake, .proposed])
    func `What people held back agrees with the demotion that it was`(rule: Rule) {
        var past = Past()
        let paid = item("active", access: true, ends: day)
        past.decide(1, .zero, .storeAccess, .promoted, .free, .subscriber, (7, "new", paid))
        let over = item("expired", access: false, ends: day)
        past.decide(2, day * 2, rule, .deferred, .subscriber, .subscriber, (7, "own", over))
        past.line(7, since: .zero)
        // Switches of today are left out as well.
        let switched = DecisionSettings(mode: .promoteOnly, demotionsPaused: true)
        #expect(past.replay(catalog, switched) == [.agrees, .agrees])
        past.history.items[1].observation?.givesAccess = true
        guard case .differs? = past.replay().last else {
            Issue.record("nothing was held back from who has access")
            return
        }
    }

    @Test func `Grants count by the clock of then`() {
        var past = Past()
        past.history.grants = [PastGrant(id: 1, createdAt: noon - hour, until: noon + day, revokedAt: noon + hour)]
        past.decide(1, .zero, .grantAccess, .promoted, .free, .subscriber, isRead: false)
        past.decide(2, hour * 2, .firstAbsence, .deferred, .subscriber, .subscriber)
        #expect(past.replay() == [.agrees, .agrees])
    }

    @Test func `Assets that came back made a restoration of a subscriber's restore`() {
        var past = Past()
        let paid = item("active", access: true, ends: day)
        past.decide(1, .zero, .storeAccess, .restored, .subscriber, .subscriber, kind: .restore, (7, "new", paid))
        past.line(7, since: .zero)
        #expect(past.replay() == [.agrees])
    }

    @Test func `Without its readings a decision cannot be made again`() {
        var past = Past.comeback
        past.decide(4, day * 50, .storeAccess, .unchanged, .subscriber, .subscriber, isRead: false)
        #expect(past.replay().last == .unreplayable(.readingsMissing))
        past.history.isCut = true
        #expect(Set(past.replay()) == [.unreplayable(.historyTooLong)])
    }

    @Test func `Where a purchase of then has no reading on record no difference is claimed`() {
        var past = Past()
        past.line(9, since: .zero - day)
        // It was that purchase which had ended.
        past.decide(1, .zero, .storeEnded, .demoted, .subscriber, .free)
        #expect(past.replay() == [.unreplayable(.ledgerIncomplete)])
    }

    @Test func `Who was unexplained stays so, whatever was seen later`() {
        var past = Past()
        past.decide(1, .zero, .unexplained, .deferred, .subscriber, .subscriber)
        let badge = item("active", access: true, entitlements: ["badge"], ends: day)
        past.decide(2, hour, .unexplained, .deferred, .subscriber, .subscriber, (7, "new", badge))
        past.decide(3, hour * 2, .unexplained, .deferred, .subscriber, .subscriber, (7, "own", badge))
        past.line(7, since: hour)
        #expect(past.replay() == [.agrees, .agrees, .agrees])
    }

    @Test func `An entitlement detached at the store stays known over further readings`() {
        var past = Past()
        let paid = item("active", access: true, ends: day * 30)
        past.decide(1, .zero, .storeAccess, .promoted, .free, .subscriber, (7, "new", paid))
        let badge = item("active", access: true, entitlements: ["badge"], ends: day * 30)
        past.decide(2, hour, .entitlementDetached, .deferred, .subscriber, .subscriber, (7, "own", badge))
        past.decide(3, hour * 2, .entitlementDetached, .deferred, .subscriber, .subscriber, (7, "own", badge))
        past.line(7, since: .zero)
        #expect(past.replay() == [.agrees, .agrees, .agrees])
    }

    @Test func `A subscriber set again by the host was explained before`() {
        var past = Past()
        past.decide(1, .zero, .storeAccess, .promoted, .free, .subscriber, (7, "new", paid))
        past.follow(7, day * 3, as: 2)
        past.decide(3, day * 4, .movedAway, .demoted, .subscriber, .free)
        past.decide(4, day * 5, .firstAbsence, .deferred, .subscriber, .subscriber)
        past.decide(5, day * 9, .unexplained, .deferred, .subscriber, .subscriber)
        #expect(past.replay() == [.agrees, .agrees, .agrees, .agrees])
    }

    @Test func `What was decided about another user in the same transaction was not seen`() {
        var past = Past()
        past.decide(1, .zero, .storeAccess, .promoted, .free, .subscriber, (7, "new", paid))
        // Numbered before, and written with it.
        past.follow(7, day * 3, as: 2)
        past.decide(3, day * 3, .firstAbsence, .deferred, .subscriber, .subscriber)
        #expect(past.replay() == [.agrees, .agrees])
        #expect(past.state(day * 3).purchases.map(\.owner) == [.anotherUser])
    }

    private var paid: Observation { item("active", access: true, ends: day) }
}

extension Past {
    /// Adds that RevenueCat named another user for a purchase, by that user's decision.
    fileprivate mutating func follow(_ purchase: Int64, _ at: Duration, as decision: Int64) {
        guard var followed = history.items.first(where: { $0.purchase == purchase }) else { return }
        (followed.decision, followed.userKey, followed.recordedAt) = (decision, 2, noon + at)
        followed.askedAt = noon + at - .milliseconds(10)
        followed.attribution = "owner_followed_revenuecat"
        history.items.append(followed)
        line(purchase, owner: 2, since: at)
    }
}
