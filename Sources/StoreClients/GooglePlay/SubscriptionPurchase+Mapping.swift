import Entitlements

/// One row of the table of states.
struct SubscriptionStateRule: Sendable {
    enum Access: Sendable {
        case yes
        /// While an item's period runs.
        case untilExpiry
        case no
    }

    var state: SubscriptionPurchase.State
    var access: Access
    /// The domain's words, with access and without; `nil`: no observation at all.
    var word: String?
    var wordWithoutAccess: String?

    init(_ state: SubscriptionPurchase.State, _ access: Access, _ word: String?, _ wordWithoutAccess: String?) {
        self.state = state
        self.access = access
        self.word = word
        self.wordWithoutAccess = wordWithoutAccess
    }
}

/// Every state, whether it gives access, and the domain's word for it.
let subscriptionStateRules: [SubscriptionStateRule] = [
    //                    state           access        word with, and without access
    // Also with a period that is over: renewal takes a day or two, of which nothing is said.
    SubscriptionStateRule(.active, .yes, "active", "active"),
    SubscriptionStateRule(.inGracePeriod, .yes, "in_grace_period", "in_grace_period"),
    SubscriptionStateRule(.canceled, .untilExpiry, "active", "expired"),
    SubscriptionStateRule(.onHold, .no, "in_billing_retry", "in_billing_retry"),
    SubscriptionStateRule(.paused, .no, "paused", "paused"),
    SubscriptionStateRule(.expired, .no, "expired", "expired"),
    SubscriptionStateRule(.pending, .no, "incomplete", "incomplete"),
    SubscriptionStateRule(.pendingCanceled, .no, nil, nil),
    // Google's own word for not knowing: as unknown as a word we have not met.
    SubscriptionStateRule(
        .unspecified,
        .no,
        SubscriptionPurchase.State.unspecified.rawValue,
        SubscriptionPurchase.State.unspecified.rawValue
    ),
]

extension SubscriptionPurchase {
    /// How long renewal may take without a word: for so long an add-on whose period is over counts as running.
    private static let silentGrace = Duration.seconds(48 * 3600)
    private static let acknowledgementTime = Duration.seconds(3 * 86_400)
    /// License testers are not made to wait.
    private static let testAcknowledgementTime = Duration.seconds(180)
    private static let week: Int64 = 7 * 86_400 * 1_000_000

    private var rule: SubscriptionStateRule? {
        state.flatMap { state in subscriptionStateRules.first { $0.state == state } }
    }

    /// The items that give access now.
    func grantingItems(at now: Instant) -> [Item] {
        let promised = Set(items.compactMap(\.replacement))
        let owned = items.filter { item in
            // What a plan will be replaced with is listed beside it, and is nobody's yet.
            item.orderID != nil || !promised.contains(item.productID ?? "")
        }
        switch rule?.access {
        case .yes:
            // While one item runs, another whose period has long been over was let go.
            let runs = owned.contains { $0.expiresAt.map { $0 > now } ?? true }
            return owned.filter { item in !runs || item.expiresAt.map { $0 + Self.silentGrace > now } ?? true }
        case .untilExpiry: return owned.filter { item in item.expiresAt.map { $0 > now } ?? false }
        case .no, nil: return []
        }
    }

    /// Turns the purchase into what the domain reasons about.
    ///
    /// - Parameters:
    ///   - token: its purchase token.
    ///   - lineage: the tokens of the purchases that it replaced, its own among them.
    ///   - now: the database's time at which it was asked for.
    /// - Returns: `nil` for a purchase that was given up before it was paid.
    func observation(token: String, lineage: [String], at now: Instant) -> Observation? {
        let granting = grantingItems(at: now)
        let givesAccess = !granting.isEmpty
        let word: String
        if let rule {
            guard let known = givesAccess ? rule.word : rule.wordWithoutAccess else { return nil }
            word = state == .expired && isReplaced ? "replaced" : known
        } else {
            word = stateText
        }
        let told = granting.isEmpty ? items : granting
        let best = told.max { left, right in
            (left.expiresAt?.microseconds ?? .min) < (right.expiresAt?.microseconds ?? .min)
        }
        let environment = isTest ? "sandbox" : "production"
        var observation = Observation(
            kind: .subscription,
            store: Store.googlePlay.rawValue,
            environment: environment,
            identifiers: identifiers(lineage, environment: environment),
            productID: best?.productID,
            entitlements: Set(told.compactMap(\.entitlement)).sorted(),
            status: StoreStatus(word),
            givesAccess: givesAccess,
            isPaymentPending: state == .pending,
            renewal: best.map { $0.willRenew ? "will_renew" : "will_not_renew" },
            periodStartsAt: startedAt,
            periodEndsAt: told.compactMap(\.expiresAt).max(),
            owner: .nobody,
            source: .googlePlay,
            accountID: accountID ?? expiredAccountID,
            lookupID: token,
            boughtAt: startedAt,
            acknowledgement: acknowledgement(token, givesAccess: givesAccess, at: now),
            resumesAt: state == .paused ? resumesAt : nil
        )
        observation.payloadHash = observation.factsHash
        return observation
    }

    private func identifiers(_ lineage: [String], environment: String) -> [PurchaseIdentifier] {
        let orders = items.map(\.orderID) + [latestOrderID]
        return googlePlayIdentifiers(
            tokens: lineage + [expiredToken].compactMap(\.self),
            orders: orders.compactMap(\.self),
            environment: environment
        )
    }

    /// What Google waits for; `nil` where it waits for nothing, or nothing can be acknowledged yet.
    ///
    /// Google's advice speaks of active subscriptions. Whoever cancels the renewal within the first days has paid all the
    /// same, and would be refunded and cut off: such a sale waits as well while it gives access.
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
    var willRenew: Bool { !isPrepaid && (isAutoRenewing || replacement != nil) }
}

/// The names of a purchase.
///
/// - Parameters:
///   - tokens: purchase tokens.
///   - orders: order numbers; a renewal's is named with and without its `..N`, as either may be told elsewhere.
///   - environment: `production` or `sandbox`.
/// - Returns: each name once.
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
    static func isPlausible(_ text: String) -> Bool {
        (1...255).contains(text.utf8.count) && text.utf8.allSatisfy { (0x21...0x7E).contains($0) }
    }

    /// The number of the first order.
    static func base(_ text: String) -> String {
        guard let dots = text.lastRange(of: "..") else { return text }
        let number = text[dots.upperBound...]
        guard dots.lowerBound > text.startIndex, !number.isEmpty,
            number.utf8.allSatisfy({ (0x30...0x39).contains($0) })
        else { return text }
        return String(text[..<dots.lowerBound])
    }
}

extension String {
    fileprivate func lastRange(of text: String) -> Range<Index>? { ranges(of: text).last }
}
