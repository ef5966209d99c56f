/// When a user is read again, though no store says that something changed.
package struct ScheduledCheck: Hashable, Sendable {
    /// `nil`: nothing is to be expected any more.
    package var at: Instant?
    /// The account's status decides against the user: there is nothing to read until it changes.
    package var awaitsEligibility = false
    /// Nothing is expected: it is only to find changes that no event named.
    package var isBackground = false

    /// Checks after a period's end: charges are tried again for a day or two, and no schedule is published.
    static let offsets: [Duration] = [
        .seconds(60), .seconds(900), .seconds(3600), .seconds(21_600), .seconds(86_400), .seconds(172_800),
    ]
    /// How long before a period's end it is asked whether it will be renewed; a quarter of shorter periods.
    static let lead = Duration.seconds(86_400)
    /// How long an Onside order that gives access goes unasked, so that a refund is found.
    static let longest = Duration.seconds(86_400)
    /// How long a store goes on trying to charge, or lets people pause without a new purchase.
    static let comeback = Duration.seconds(61 * 86_400)

    package init(at: Instant?) { self.at = at }

    /// Rules that put a demotion off until a person, or the configuration, says otherwise: no reading will.
    package static let untimed: Set<Rule> = [.unexplained, .storeNotAsked, .promoteOnly]

    /// What is known of a user besides a reading.
    package struct Knowledge: Sendable {
        package var grants = false
        package var rule: Rule?
        /// When an event spoke of access, which a reading may not show yet.
        package var accessEventAt: Instant?
        /// When access ends that no store knows of: our own grants', a tester's.
        package var ownEnds: [Instant] = []
        /// When a silence counts, where it was put off for that.
        package var margin = Duration.seconds(86_400)
        /// How long a user may stay unread; `nil`: for as long as nothing is expected.
        package var background: Duration?
        /// Keeps users apart of which the same is known.
        package var jitter = Jitter.none

        package init() {}
    }

    /// Plans the next check; there is no plan where the reading says nothing about it.
    package init?(
        _ reading: Reading,
        _ attributions: [Attribution],
        outcome: Outcome = .unchanged,
        known: Knowledge = Knowledge()
    ) {
        guard outcome != .notEligible else {
            awaitsEligibility = true
            return
        }
        let now = reading.askedAt
        let mine = zip(reading.observations, attributions).filter { $1.mayGiveAccess }.map(\.0)
        // Where the stores were not asked, as RevenueCat's status was enough, the check is for when that is over.
        guard reading.coverage == .full || known.grants || mine.contains(where: { $0.source != .revenueCat }) else {
            return nil
        }
        // What RevenueCat says of a purchase is history where its store has spoken of it.
        let stated = Set(mine.filter { $0.source != .revenueCat }.flatMap { $0.identifiers.map(\.key) })
        let items = mine.filter { $0.source != .revenueCat || stated.isDisjoint(with: $0.identifiers.map(\.key)) }
        var checks = items.map { Self.check(of: $0, after: now, known.jitter) }
        // Items without an owner: another user may become the owner any day, and then they give this user nothing.
        if attributions.contains(where: { $0.mayGiveAccess && !$0.counts }) {
            checks.append(now + known.jitter.lengthened(Self.longest))
        }
        // Many may have been given access until one moment.
        checks += known.ownEnds.map { now < $0 ? $0 + Self.offsets[0] + known.jitter.part(of: .seconds(3600)) : nil }
        // A restore says that access stands where a reconcile would have postponed its end.
        let isPostponed =
            outcome == .deferred || outcome == .alreadySubscriber && !known.grants || known.rule == .unreadableItem
        // Not at the same hour: what a store does every night must not be two silences.
        if isPostponed, known.rule.map(Self.untimed.contains) != true {
            checks.append(now + known.jitter.lengthened(known.margin))
        }
        // Only RevenueCat's readings lag behind its webhooks.
        if !known.grants, reading.covered.contains(.revenueCat) {
            checks.append(known.accessEventAt.flatMap { ReadLag.nextCheck(after: now, at: $0) })
        }
        at = checks.compactMap(\.self).min()
        guard let background = known.background else { return }
        let latest = now + known.jitter.shortened(background)
        isBackground = at.map { latest < $0 } ?? true
        if isBackground { at = latest }
    }

    private static func check(of item: Observation, after now: Instant, _ jitter: Jitter) -> Instant? {
        let isOnside = item.source == .onside
        let accessState = item.accessState
        let soonest = isOnside && accessState == .access ? now + longest : nil
        let changes = item.changesAt.map { $0 + jitter.lengthened(offsets[0]) }.flatMap { now < $0 ? $0 : nil }
        if item.status.known == .scheduled, let changes { return changes }
        // A payment that is awaited comes within days or not at all.
        if accessState == .pending { return now + .seconds(3600) }
        if accessState == .ended, item.status.known == .paused || item.status.known == .inBillingRetry,
            let end = item.periodEndsAt
        {
            // A pause may be ended early, which the store tells; its own end is known.
            let daily = now < end + comeback ? now + longest : nil
            if let soonest = [changes, daily].compactMap(\.self).min() { return soonest }
        }
        guard let end = item.periodEndsAt, item.kind == .subscription else { return soonest }
        let before = accessState == .access ? end - jitter.lengthened(lead(of: item, until: end)) : nil
        let after = offsets.map { end + jitter.lengthened($0) }.first { now < $0 }
        return [before.flatMap { now < $0 ? $0 : nil }, after, soonest, accessState == .access ? changes : nil]
            .compactMap(\.self).min()
    }

    private static func lead(of item: Observation, until end: Instant) -> Duration {
        guard let start = item.periodStartsAt, start < end else { return lead }
        return min(lead, (end - start) / 4)
    }
}

/// Keeps checks apart that would fall on one moment: each user has a place of their own, which stays the same.
package struct Jitter: Hashable, Sendable {
    /// From 0 to below 1.
    private let share: Double

    package static let none = Jitter(share: 0)

    private init(share: Double) { self.share = share }

    /// A user's place; neighbouring keys have places far apart.
    package init(userKey: Int64) {
        // SplitMix64's finalizer: any bit of the key changes about half of the bits of the result.
        var bits = UInt64(bitPattern: userKey) &+ 0x9e37_79b9_7f4a_7c15
        bits = (bits ^ (bits >> 30)) &* 0xbf58_476d_1ce4_e5b9
        bits = (bits ^ (bits >> 27)) &* 0x94d0_49bb_1331_11eb
        bits ^= bits >> 31
        share = Double(bits >> 11) / Double(1 << 53)
    }

    /// The duration, or up to a quarter more.
    func lengthened(_ duration: Duration) -> Duration { duration * (1 + share / 4) }

    /// From nothing to the duration.
    func part(of duration: Duration) -> Duration { duration * share }

    /// The duration, or up to a quarter less.
    func shortened(_ duration: Duration) -> Duration { duration * (1 - share / 4) }
}

/// A store's event that announced access: what is read in the moments after it may not show yet what it announces.
enum ReadLag {
    /// How long a reading without access is not believed.
    static let settles = Duration.seconds(30)
    /// The same where access would be taken away: no user waits for that.
    static let holds = Duration.seconds(120)
    /// Checks after it was believed all the same.
    static let checks: [Duration] = [.seconds(300), .seconds(1800)]

    /// When to check again after a reading without access that began at `now`, given when the event came; `nil`: not any more.
    static func nextCheck(after now: Instant, at: Instant) -> Instant? {
        checks.map { at + $0 }.first { now < $0 }
    }
}
