extension RevenueCatRenderer {
    /// Writes a customer's subscriptions or purchases.
    func items<Item: ItemRecord>(_ json: inout JSONBytes, _ items: [Item], of owner: String, page: Page) throws {
        let items = page.environment.map { environment in items.filter { $0.environment == environment } } ?? items
        try list(&json, path: path(customer: owner, Item.list), items, page: page, id: \.id) {
            try $1.write(to: &$0, owner: owner, by: self)
        }
    }

    /// Writes a subscription as it stands now.
    fileprivate func subscription(_ json: inout JSONBytes, _ item: SubscriptionRecord, owner: String) throws {
        // Copying a record costs as much as printing half of it, so the common one is printed as stored.
        if item.settles(at: nowMs) {
            try write(&json, item.settled(at: nowMs), owner: owner)
        } else {
            try write(&json, item, owner: owner)
        }
    }

    private func write(_ json: inout JSONBytes, _ item: SubscriptionRecord, owner: String) throws {
        try json.object { json in
            json.member("object", literal: "subscription")
            json.member("id", item.id)
            json.member("customer_id", owner)
            json.member("original_customer_id", item.originalCustomerID ?? owner)
            json.member("product_id", item.productID)
            json.member("starts_at", item.startsAtMs)
            json.member("current_period_starts_at", item.periodStartsAtMs)
            json.member("current_period_ends_at", item.periodEndsAtMs)
            json.member("ends_at", item.endsAtMs)
            json.member("gives_access", item.givesAccess)
            json.member("pending_payment", item.pendingPayment)
            json.member("auto_renewal_status", item.renewal)
            json.member("status", item.status)
            json.member("total_revenue_in_usd", raw: item.revenue)
            json.member("presented_offering_id", item.offeringID)
            let page = Page(limit: paging.nestedLimit)
            try json.member("entitlements") { try entitlements(&$0, of: item, page: page) }
            json.member("environment", item.environment)
            json.member("store", item.store)
            json.member("store_subscription_identifier", item.storeIdentifier)
            json.member("ownership", item.ownership)
            pendingChanges(&json, item)
            json.member("country", item.country)
            json.member("management_url", item.managementURL)
        }
    }

    private func pendingChanges(_ json: inout JSONBytes, _ item: SubscriptionRecord) {
        guard let product = item.pendingProduct else { return json.null("pending_changes") }
        json.object("pending_changes") { json in
            json.object("product") { json in
                json.member("object", literal: "product")
                json.member("id", product)
                json.member("store_identifier", "com.example.app.\(product)")
                json.member("type", literal: "subscription")
                json.member("created_at", Int64(1_700_000_000_000))
                json.member("app_id", item.app)
                json.null("display_name")
            }
        }
    }

    /// Writes the latest transaction of a subscription.
    func transaction(_ json: inout JSONBytes, _ stored: SubscriptionRecord) {
        let item = stored.settled(at: nowMs)
        json.object { json in
            json.member("object", literal: "subscription_transaction")
            json.member("id", item.storeIdentifier)
            json.member("purchased_at", item.periodStartsAtMs)
            json.member("product_store_identifier", item.productID.map { "com.example.app.\($0)" })
            json.member("expiration_date", item.periodEndsAtMs)
            json.member("effective_expiration_date", item.endsAtMs)
        }
    }

    fileprivate func purchase(_ json: inout JSONBytes, _ item: PurchaseRecord, owner: String) throws {
        try json.object { json in
            json.member("object", literal: "purchase")
            json.member("id", item.id)
            json.member("customer_id", owner)
            json.member("original_customer_id", item.originalCustomerID ?? owner)
            json.member("product_id", item.productID)
            json.member("purchased_at", item.purchasedAtMs)
            json.member("revenue_in_usd", raw: item.revenue)
            json.member("quantity", item.quantity)
            json.member("status", item.status)
            json.member("presented_offering_id", item.offeringID)
            let page = Page(limit: paging.nestedLimit)
            try json.member("entitlements") { try entitlements(&$0, of: item, page: page) }
            json.member("environment", item.environment)
            json.member("store", item.store)
            json.member("store_purchase_identifier", item.storeIdentifier)
            json.member("ownership", item.ownership)
            json.member("country", item.country)
        }
    }
}

extension SubscriptionRecord {
    func write(to json: inout JSONBytes, owner: String, by renderer: RevenueCatRenderer) throws {
        try renderer.subscription(&json, self, owner: owner)
    }
}

extension PurchaseRecord {
    func write(to json: inout JSONBytes, owner: String, by renderer: RevenueCatRenderer) throws {
        try renderer.purchase(&json, self, owner: owner)
    }
}
