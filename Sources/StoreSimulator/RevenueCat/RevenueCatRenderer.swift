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
    }

    /// The slice of a list that a page shows.
    struct Slice: Sendable {
        var range: Range<Int>
        /// Id for `starting_after` of the next page; nil on the last page.
        var cursor: String?
    }

    /// Cuts a page out of a list; nil when `starting_after` names no item of it.
    static func slice(count: Int, page: Page, id: (Int) -> String) -> Slice? {
        var start = 0
        if let after = page.startingAfter, !page.repeatsCursor {
            guard let index = (0..<count).first(where: { id($0) == after }) else { return nil }
            start = index + 1
        }
        let end = min(count, start + page.limit)
        if page.repeatsCursor {
            return Slice(range: start..<end, cursor: page.startingAfter ?? (end > 0 ? id(end - 1) : "repeated"))
        }
        return Slice(range: start..<end, cursor: end < count && end > start ? id(end - 1) : nil)
    }

    /// Writes a list object around its items.
    func list(
        _ json: inout JSONBytes,
        path: String,
        slice: Slice,
        page: Page,
        item: (inout JSONBytes, Int) -> Void
    ) {
        let url = paging.link == .absolute ? paging.base + path : path
        json.beginObject()
        json.key("object")
        json.literal("list")
        json.key("items")
        json.beginArray()
        for index in slice.range { item(&json, index) }
        json.endArray()
        if let cursor = slice.cursor {
            var next = "\(url)?limit=\(page.limit)&starting_after=\(PercentCoding.encode(cursor))"
            if let environment = page.environment { next += "&environment=\(environment)" }
            json.key("next_page")
            json.value(next)
        } else if paging.end == .null {
            json.key("next_page")
            json.null()
        }
        json.key("url")
        json.value(url)
        json.endObject()
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
    ) {
        json.beginObject()
        json.key("object")
        json.literal("customer")
        json.key("id")
        json.value(customer.id)
        json.key("project_id")
        json.value(project)
        json.key("first_seen_at")
        json.value(customer.firstSeenMs)
        json.key("last_seen_at")
        json.value(customer.lastSeenMs)
        let visited = customer.lastSeenMs != nil
        json.key("last_seen_app_version")
        json.value(visited ? "4.12.0" : nil)
        json.key("last_seen_country")
        json.value(customer.country)
        json.key("last_seen_platform")
        json.value(visited ? "iOS" : nil)
        json.key("last_seen_platform_version")
        json.value(visited ? "19.1" : nil)
        if showsEntitlements {
            json.key("active_entitlements")
            activeEntitlements(&json, customer, page: Page(limit: paging.nestedLimit))
        }
        json.key("experiment")
        json.null()
        if showsAttributes {
            json.key("attributes")
            attributes(&json, customer)
        }
        json.endObject()
    }

    private func attributes(_ json: inout JSONBytes, _ customer: CustomerRecord) {
        let slice = Slice(range: 0..<customer.attributes.count, cursor: nil)
        list(&json, path: path(customer: customer.id, "attributes"), slice: slice, page: Page(limit: 20)) {
            json,
            index in
            json.beginObject()
            json.key("object")
            json.literal("customer.attribute")
            json.key("name")
            json.value(customer.attributes[index].name)
            json.key("value")
            json.value(customer.attributes[index].value)
            json.key("updated_at")
            json.value(customer.lastSeenMs ?? customer.firstSeenMs)
            json.endObject()
        }
    }

    /// Writes the entitlements that are active now; nil page position means an unknown cursor.
    @discardableResult
    func activeEntitlements(_ json: inout JSONBytes, _ customer: CustomerRecord, page: Page) -> Bool {
        let active = activeEntitlements(of: customer)
        guard
            let slice = Self.slice(count: active.count, page: page, id: { catalogue.entries[active[$0].position].id })
        else { return false }
        list(&json, path: path(customer: customer.id, "active_entitlements"), slice: slice, page: page) { json, index in
            json.beginObject()
            json.key("object")
            json.literal("customer.active_entitlement")
            json.key("entitlement_id")
            json.value(catalogue.entries[active[index].position].id)
            json.key("expires_at")
            json.value(active[index].expiresAtMs)
            json.endObject()
        }
        return true
    }

    /// Each entitlement once, with the end of the item that lasts longest (nil: for ever).
    private func activeEntitlements(of customer: CustomerRecord) -> [(position: Int, expiresAtMs: Int64?)] {
        var active: [(position: Int, expiresAtMs: Int64?)] = []
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

    /// Writes one of a customer's ids.
    func alias(_ json: inout JSONBytes, id: String, createdAtMs: Int64) {
        json.beginObject()
        json.key("object")
        json.literal("customer.alias")
        json.key("id")
        json.value(id)
        json.key("created_at")
        json.value(createdAtMs)
        json.endObject()
    }

    // MARK: Entitlements

    /// Writes an entitlement of the catalogue.
    func entitlement(_ json: inout JSONBytes, at position: Int) {
        let entry = catalogue.entries[position]
        json.beginObject()
        json.key("object")
        json.literal("entitlement")
        json.key("project_id")
        json.value(project)
        json.key("id")
        json.value(entry.id)
        json.key("lookup_key")
        json.value(entry.lookupKey)
        json.key("display_name")
        json.value(entry.displayName)
        json.key("created_at")
        json.value(entry.createdAtMs)
        json.endObject()
    }

    /// Writes the entitlement list of a subscription or purchase; false for an unknown cursor.
    @discardableResult
    func entitlements(_ json: inout JSONBytes, _ positions: [Int], of kind: String, id: String, page: Page) -> Bool {
        guard let slice = Self.slice(count: positions.count, page: page, id: { catalogue.entries[positions[$0]].id })
        else { return false }
        let path = "/v2/projects/\(project)/\(kind)/\(id)/entitlements"
        list(&json, path: path, slice: slice, page: page) { json, index in
            entitlement(&json, at: positions[index])
        }
        return true
    }
}
