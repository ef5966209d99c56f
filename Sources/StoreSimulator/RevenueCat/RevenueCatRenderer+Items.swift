extension RevenueCatRenderer {
    /// Writes a customer's subscriptions or purchases.
    func items<Item: ItemRecord>(
        _ json: inout JSONBytes,
        _ items: KeyPath<CustomerRecord, [Item]>,
        of owner: CustomerRecord,
        page: Page
    ) throws {
        var items = owner[keyPath: items]
        if let environment = page.environment { items.removeAll { $0.environment != environment } }
        try list(&json, path: path(customer: owner.id, Item.list), items, page: page, id: \.id) {
            try $1.write(to: &$0, owner: owner.id, by: self)
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
}

extension SubscriptionRecord {
    /// Writes the subscription as it stands now.
    func write(to json: inout JSONBytes, owner: String, by renderer: RevenueCatRenderer) throws {
        // Copying a record costs as much as printing half of it, so the common one is printed as stored.
        if settles(at: renderer.nowMs) {
            try settled(at: renderer.nowMs).writeStored(to: &json, owner: owner, by: renderer)
        } else {
            try writeStored(to: &json, owner: owner, by: renderer)
        }
    }

    private func writeStored(to json: inout JSONBytes, owner: String, by renderer: RevenueCatRenderer) throws {
        try json.object { json in
            json.member("object", literal: "subscription")
            json.member("id", id)
            json.member("customer_id", owner)
            json.member("original_customer_id", originalCustomerID ?? owner)
            json.member("product_id", productID)
            json.member("starts_at", startsAtMs)
            json.member("current_period_starts_at", periodStartsAtMs)
            json.member("current_period_ends_at", periodEndsAtMs)
            json.member("ends_at", endsAtMs)
            json.member("gives_access", givesAccess)
            json.member("pending_payment", pendingPayment)
            json.member("auto_renewal_status", renewal)
            json.member("status", status)
            json.member("total_revenue_in_usd", raw: revenue)
            json.member("presented_offering_id", offeringID)
            let page = RevenueCatRenderer.Page(limit: renderer.paging.nestedLimit)
            try json.member("entitlements") { try renderer.entitlements(&$0, of: self, page: page) }
            json.member("environment", environment)
            json.member("store", store)
            json.member("store_subscription_identifier", storeIdentifier)
            json.member("ownership", ownership)
            pendingChanges(&json)
            json.member("country", country)
            json.member("management_url", managementURL)
        }
    }

    private func pendingChanges(_ json: inout JSONBytes) {
        guard let product = pendingProduct else { return json.null("pending_changes") }
        json.object("pending_changes") { json in
            json.object("product") { json in
                json.member("object", literal: "product")
                json.member("id", product)
                json.member("store_identifier", "com.example.app.\(product)")
                json.member("type", literal: "subscription")
                json.member("created_at", Int64(1_700_000_000_000))
                json.member("app_id", app)
                json.null("display_name")
            }
        }
    }
}

extension PurchaseRecord {
    func write(to json: inout JSONBytes, owner: String, by renderer: RevenueCatRenderer) throws {
        try json.object { json in
            json.member("object", literal: "purchase")
            json.member("id", id)
            json.member("customer_id", owner)
            json.member("original_customer_id", originalCustomerID ?? owner)
            json.member("product_id", productID)
            json.member("purchased_at", purchasedAtMs)
            json.member("revenue_in_usd", raw: revenue)
            json.member("quantity", quantity)
            json.member("status", status)
            json.member("presented_offering_id", offeringID)
            let page = RevenueCatRenderer.Page(limit: renderer.paging.nestedLimit)
            try json.member("entitlements") { try renderer.entitlements(&$0, of: self, page: page) }
            json.member("environment", environment)
            json.member("store", store)
            json.member("store_purchase_identifier", storeIdentifier)
            json.member("ownership", ownership)
            json.member("country", country)
        }
    }
}
