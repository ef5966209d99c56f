import Entitlements

/// What the store holds, as nobody but the store knows it.
struct StoreTruth: Sendable {
    var items: [StoreItem] = []
    /// Whether lists come the other way round.
    var isTurned = false
    /// RevenueCat is asked with the key of another project, which knows none of these customers.
    var hasOthersKey = false

    static let past = Instant(microseconds: 946_684_800_000_000)
    static let future = Instant(microseconds: 4_102_444_800_000_000)

    /// What a full listing for a user shows.
    func listing(for user: Int) -> [StoreItem] {
        guard !hasOthersKey else { return [] }
        let listed = items.filter { $0.isListed && $0.isAtRevenueCat && $0.isShown(to: user) }
        return isTurned ? listed.reversed() : listed
    }

    mutating func apply(_ change: StoreChange, to index: Int, users: Int) {
        guard items.indices.contains(index) else { return }
        if case .turnLists = change { isTurned.toggle() }
        switch change {
        case .renew: items[index].set("active", true, ends: Self.future, renewal: "will_renew")
        case .announceEnd: items[index].set("active", true, ends: Self.future, renewal: "will_not_renew")
        case .expire: items[index].set("expired", false, ends: Self.past, renewal: items[index].renewal)
        case .refund: items[index].set("refunded", false, ends: Self.past, renewal: nil)
        case .pause: items[index].set("paused", false, ends: nil, renewal: "will_pause")
        case .grace: items[index].set("in_grace_period", true, ends: Self.past, renewal: "will_renew")
        case .billingRetry: items[index].set("in_billing_retry", false, ends: Self.past, renewal: "will_renew")
        case .pend: items[index].set("incomplete", false, ends: nil, renewal: nil)
        case .unknownWord: items[index].set("never_met", false, ends: Self.past, renewal: nil)
        case .unknownWithAccess: items[index].set("never_met", true, ends: Self.future, renewal: nil)
        case .fallSilent: items[index].set("active", false, ends: Self.past, renewal: "will_renew")
        case .vanish: items[index].isListed = false
        case .reappear: items[index].isListed = true
        case .move(let user): items[index].customer = user % users
        case .becomeAnonymous: items[index].customer = nil
        case .share(let user): items[index].shownTo.insert(user % users)
        case .join(let other), .overlap(let other):
            let other = other % items.count
            guard other != index, items[other].environment == items[index].environment,
                items[other].store == items[index].store, !items[other].isAtStore, !items[index].isAtStore
            else { return }
            items[index].names += items[other].names.filter { !items[index].has($0) }
            if case .join = change { items[other].isListed = false }
        case .follow(let other):
            let other = other % items.count
            guard other != index, items[other].environment == items[index].environment,
                items[other].store == items[index].store, !items[other].isAtStore, !items[index].isAtStore,
                let name = items[other].names.last
            else { return }
            if !items[index].has(name) { items[index].names.append(name) }
            items[index].customer = items[other].customer
            items[index].set("active", true, ends: Self.future, renewal: "will_renew")
            items[other].set("expired", false, ends: Self.past, renewal: "will_not_renew")
        case .turnLists: break
        case .register: items[index].isAtRevenueCat = true
        case .becomeFamilyShared: items[index].isFamilyShared = true
        case .becomeGold: items[index].entitlements = ["gold"]
        case .becomeGems: items[index].entitlements = []
        }
    }
}

/// One item at the store.
struct StoreItem: Sendable {
    /// The user whose customer record holds it; nil for an anonymous customer.
    var customer: Int?
    var shownTo: Set<Int> = []
    var names: [String]
    var store = "app_store"
    var environment = "production"
    var isOneTime = false
    var status = "active"
    var access: Bool? = true
    var entitlements = ["premium"]
    var ends: Instant? = StoreTruth.future
    var renewal: String? = "will_renew"
    var isFamilyShared = false
    var isListed = true
    /// Whether the store itself can be asked about it.
    var isAtStore = false
    /// Whether RevenueCat has heard of it.
    var isAtRevenueCat = true
    /// The user whose id the app gave the store.
    var account: Int?

    /// Whether it has a name, byte for byte.
    func has(_ name: String) -> Bool { names.contains { $0.utf8.elementsEqual(name.utf8) } }

    func isShown(to user: Int) -> Bool { customer == user || shownTo.contains(user) }

    mutating func set(_ status: String, _ access: Bool, ends: Instant?, renewal: String?) {
        self.status = isOneTime ? status == "refunded" || status == "incomplete" ? status : "owned" : status
        self.access = isOneTime ? nil : access
        self.ends = isOneTime ? nil : ends
        self.renewal = isOneTime ? nil : renewal
    }

    /// Whether the store says of it, in its own words, that it gives access.
    var saysAccess: Bool { isOneTime ? status == "owned" : access == true }

    var identifiers: [PurchaseIdentifier] {
        names.map { name in
            PurchaseIdentifier(
                value: name,
                store: store,
                environment: environment,
                kind: name.hasPrefix("rc-") ? "revenuecat_id" : "store_id"
            )
        }
    }

    /// The item as its store answers for a user, which knows at most the id that the app gave it.
    func answer(for user: Int) -> Observation {
        var item = observation(for: user)
        item.source = store == "play_store" ? .googlePlay : .appStore
        item.owner = account.map { $0 == user ? .account : .otherAccount(id: userID($0)) } ?? .unnamed
        return item
    }

    /// The item as RevenueCat lists it for a user.
    func observation(for user: Int) -> Observation {
        var observation = Observation(
            kind: isOneTime ? .oneTime : .subscription,
            store: store,
            environment: environment,
            identifiers: identifiers,
            entitlements: entitlements,
            status: StoreStatus(status),
            givesAccess: access,
            ownership: isFamilyShared ? "family_shared" : "purchased",
            owner: customer == user ? .askedUser : customer.map { .otherUser(id: userID($0)) } ?? .anonymous
        )
        observation.productID = "monthly"
        observation.renewal = renewal
        observation.periodEndsAt = ends
        return observation
    }
}
