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
    /// A minute's, for each key and domain.
    private var windows = RateWindows(lengthMs: 60_000)
    /// Store events that the real service would send as webhooks, oldest first, as finished JSON.
    private(set) var events: [String] = []
    private var eventNumber = 0

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
            reply.headers.append(("RevenueCat-Rate-Limit-Current-Usage", "\(rate.usage)"))
            reply.headers.append(("RevenueCat-Rate-Limit-Current-Limit", "\(rate.limit)"))
        }
        return reply
    }

    func renderer(nowMs: Int64) -> RevenueCatRenderer {
        RevenueCatRenderer(project: project, paging: paging, catalogue: book.catalogue, nowMs: nowMs)
    }

    /// Records the webhook that the real service would send for a transfer.
    mutating func recordTransfer(from: CustomerRecord, to: CustomerRecord, store: String, nowMs: Int64) {
        eventNumber += 1
        let number = Identifiers.padded(Int64(eventNumber))
        let event = JSONBytes.object { json in
            json.member("api_version", literal: "1.0")
            json.object("event") { json in
                json.member("type", literal: "TRANSFER")
                json.member("id", "event-" + number)
                json.member("app_id", literal: "appa1b2c3d4e5")
                json.member("event_timestamp_ms", nowMs)
                json.member("store", store.uppercased())
                json.member("environment", literal: "PRODUCTION")
                json.array("transferred_from", from.ids)
                json.array("transferred_to", to.ids)
            }
        }
        events.append(String(decoding: event, as: UTF8.self))
        if events.count > 10_000 { events.removeFirst(1000) }
    }

    // MARK: Admission

    private func authenticate(_ request: StoreRequest) throws -> String {
        guard let key = request.bearer else { throw RevenueCatFailure.unauthenticated }
        let isWellFormed = (key.hasPrefix("sk_") && key != "sk_") || (key.hasPrefix("atk_") && key != "atk_")
        let known = keys.isEmpty ? isWellFormed : keys[key] != nil
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
        var json = JSONBytes()
        try render(&json, route: route, page: page, by: renderer(nowMs: nowMs))
        return Reply(status: 200, body: json.bytes)
    }

    private func render(
        _ json: inout JSONBytes,
        route: RevenueCatRoute,
        page: RevenueCatRenderer.Page,
        by renderer: RevenueCatRenderer
    ) throws {
        func customer() throws -> CustomerRecord { try Self.found(book.customer(route.subject)) }
        let root = "/v2/projects/\(project)"
        switch route.endpoint {
        case .subscriptions: try renderer.items(&json, \.subscriptions, of: customer(), page: page)
        case .purchases: try renderer.items(&json, \.purchases, of: customer(), page: page)
        case .aliases:
            let owner = try customer()
            let (path, ids) = (renderer.path(customer: owner.id, "aliases"), Array(owner.ids.enumerated()))
            try renderer.list(&json, path: path, ids, page: page, id: \.element) {
                renderer.alias(&$0, id: $1.element, createdAtMs: owner.firstSeenMs + Int64($1.offset) * 1000)
            }
        case .activeEntitlements: try renderer.activeEntitlements(&json, customer(), page: page)
        case .findSubscriptions:
            try find(&json, "store_subscription_identifier", in: route.query, book.subscription, by: renderer)
        case .findPurchases:
            try find(&json, "store_purchase_identifier", in: route.query, book.purchase, by: renderer)
        case .entitlements:
            let (entries, path) = (book.catalogue.entries, root + "/entitlements")
            try renderer.list(&json, path: path, Array(entries.indices), page: page, id: { entries[$0].id }) {
                renderer.entitlement(&$0, at: $1)
            }
        case .customers:
            let customers = matchingCustomers(route.query)
            try renderer.list(&json, path: root + "/customers", customers, page: page, id: \.id) {
                try renderer.customer(&$0, $1, showsEntitlements: false)
            }
        case .subscription:
            let found = try Self.found(book.subscription(route.subject))
            try found.item.write(to: &json, owner: found.customer.id, by: renderer)
        case .purchase:
            let found = try Self.found(book.purchase(route.subject))
            try found.item.write(to: &json, owner: found.customer.id, by: renderer)
        case .subscriptionEntitlements:
            try renderer.entitlements(&json, of: Self.found(book.subscription(route.subject)).item, page: page)
        case .purchaseEntitlements:
            try renderer.entitlements(&json, of: Self.found(book.purchase(route.subject)).item, page: page)
        case .subscriptionTransactions:
            let item = try Self.found(book.subscription(route.subject)).item
            let path = root + "/subscriptions/\(item.id)/transactions"
            try renderer.list(&json, path: path, [item], page: page, id: \.storeIdentifier) {
                renderer.transaction(&$0, $1)
            }
        default:
            let expands = PercentCoding.value(of: "expand", in: route.query) == "attributes"
            try renderer.customer(&json, customer(), showsEntitlements: true, showsAttributes: expands)
        }
    }

    private static func found<Value>(_ value: Value?) throws -> Value {
        guard let value else { throw RevenueCatFailure.missing }
        return value
    }

    /// Writes the item of a store transaction; none where the store does not know it.
    private func find<Item>(
        _ json: inout JSONBytes,
        _ name: String,
        in query: Substring,
        _ lookup: (String) -> CustomerBook.Holding<Item>?,
        by renderer: RevenueCatRenderer
    ) throws {
        guard let identifier = PercentCoding.value(of: name, in: query), !identifier.isEmpty else {
            throw RevenueCatFailure.parameter(name, "\(name) is required")
        }
        let found = lookup(identifier).map { [$0] } ?? []
        let (path, page) = ("/v2/projects/\(project)/\(Item.list)", RevenueCatRenderer.Page(limit: 20))
        try renderer.list(&json, path: path, found, page: page, id: \.item.id) {
            try $1.item.write(to: &$0, owner: $1.customer.id, by: renderer)
        }
    }

    private func matchingCustomers(_ query: Substring) -> [CustomerRecord] {
        guard let email = PercentCoding.value(of: "search", in: query) else { return book.heldCustomers }
        return book.heldCustomers.filter { $0.attributes.contains { $0.name == "$email" && $0.value == email } }
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
