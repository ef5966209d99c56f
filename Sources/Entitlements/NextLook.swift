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

    /// Plans the next look; there is no plan where the reading says nothing about it.
    ///
    /// - Parameters:
    ///   - reading: what was read.
    ///   - attributions: whose each item is, in the order of the reading.
    ///   - outcome: what was decided.
    ///   - margin: when a silence counts, where it was put off for that.
    package init?(
        _ reading: Reading,
        _ attributions: [Attribution],
        outcome: Outcome = .unchanged,
        margin: Duration = .seconds(86_400)
    ) {
        let own = zip(reading.observations, attributions)
            .filter { $0.source != .revenueCat && $1.counts }.map(\.0)
        at = own.compactMap { Self.look(at: $0, after: reading.askedAt) }.min()
        guard own.isEmpty else { return }
        // Where only RevenueCat is asked, it says by itself when something changes.
        guard reading.coverage == .full, reading.covered != [.revenueCat] else { return nil }
        if outcome == .deferred { at = reading.askedAt + margin }
    }

    private static func look(at item: Observation, after now: Instant) -> Instant? {
        let isOnside = item.source == .onside
        let standing = standing(of: item.kind, status: item.status, givesAccess: item.givesAccess)
        let soonest = isOnside && standing == .access ? now + longest : nil
        // A payment that is awaited comes within days or not at all.
        if standing == .pending { return now + .seconds(3600) }
        guard let end = item.periodEndsAt, item.kind == .subscription else { return soonest }
        let next = offsets.map { end + $0 }.first { now < $0 }
        return [next, soonest].compactMap(\.self).min()
    }
}
