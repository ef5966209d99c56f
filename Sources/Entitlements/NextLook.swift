/// When a user is looked at again, because no store will say that something changed.
package struct NextLook: Hashable, Sendable {
    /// `nil`: nothing is to be expected any more.
    package var at: Instant?

    /// Looks behind a period's end: charges are tried again for a day or two, and no schedule is published.
    static let offsets: [Duration] = [
        .seconds(60), .seconds(900), .seconds(3600), .seconds(21_600), .seconds(86_400), .seconds(172_800),
    ]
    /// How long an Onside order that gives access goes unasked, so that a refund is found.
    static let longest = Duration.seconds(86_400)
    /// How long a store goes on trying to charge, or lets people pause without a new purchase.
    static let comeback = Duration.seconds(61 * 86_400)

    package init(at: Instant?) { self.at = at }

    /// Plans the next look; there is no plan where the reading says nothing about it.
    ///
    /// - Parameters:
    ///   - reading: what was read.
    ///   - attributions: whose each item is, in the order of the reading.
    ///   - outcome: what was decided.
    ///   - grants: whether the verdict gives access.
    ///   - promisedAt: when an event spoke of access, which a reading may not show yet.
    ///   - margin: when a silence counts, where it was put off for that.
    package init?(
        _ reading: Reading,
        _ attributions: [Attribution],
        outcome: Outcome = .unchanged,
        grants: Bool = false,
        promisedAt: Instant? = nil,
        margin: Duration = .seconds(86_400)
    ) {
        let mine = zip(reading.observations, attributions).filter { $1.counts }.map(\.0)
        let own = mine.filter { $0.source != .revenueCat }
        // Where only RevenueCat is asked, it says by itself when something changes.
        let onlyRevenueCat = reading.covered == [.revenueCat]
        let silence = outcome == .deferred && !onlyRevenueCat ? reading.askedAt + margin : nil
        // Only RevenueCat's readings lag behind what it tells.
        let mayLag = !grants && reading.covered.contains(.revenueCat)
        let promised = !mayLag ? nil : promisedAt.flatMap { Promise.look(after: reading.askedAt, at: $0) }
        if outcome == .notEligible {
            at = nil
        } else if !own.isEmpty {
            at = (own.map { Self.look(at: $0, after: reading.askedAt) } + [silence, promised]).compactMap(\.self).min()
        } else if onlyRevenueCat {
            // Once nothing is promised any more, the look that was planned for it is over.
            guard mayLag, promisedAt != nil else { return nil }
            at = promised
        } else if reading.coverage == .full {
            at = [silence, promised].compactMap(\.self).min()
        } else if grants {
            // The stores were not asked, as RevenueCat's word was enough: it is, until its period ends.
            let end = mine.compactMap(\.periodEndsAt).max().map { $0 + Self.offsets[0] }
            at = end.flatMap { reading.askedAt < $0 ? $0 : nil }
        } else {
            return nil
        }
    }

    private static func look(at item: Observation, after now: Instant) -> Instant? {
        let isOnside = item.source == .onside
        let standing = standing(of: item.kind, status: item.status, givesAccess: item.givesAccess)
        let soonest = isOnside && standing == .access ? now + longest : nil
        // A payment that is awaited comes within days or not at all.
        if standing == .pending { return now + .seconds(3600) }
        if standing == .ended, item.status.known == .paused || item.status.known == .inBillingRetry,
            let end = item.periodEndsAt, now < end + comeback
        {
            return now + longest
        }
        guard let end = item.periodEndsAt, item.kind == .subscription else { return soonest }
        let next = offsets.map { end + $0 }.first { now < $0 }
        return [next, soonest].compactMap(\.self).min()
    }
}
