/// Writes RevenueCat's objects, every field of every object each time.
struct RevenueCatRenderer: Sendable {
    let project: String
    let paging: Scenario.Paging
    let catalogue: EntitlementCatalogue
    let nowMs: Int64

    // MARK: Lists

    /// What a request asks of a list.
    struct Page: Sendable {
        var limit: Int
        var startingAfter: String?
        /// Kept in `next_page`, as the store keeps the query it was asked with.
        var environment: String?
        var repeatsCursor = false

        /// Cuts the page out of a list.
        ///
        /// - Returns: the range, and the id for `starting_after` of the next page, nil on the last one.
        /// - Throws: `RevenueCatFailure` where `startingAfter` names no item.
        fileprivate func cut<Item>(_ items: [Item], id: (Item) -> String) throws -> (range: Range<Int>, cursor: String?)
        {
            var start = 0
            if let startingAfter, !repeatsCursor {
                guard let index = items.firstIndex(where: { id($0) == startingAfter }) else {
                    throw RevenueCatFailure.parameter("starting_after", "starting_after names no item")
                }
                start = index + 1
            }
            let end = min(items.count, start + limit)
            if repeatsCursor {
                return (start..<end, startingAfter ?? (end > 0 ? id(items[end - 1]) : "repeated"))
            }
            return (start..<end, end < items.count && end > start ? id(items[end - 1]) : nil)
        }
    }

    /// Writes a page of a list.
    ///
    /// - Throws: `RevenueCatFailure` where the page begins after no item of it.
    func list<Item>(
        _ json: inout JSONBytes,
        path: String,
        _ items: [Item],
        page: Page,
        id: (Item) -> String,
        write: (inout JSONBytes, Item) throws -> Void
    ) throws {
        let (range, cursor) = try page.cut(items, id: id)
        let url = paging.link == .absolute ? paging.base + path : path
        try json.object { json in
            json.member("object", literal: "list")
            try json.array("items") { json in
                for index in range { try write(&json, items[index]) }
            }
            if let cursor {
                var next = "\(url)?limit=\(page.limit)&starting_after=\(PercentCoding.encode(cursor))"
                if let environment = page.environment { next += "&environment=\(environment)" }
                json.member("next_page", next)
            } else if paging.end == .null {
                json.null("next_page")
            }
            json.member("url", url)
        }
    }

    /// Path of a customer's resource, such as `/v2/projects/proj1/customers/a%2Fb/aliases`.
    func path(customer id: String, _ resource: String) -> String {
        "/v2/projects/\(project)/customers/\(PercentCoding.encode(id))/\(resource)"
    }

    // MARK: Customers

    /// Writes a customer; only the customer's own endpoint shows its `active_entitlements`.
    func customer(
        _ json: inout JSONBytes,
        _ customer: CustomerRecord,
        showsEntitlements: Bool,
        showsAttributes: Bool = false
    ) throws {
        try json.object { json in
            json.member("object", literal: "customer")
            json.member("id", customer.id)
            json.member("project_id", project)
            json.member("first_seen_at", customer.firstSeenMs)
            json.member("last_seen_at", customer.lastSeenMs)
            let visited = customer.lastSeenMs != nil
            json.member("last_seen_app_version", visited ? "4.12.0" : nil)
            json.member("last_seen_country", customer.country)
            json.member("last_seen_platform", visited ? "iOS" : nil)
            json.member("last_seen_platform_version", visited ? "19.1" : nil)
            if showsEntitlements {
                let page = Page(limit: paging.nestedLimit)
                try json.member("active_entitlements") { try activeEntitlements(&$0, customer, page: page) }
            }
            json.null("experiment")
            if showsAttributes { try json.member("attributes") { try attributes(&$0, customer) } }
        }
    }

    private func attributes(_ json: inout JSONBytes, _ customer: CustomerRecord) throws {
        let (path, all) = (path(customer: customer.id, "attributes"), Page(limit: customer.attributes.count))
        try list(&json, path: path, customer.attributes, page: all, id: \.name) { json, attribute in
            json.object { json in
                json.member("object", literal: "customer.attribute")
                json.member("name", attribute.name)
                json.member("value", attribute.value)
                json.member("updated_at", customer.lastSeenMs ?? customer.firstSeenMs)
            }
        }
    }

    /// Writes the entitlements that are active now.
    func activeEntitlements(_ json: inout JSONBytes, _ customer: CustomerRecord, page: Page) throws {
        let path = path(customer: customer.id, "active_entitlements")
        func id(_ active: ActiveEntitlement) -> String { catalogue.entries[active.position].id }
        try list(&json, path: path, activeEntitlements(of: customer), page: page, id: id) { json, active in
            json.object { json in
                json.member("object", literal: "customer.active_entitlement")
                json.member("entitlement_id", id(active))
                json.member("expires_at", active.expiresAtMs)
            }
        }
    }

    private typealias ActiveEntitlement = (position: Int, expiresAtMs: Int64?)

    /// Each entitlement once, with the end of the item that lasts longest (nil: for ever).
    private func activeEntitlements(of customer: CustomerRecord) -> [ActiveEntitlement] {
        var active: [ActiveEntitlement] = []
        func add(_ positions: [Int], until end: Int64?) {
            for position in positions {
                if let index = active.firstIndex(where: { $0.position == position }) {
                    let known = active[index].expiresAtMs
                    active[index].expiresAtMs = known.flatMap { known in end.map { max($0, known) } }
                } else {
                    active.append((position, end))
                }
            }
        }
        for item in customer.subscriptions.map({ $0.settled(at: nowMs) }) where item.givesAccess {
            add(item.entitlements, until: item.endsAtMs)
        }
        for item in customer.purchases where item.status == "owned" { add(item.entitlements, until: nil) }
        return active
    }

    func alias(_ json: inout JSONBytes, id: String, createdAtMs: Int64) {
        json.object { json in
            json.member("object", literal: "customer.alias")
            json.member("id", id)
            json.member("created_at", createdAtMs)
        }
    }

    // MARK: Entitlements

    func entitlement(_ json: inout JSONBytes, at position: Int) {
        let entry = catalogue.entries[position]
        json.object { json in
            json.member("object", literal: "entitlement")
            json.member("project_id", project)
            json.member("id", entry.id)
            json.member("lookup_key", entry.lookupKey)
            json.member("display_name", entry.displayName)
            json.member("created_at", entry.createdAtMs)
        }
    }

    /// Writes the entitlement list of a subscription or purchase.
    func entitlements(_ json: inout JSONBytes, of item: some ItemRecord, page: Page) throws {
        let path = "/v2/projects/\(project)/\(type(of: item).list)/\(item.id)/entitlements"
        try list(&json, path: path, item.entitlements, page: page, id: { catalogue.entries[$0].id }) {
            entitlement(&$0, at: $1)
        }
    }
}
