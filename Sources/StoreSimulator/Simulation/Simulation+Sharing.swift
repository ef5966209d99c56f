/// The App Store and Google Play know what RevenueCat's customers bought there.
///
/// What a store's own part of the scenario lists under the same name stands before it. Found with each request, so that
/// a customer who was changed, or exists only as a pattern, is known as RevenueCat has it.
extension Simulation.State {
    /// Shares with the App Store the purchases of the customer who holds a transaction.
    mutating func shareWithAppStore(_ transaction: String) {
        appStore.shared = []
        guard let holding = holding(transaction) else { return }
        // RevenueCat may have moved it to another customer; the store's account stays the same.
        let owner = holding.owner
        for side in AppStoreSide.allCases {
            let transactions = holding.customer.transactions(of: owner, on: side, self)
            guard !transactions.isEmpty else { continue }
            let scenario = AppStoreCustomerScenario(id: owner, environment: side, transactions: transactions)
            // Changes are counted from the beginning: nothing is kept between two requests.
            var sequence: Int64 = 0
            appStore.shared.append(AppStoreAccount(scenario, nowMs: clock.nowMs, sequence: &sequence))
        }
    }

    /// Shares with Google Play the purchase that an order's number or a token means.
    mutating func shareWithGooglePlay(_ name: String) {
        googlePlay.shared = nil
        let prefix = GooglePlayPurchaseScenario.sharedPrefix
        let order = name.hasPrefix(prefix) ? String(name.dropFirst(prefix.count)) : name
        guard order.hasPrefix("GPA."), let customer = holding(order)?.customer else { return }
        let base = order.split(separator: "..", maxSplits: 1).first.map(String.init) ?? order
        googlePlay.shared = customer.playPurchase(base, self)
            .map { GooglePlayPurchase($0, nowMs: clock.nowMs) }
    }

    /// The customer who holds an item, and the first owner of that.
    private func holding(_ identifier: String) -> (customer: CustomerRecord, owner: String)? {
        if let found = revenueCat.book.subscription(identifier) {
            return (found.customer, found.item.originalCustomerID ?? found.customer.id)
        }
        return revenueCat.book.purchase(identifier)
            .map { ($0.customer, $0.item.originalCustomerID ?? $0.customer.id) }
    }

    /// The lookup keys of an item's entitlements.
    fileprivate func keys(_ positions: [Int]) -> [String] {
        positions.map { revenueCat.book.catalogue.entries[$0].lookupKey }
    }
}

extension CustomerRecord {
    fileprivate func transactions(
        of owner: String,
        on side: AppStoreSide,
        _ state: Simulation.State
    ) -> [AppStoreTransactionScenario] {
        let environment = side == .production ? "production" : "sandbox"
        func isShared(_ item: some ItemRecord) -> Bool {
            item.store == "app_store" && item.environment == environment && item.originalCustomerID ?? id == owner
                && item.isKnownToStore ?? state.scenario.storesKnowPurchases
        }
        return subscriptions.filter(isShared).flatMap {
            $0.settled(at: state.clock.nowMs).transactions(state.keys($0.entitlements))
        }
            + purchases.filter(isShared).compactMap { $0.transaction(state.keys($0.entitlements)) }
    }

    fileprivate func playPurchase(_ order: String, _ state: Simulation.State) -> GooglePlayPurchaseScenario? {
        func isMeant(_ item: some ItemRecord) -> Bool {
            item.store == "play_store"
                && (item.storeIdentifier == order || item.storeIdentifier.hasPrefix(order + ".."))
        }
        if let line = subscriptions.first(where: isMeant) {
            guard line.isKnownToStore ?? state.scenario.storesKnowPurchases else { return nil }
            return line.settled(at: state.clock.nowMs).playPurchase(order, state.keys(line.entitlements))
        }
        guard let item = purchases.first(where: isMeant), item.isKnownToStore ?? state.scenario.storesKnowPurchases
        else { return nil }
        return item.playPurchase(order, state.keys(item.entitlements))
    }
}

extension SubscriptionRecord {
    private var willRenew: Bool { renewal != "will_not_renew" && renewal != "will_pause" }

    /// The line as the App Store has it, its earlier transactions first; empty for what it has no transaction of.
    fileprivate func transactions(_ keys: [String]) -> [AppStoreTransactionScenario] {
        let ids = pastIdentifiers + [storeIdentifier]
        guard ids.allSatisfy(AppStorePath.isID), let original = ids.first else { return [] }
        let state: AppStoreTransactionScenario.State
        switch (status, givesAccess) {
        case ("in_grace_period", _): state = .grace
        case ("in_billing_retry", _): state = .billingRetry
        case (_, true): state = .active
        case ("expired", false): state = .expired
        // Nothing is paused there, and what is not paid has no transaction.
        default: return []
        }
        let product =
            productID.flatMap { $0 == RecordBuilder.productID ? nil : $0 } ?? (keys.first ?? "basic") + "_monthly"
        return ids.enumerated().map { place, id in
            var line = AppStoreTransactionScenario(original: original, product: product, state: state)
            let age = Int64(ids.count - 1 - place)
            line.transaction = id
            line.ownership = ownership.uppercased()
            line.originally = .absolute(milliseconds: startsAtMs)
            line.purchased = .absolute(milliseconds: periodStartsAtMs - age * 30 * TimeText.day)
            line.expires = periodEndsAtMs.map { .absolute(milliseconds: $0) }
            if age > 0 { line.expires = .absolute(milliseconds: periodStartsAtMs - (age - 1) * 30 * TimeText.day) }
            line.autoRenew = willRenew
            if renewal == "requires_price_increase_consent" { line.priceIncrease = 0 }
            return line
        }
    }

    fileprivate func playPurchase(_ order: String, _ keys: [String]) -> GooglePlayPurchaseScenario? {
        let state: GooglePlayPurchaseScenario.State
        switch (status, givesAccess) {
        case ("in_grace_period", _): state = .grace
        case ("in_billing_retry", _): state = .onHold
        case ("paused", false): state = .paused
        case (_, true): state = willRenew || renewal == "will_pause" ? .active : .canceled
        case ("expired", false): state = .expired
        case ("incomplete", false): state = .pending
        default: state = .unknown
        }
        var purchase = GooglePlayPurchaseScenario(shared: order, state: state, renewal: storeIdentifier)
        purchase.product = productID.flatMap { $0 == RecordBuilder.productID ? nil : $0 } ?? Self.product(keys)
        purchase.test = environment == "sandbox"
        purchase.started = .absolute(milliseconds: startsAtMs)
        purchase.expires = periodEndsAtMs.map { .absolute(milliseconds: $0) }
        return purchase
    }

    private static func product(_ keys: [String]) -> String {
        keys.first.map { $0 == "premium" ? "pro" : $0 + "_monthly" } ?? "basic_monthly"
    }
}

extension PurchaseRecord {
    private func product(_ keys: [String]) -> String {
        guard productID == RecordBuilder.lifetimeProductID else { return productID }
        return keys.first.map { $0 == "premium" ? "lifetime" : $0 + "_lifetime" } ?? "consumable"
    }

    fileprivate func transaction(_ keys: [String]) -> AppStoreTransactionScenario? {
        guard AppStorePath.isID(storeIdentifier), status == "owned" || status == "refunded" else { return nil }
        var item = AppStoreTransactionScenario(
            original: storeIdentifier,
            product: product(keys),
            type: keys.isEmpty ? .consumable : .nonConsumable,
            state: status == "refunded" ? .refunded : .active
        )
        item.ownership = ownership.uppercased()
        item.purchased = .absolute(milliseconds: purchasedAtMs)
        return item
    }

    fileprivate func playPurchase(_ order: String, _ keys: [String]) -> GooglePlayPurchaseScenario? {
        guard status == "owned" || status == "refunded" else { return nil }
        var purchase = GooglePlayPurchaseScenario(
            shared: order,
            state: status == "refunded" ? .canceled : .active,
            renewal: storeIdentifier
        )
        purchase.kind = .oneTime
        purchase.product = product(keys)
        purchase.test = environment == "sandbox"
        purchase.started = .absolute(milliseconds: purchasedAtMs)
        return purchase
    }
}

extension GooglePlayPurchaseScenario {
    /// What the token of a shared purchase begins with; its number at RevenueCat follows.
    static let sharedPrefix = "shared."

    fileprivate init(shared order: String, state: State, renewal: String) {
        self.init(token: Self.sharedPrefix + renewal, state: state)
        orderID = order
        if renewal != order { orderIDs = [renewal] }
    }
}
