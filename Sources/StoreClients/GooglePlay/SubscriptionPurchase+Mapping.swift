import Entitlements
import TextFormats

/// When a state gives access.
enum SubscriptionAccess: Sendable {
    case yes
    /// While an item's period runs.
    case untilExpiry
    case no
}

/// One row of the table of states, with the domain's words with access and without; `nil`: no observation at all.
typealias SubscriptionStateRule = (
    state: SubscriptionPurchase.State, access: SubscriptionAccess, word: String?, wordWithoutAccess: String?
)

/// Every state, whether it gives access, and the domain's word for it.
let subscriptionStateRules: [SubscriptionStateRule] = [
    // state  access  word with, and without access
    // Also with a period that is over: renewal takes a day or two, of which nothing is said.
    (.active, .yes, "active", "active"),
    (.inGracePeriod, .yes, "in_grace_period", "in_grace_period"),
    (.canceled, .untilExpiry, "active", "expired"),
    (.onHold, .no, "in_billing_retry", "in_billing_retry"),
    (.paused, .no, "paused", "paused"),
    (.expired, .no, "expired", "expired"),
    (.pending, .no, "incomplete", "incomplete"),
    (.pendingCanceled, .no, nil, nil),
    // Google's own word for not knowing: as unknown as a word we have not met.
    (.unspecified, .no, "SUBSCRIPTION_STATE_UNSPECIFIED", "SUBSCRIPTION_STATE_UNSPECIFIED"),
]

/// What one item of a subscription is worth by itself, in a state that gives access.
enum SubscriptionItemStanding: Hashable, Sendable, CaseIterable {
    /// It gives access.
    case gives
    /// It has not ended by a word of Google's: its renewal is late, or its end is missing. It gives nothing; a
    /// user who has access by it keeps it for the margin.
    case late
    /// Its own period is over, and no next one comes.
    case over
    /// It is scheduled: no user owns it yet.
    case scheduled
    /// Whether it gives access can't be read.
    case unreadable
}

extension SubscriptionPurchase {
    private static let acknowledgementTime = Duration.seconds(3 * 86_400)
    /// License testers are not made to wait.
    private static let testAcknowledgementTime = Duration.seconds(180)
    private static let week: Int64 = 7 * 86_400 * 1_000_000

    private var rule: SubscriptionStateRule? {
        state.flatMap { state in subscriptionStateRules.first { $0.state == state } }
    }

    private var mayGive: Bool { rule.map { $0.access != .no } ?? false }

    /// Whether something in it may give access, or name an owner, that can't be read.
    func isUnreadable(at now: Instant) -> Bool {
        guard !isOdd else { return true }
        guard mayGive else { return false }
        return items.isEmpty || hasOddItems || items.contains { standing(of: $0, at: now) == .unreadable }
    }

    /// Whether an item is owned; what takes another's place at its next renewal is listed beside it, and has no owner
    /// yet.
    ///
    /// What is owned names its last paid order. A purchase that was never paid, as by a promotion, names none at all.
    func isOwned(_ item: Item) -> Bool {
        if item.orderID != nil || item.isReplacedLater || item.isRemovedLater { return true }
        return !item.isDeferred && items.allSatisfy { $0.orderID == nil && !$0.isReplacedLater }
    }

    /// What an item is worth by itself.
    func standing(of item: Item, at now: Instant) -> SubscriptionItemStanding {
        guard item.productID != nil else { return .unreadable }
        guard isOwned(item) else { return .scheduled }
        let isRunning = item.expiresAt.map { now < $0 }
        switch (rule?.access, isRunning) {
        case (.yes, nil), (.yes, true?), (.untilExpiry, true?): return .gives
        case (.untilExpiry, nil): return item.hasOddEnd ? .unreadable : .late
        case (.untilExpiry, false?): return .over
        case (.yes, false?):
            // The state is that of the item that ends last: it speaks for what is late only where nothing runs.
            let isLast = !items.contains { other in isOwned(other) && other.expiresAt.map { now < $0 } ?? true }
            if isLast { return item.willRenew ? .gives : .late }
            return item.willRenew ? .late : .over
        case (.no, _), (nil, _): return .over
        }
    }

    /// Turns the purchase into what the domain reasons about: what gives access first, then what is late, then what is
    /// over.
    ///
    /// There is none for a purchase that was given up before it was paid, and for what can't be read. The lineage is
    /// the tokens of the purchases that it replaced, its own among them. Items that may grant access end by themselves.
    func observations(
        token: String,
        lineage: [String],
        at now: Instant,
        mayGrant: ([String]) -> Bool = { _ in true }
    ) -> [Observation] {
        guard !isOdd else { return [] }
        let observe = { items, word, givesAccess in
            observation(of: items, word, givesAccess, token: token, lineage: lineage, at: now)
        }
        guard mayGive, let rule, let word = rule.word else {
            guard let word = rule.map(\.wordWithoutAccess) ?? stateText else { return [] }
            return [observe(items, state == .expired && isReplaced ? "replaced" : word, false)]
        }
        let standings = Dictionary(grouping: items) { standing(of: $0, at: now) }
        var observations: [Observation] = []
        let giving = Dictionary(grouping: standings[.gives] ?? []) { mayGrant([$0.entitlement].compactMap(\.self)) }
        for items in [giving[true], giving[false]].compactMap(\.self) {
            observations.append(observe(items, word, true))
        }
        if let late = standings[.late] { observations.append(observe(late, "active", false)) }
        if let over = standings[.over] { observations.append(observe(over, "expired", false)) }
        // A purchase of which nothing is owned yet is there all the same.
        if let scheduled = standings[.scheduled], scheduled.count == items.count {
            observations.append(observe(scheduled, "active", false))
        }
        return observations
    }

    private func observation(
        of items: [Item],
        _ word: String,
        _ givesAccess: Bool,
        token: String,
        lineage: [String],
        at now: Instant
    ) -> Observation {
        let best = items.max { left, right in
            (left.expiresAt?.microseconds ?? .min) < (right.expiresAt?.microseconds ?? .min)
        }
        let environment = isTest ? "sandbox" : "production"
        var observation = Observation(
            kind: .subscription,
            store: Store.googlePlay.rawValue,
            environment: environment,
            identifiers: googlePlayIdentifiers(
                tokens: lineage + [expiredToken].compactMap(\.self),
                orders: (items.map(\.orderID) + [latestOrderID]).compactMap(\.self),
                environment: environment
            ),
            entitlements: Set(items.compactMap(\.entitlement)).sorted(),
            status: StoreStatus(word),
            givesAccess: givesAccess,
            owner: .unnamed,
            source: .googlePlay
        )
        observation.productID = best?.productID
        observation.isPaymentPending = state == .pending
        observation.renewal = best.map { $0.willRenew ? "will_renew" : "will_not_renew" }
        observation.periodStartsAt = startedAt
        observation.periodEndsAt = items.compactMap(\.expiresAt).max()
        observation.accountID = accountID ?? expiredAccountID
        observation.lookupID = token
        observation.boughtAt = startedAt
        observation.acknowledgement = acknowledgement(token, givesAccess: givesAccess, at: now)
        observation.changesAt =
            state == .paused
            ? resumesAt : givesAccess ? items.compactMap(\.expiresAt).filter { now < $0 }.min() : nil
        observation.payloadHash = observation.factsHash
        return observation
    }

    /// What Google waits for; `nil` where it waits for nothing, or nothing can be acknowledged yet.
    ///
    /// Google's advice speaks of active subscriptions. A user who cancels the renewal within the first days has paid
    /// all the same, and would be refunded and cut off: such a sale waits as well while it gives access.
    private func acknowledgement(_ token: String, givesAccess: Bool, at now: Instant) -> Acknowledgement? {
        guard awaitsAcknowledgement, state == .active || state == .canceled && givesAccess,
            let productID = items.lazy.compactMap(\.productID).first
        else { return nil }
        let start = startedAt ?? now
        var deadline = start + (isTest ? Self.testAcknowledgementTime : Self.acknowledgementTime)
        if !isTest, let item = items.first, item.isPrepaid, let end = item.expiresAt, end > start,
            end.microseconds - start.microseconds < Self.week
        {
            deadline = Instant(microseconds: start.microseconds + (end.microseconds - start.microseconds) / 2)
        }
        var sale = Acknowledgement(productID: productID, token: token, kind: .subscription, deadline: deadline)
        // Google takes ids for what was bought in Play alone, and forgets those of the expired purchase with the call.
        if isOutOfApp {
            sale.accountID = accountID ?? expiredAccountID
            sale.profileID = profileID ?? expiredProfileID
        }
        return sale
    }
}

extension SubscriptionPurchase.Item {
    /// The key by which it is mapped to what it gives.
    var entitlement: String? {
        productID.map { "google_play:\($0)" + (basePlanID.map { ":\($0)" } ?? "") }
    }

    /// Whether it goes on after its period, be it as another product.
    var willRenew: Bool { !isPrepaid && !isRemovedLater && (isAutoRenewing || isReplacedLater) }
}

/// The names of a purchase, each once.
///
/// A renewal's order is named with and without its `..N`, as other answers may have either.
func googlePlayIdentifiers(tokens: [String], orders: [String], environment: String) -> [PurchaseIdentifier] {
    var values: [(String, kind: String)] = tokens.map { ($0, "purchase_token") }
    for order in orders where OrderNumber.isPlausible(order) {
        values.append((order, "order_id"))
        values.append((OrderNumber.base(order), "order_id"))
    }
    var seen: Set<String> = []
    return values.filter { seen.insert($0.0).inserted }.map { value, kind in
        PurchaseIdentifier(value: value, store: Store.googlePlay.rawValue, environment: environment, kind: kind)
    }
}

/// Google's numbers of orders, such as `GPA.1234-5678-9012-34567` and, for its first renewal, `GPA.…-34567..0`.
package enum OrderNumber {
    /// Whether an id of Google Play's is the number of an order, and no purchase token.
    package static func isOrder(_ text: String) -> Bool { text.utf8.starts(with: "GPA.".utf8) }

    /// Whether a text may be one: 1 to 255 visible characters of ASCII.
    package static func isPlausible(_ text: String) -> Bool {
        (1...255).contains(text.utf8.count) && text.utf8.allSatisfy(\.isVisible)
    }

    /// The number of the first order.
    package static func base(_ text: String) -> String {
        guard let dots = text.ranges(of: "..").last else { return text }
        let number = text[dots.upperBound...]
        guard dots.lowerBound > text.startIndex, !number.isEmpty, number.utf8.allSatisfy(\.isDigit) else { return text }
        return String(text[..<dots.lowerBound])
    }
}
