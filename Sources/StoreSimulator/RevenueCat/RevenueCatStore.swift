/// RevenueCat's REST API v2 over a book of customers.
struct RevenueCatStore: Sendable {
    private let project: String
    private let keys: [String: Bool]
    private let limit: Int
    private let projectLimit: Int
    private let paging: Scenario.Paging
    let emptyTransfer: Scenario.EmptyTransfer
    let unit: Scenario.RetryAfterUnit
    var book: CustomerBook
    private var windows = RateWindows()
    /// Store events that the real service would send as webhooks, oldest first, as finished JSON.
    private(set) var events: [String] = []
    private var eventNumber = 0

    /// Fills the store.
    ///
    /// - Throws: `CustomerBook.Conflict` when two customers share an id.
    init(_ scenario: Scenario, nowMs: Int64) throws {
        project = scenario.project
        keys = Dictionary(scenario.apiKeys.map { ($0.key, $0.canWrite) }, uniquingKeysWith: { $0 || $1 })
        limit = scenario.rateLimitPerMinute
        projectLimit = scenario.projectRateLimitPerMinute
        paging = scenario.paging
        emptyTransfer = scenario.emptyTransfer
        unit = scenario.retryAfterUnit
        book = try CustomerBook(scenario, nowMs: nowMs)
    }

    /// Answers a request at a simulated moment; `repeatsCursor` makes lists name the same cursor for ever.
    mutating func answer(_ request: StoreRequest, route: RevenueCatRoute, nowMs: Int64, repeatsCursor: Bool) -> Reply {
        var rate: RateWindows.Reading?
        var reply: Reply
        do {
            let key = try authenticate(request)
            guard route.project == project, keys[key] ?? true || !route.endpoint.writes else {
                throw RevenueCatFailure.forbidden
            }
            rate = spend(key, on: route.endpoint, nowMs: nowMs)
            if let rate, rate.isExceeded { throw throttled(rate) }
            reply = try respond(to: request, route: route, nowMs: nowMs, repeatsCursor: repeatsCursor)
        } catch let failure as RevenueCatFailure {
            reply = failure.reply(unit: unit)
        } catch {
            // Every other error type is caught where it arises; this one would be a fault of the simulator itself.
            reply = RevenueCatFailure.usual(status: 500, backoffMs: nil).reply(unit: unit)
        }
        if let rate {
            reply.headers.append(Header("RevenueCat-Rate-Limit-Current-Usage", "\(rate.usage)"))
            reply.headers.append(Header("RevenueCat-Rate-Limit-Current-Limit", "\(rate.limit)"))
        }
        return reply
    }

    /// A renderer for this moment.
    func renderer(nowMs: Int64) -> RevenueCatRenderer {
        RevenueCatRenderer(project: project, paging: paging, catalogue: book.catalogue, nowMs: nowMs)
    }

    /// Records what the real service would send as a webhook.
    mutating func record(event type: String, nowMs: Int64, fields: (inout JSONBytes) -> Void) {
        eventNumber += 1
        var json = JSONBytes(capacity: 512)
        json.beginObject()
        json.key("api_version")
        json.literal("1.0")
        json.key("event")
        json.beginObject()
        json.key("type")
        json.value(type)
        json.key("id")
        json.value("event-" + Identifiers.padded(Int64(eventNumber)))
        json.key("app_id")
        json.literal("appa1b2c3d4e5")
        json.key("event_timestamp_ms")
        json.value(nowMs)
        fields(&json)
        json.endObject()
        json.endObject()
        events.append(String(decoding: json.bytes, as: UTF8.self))
        if events.count > 10_000 { events.removeFirst(1000) }
    }

    // MARK: Admission

    private func authenticate(_ request: StoreRequest) throws -> String {
        guard let header = request.authorization, header.hasPrefix("Bearer ") else {
            throw RevenueCatFailure.unauthenticated
        }
        let key = String(header.dropFirst("Bearer ".count))
        let looksRight = (key.hasPrefix("sk_") && key != "sk_") || (key.hasPrefix("atk_") && key != "atk_")
        let known = keys.isEmpty ? looksRight : keys[key] != nil
        guard known else { throw RevenueCatFailure.unauthenticated }
        return key
    }

    private mutating func spend(
        _ key: String,
        on endpoint: RevenueCatEndpoint,
        nowMs: Int64
    ) -> RateWindows.Reading? {
        let isCatalogue = endpoint == .entitlements
        let limit = isCatalogue ? projectLimit : limit
        guard limit > 0 else { return nil }
        return windows.count(isCatalogue ? "project " + key : key, limit: limit, nowMs: nowMs)
    }

    private func throttled(_ reading: RateWindows.Reading) -> RevenueCatFailure {
        // The body repeats the header's wait, so it is whole seconds where the header can say no less.
        let wholeSeconds = (reading.remainingMs + 999) / 1000 * 1000
        return .throttled(backoffMs: unit == .seconds ? wholeSeconds : reading.remainingMs)
    }

    // MARK: Endpoints

    private mutating func respond(
        to request: StoreRequest,
        route: RevenueCatRoute,
        nowMs: Int64,
        repeatsCursor: Bool
    ) throws -> Reply {
        if route.endpoint.writes {
            return try act(on: request, route: route, nowMs: nowMs)
        }
        var page = RevenueCatRenderer.Page(limit: paging.defaultLimit, repeatsCursor: repeatsCursor)
        if !route.query.isEmpty { page = try self.page(route.query, repeatsCursor: repeatsCursor) }
        let renderer = renderer(nowMs: nowMs)
        var json = JSONBytes()
        switch route.endpoint {
        case .subscriptions, .purchases, .customer, .aliases, .activeEntitlements:
            guard let customer = book.customer(route.subject) else { throw RevenueCatFailure.missing }
            try render(&json, route: route, customer: customer, page: page, renderer: renderer)
        case .findSubscriptions, .findPurchases:
            try find(&json, route: route, renderer: renderer)
        case .entitlements:
            let slice = try cut(count: book.catalogue.entries.count, page: page) { book.catalogue.entries[$0].id }
            renderer.list(&json, path: "/v2/projects/\(project)/entitlements", slice: slice, page: page) {
                renderer.entitlement(&$0, at: $1)
            }
        case .customers:
            let customers = matchingCustomers(route.query)
            let slice = try cut(count: customers.count, page: page) { customers[$0].id }
            renderer.list(&json, path: "/v2/projects/\(project)/customers", slice: slice, page: page) {
                renderer.customer(&$0, customers[$1], showsEntitlements: false)
            }
        default:
            try renderItem(&json, route: route, page: page, renderer: renderer)
        }
        return Reply(status: 200, body: json.bytes)
    }

    private func render(
        _ json: inout JSONBytes,
        route: RevenueCatRoute,
        customer: CustomerRecord,
        page: RevenueCatRenderer.Page,
        renderer: RevenueCatRenderer
    ) throws {
        let id = customer.id
        switch route.endpoint {
        case .subscriptions:
            var items = customer.subscriptions
            if let environment = page.environment { items.removeAll { $0.environment != environment } }
            let slice = try cut(count: items.count, page: page) { items[$0].id }
            renderer.list(&json, path: renderer.path(customer: id, "subscriptions"), slice: slice, page: page) {
                renderer.subscription(&$0, items[$1], owner: id)
            }
        case .purchases:
            var items = customer.purchases
            if let environment = page.environment { items.removeAll { $0.environment != environment } }
            let slice = try cut(count: items.count, page: page) { items[$0].id }
            renderer.list(&json, path: renderer.path(customer: id, "purchases"), slice: slice, page: page) {
                renderer.purchase(&$0, items[$1], owner: id)
            }
        case .aliases:
            let ids = customer.ids
            let slice = try cut(count: ids.count, page: page) { ids[$0] }
            renderer.list(&json, path: renderer.path(customer: id, "aliases"), slice: slice, page: page) {
                renderer.alias(&$0, id: ids[$1], createdAtMs: customer.firstSeenMs + Int64($1) * 1000)
            }
        case .activeEntitlements:
            guard renderer.activeEntitlements(&json, customer, page: page) else { throw Self.unknownCursor }
        default:
            let expands = PercentCoding.value(of: "expand", in: route.query) == "attributes"
            renderer.customer(&json, customer, showsEntitlements: true, showsAttributes: expands)
        }
    }

    /// The owner of a store transaction; no item where the store does not know it.
    private func find(_ json: inout JSONBytes, route: RevenueCatRoute, renderer: RevenueCatRenderer) throws {
        let isSubscription = route.endpoint == .findSubscriptions
        let name = isSubscription ? "store_subscription_identifier" : "store_purchase_identifier"
        guard let identifier = PercentCoding.value(of: name, in: route.query), !identifier.isEmpty else {
            throw RevenueCatFailure.parameter(name, "\(name) is required")
        }
        let kind = isSubscription ? "subscriptions" : "purchases"
        let found = isSubscription ? book.subscription(identifier) : book.purchase(identifier)
        let slice = RevenueCatRenderer.Slice(range: 0..<(found == nil ? 0 : 1), cursor: nil)
        let page = RevenueCatRenderer.Page(limit: 20)
        renderer.list(&json, path: "/v2/projects/\(project)/\(kind)", slice: slice, page: page) { json, _ in
            guard let found else { return }
            let owner = found.customer
            if isSubscription {
                renderer.subscription(&json, owner.subscriptions[found.index], owner: owner.id)
            } else {
                renderer.purchase(&json, owner.purchases[found.index], owner: owner.id)
            }
        }
    }

    private func renderItem(
        _ json: inout JSONBytes,
        route: RevenueCatRoute,
        page: RevenueCatRenderer.Page,
        renderer: RevenueCatRenderer
    ) throws {
        let isPurchase = route.endpoint == .purchase || route.endpoint == .purchaseEntitlements
        guard let found = isPurchase ? book.purchase(route.subject) : book.subscription(route.subject) else {
            throw RevenueCatFailure.missing
        }
        let owner = found.customer
        switch route.endpoint {
        case .subscription:
            renderer.subscription(&json, owner.subscriptions[found.index], owner: owner.id)
        case .purchase:
            renderer.purchase(&json, owner.purchases[found.index], owner: owner.id)
        case .subscriptionTransactions:
            let item = owner.subscriptions[found.index]
            let slice = try cut(count: 1, page: page) { _ in item.storeIdentifier }
            let path = "/v2/projects/\(project)/subscriptions/\(item.id)/transactions"
            renderer.list(&json, path: path, slice: slice, page: page) { json, _ in
                renderer.transaction(&json, item)
            }
        default:
            let (kind, id, positions) =
                isPurchase
                ? ("purchases", owner.purchases[found.index].id, owner.purchases[found.index].entitlements)
                : ("subscriptions", owner.subscriptions[found.index].id, owner.subscriptions[found.index].entitlements)
            guard renderer.entitlements(&json, positions, of: kind, id: id, page: page) else {
                throw Self.unknownCursor
            }
        }
    }

    private func matchingCustomers(_ query: Substring) -> [CustomerRecord] {
        guard let email = PercentCoding.value(of: "search", in: query) else { return book.heldCustomers }
        return book.heldCustomers.filter { $0.attributes.contains { $0.name == "$email" && $0.value == email } }
    }

    // MARK: Paging

    private static let unknownCursor = RevenueCatFailure.parameter("starting_after", "starting_after names no item")

    private func cut(
        count: Int,
        page: RevenueCatRenderer.Page,
        id: (Int) -> String
    ) throws -> RevenueCatRenderer.Slice {
        guard let slice = RevenueCatRenderer.slice(count: count, page: page, id: id) else { throw Self.unknownCursor }
        return slice
    }

    private func page(_ query: Substring, repeatsCursor: Bool) throws -> RevenueCatRenderer.Page {
        var page = RevenueCatRenderer.Page(limit: paging.defaultLimit, repeatsCursor: repeatsCursor)
        if let text = PercentCoding.value(of: "limit", in: query) {
            guard let limit = Int(text) else {
                throw RevenueCatFailure.parameter("limit", "limit must be a whole number")
            }
            page.limit = min(max(limit, 1), 100)
        }
        page.startingAfter = PercentCoding.value(of: "starting_after", in: query)
        page.environment = PercentCoding.value(of: "environment", in: query)
        if let environment = page.environment, environment != "production", environment != "sandbox" {
            throw RevenueCatFailure.parameter("environment", "environment must be production or sandbox")
        }
        return page
    }
}
