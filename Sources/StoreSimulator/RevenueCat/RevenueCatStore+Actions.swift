internal import Foundation
internal import NIOCore

/// The endpoints that change something.
extension RevenueCatStore {
    /// Carries out a `POST` or `DELETE`.
    mutating func act(on request: StoreRequest, route: RevenueCatRoute, nowMs: Int64) throws -> Reply {
        if request.method == "POST" {
            let type = request.contentType?.lowercased() ?? ""
            guard type.hasPrefix("application/json") else {
                throw RevenueCatFailure.invalidRequest("Content-Type must be application/json")
            }
        }
        return switch route.endpoint {
        case .createCustomer: try createCustomer(try decode(request), nowMs: nowMs)
        case .deleteCustomer: try deleteCustomer(route.subject, nowMs: nowMs)
        case .transfer: try transfer(from: route.subject, try decode(request), nowMs: nowMs)
        case .grantEntitlement: try grant(to: route.subject, try decode(request), nowMs: nowMs)
        default: try revokeGrant(of: route.subject, try decode(request), nowMs: nowMs)
        }
    }

    // MARK: Customers

    private mutating func createCustomer(_ body: CreateBody, nowMs: Int64) throws -> Reply {
        let isWord: (UInt8) -> Bool = { byte in
            UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte || UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte
                || UInt8(ascii: "A")...UInt8(ascii: "Z") ~= byte || byte == UInt8(ascii: "_")
                || byte == UInt8(ascii: "-")
        }
        guard !body.id.isEmpty, body.id.utf8.count <= 1500, body.id.utf8.allSatisfy(isWord) else {
            throw RevenueCatFailure.parameter("id", "id must match ^[0-9a-zA-Z_-]*$ and have at most 1500 characters")
        }
        guard book.customer(body.id) == nil else { throw RevenueCatFailure.exists }
        var customer = CustomerRecord(id: body.id, firstSeenMs: nowMs)
        customer.attributes = (body.attributes ?? []).map { ($0.name, $0.value) }
        try keep(customer)
        return reply(customer, status: 201, nowMs: nowMs)
    }

    private mutating func deleteCustomer(_ id: String, nowMs: Int64) throws -> Reply {
        guard let customer = book.delete(id) else { throw RevenueCatFailure.missing }
        var json = JSONBytes(capacity: 256)
        json.beginObject()
        json.key("object")
        json.literal("customer")
        json.key("id")
        json.value(customer.id)
        json.key("deleted_at")
        json.value(nowMs)
        json.endObject()
        return Reply(status: 200, body: json.bytes)
    }

    // MARK: Transfer

    private mutating func transfer(from source: String, _ body: TransferBody, nowMs: Int64) throws -> Reply {
        guard var from = book.customer(source), var to = book.customer(body.target) else {
            throw RevenueCatFailure.missing
        }
        guard from.id != to.id else {
            throw RevenueCatFailure(
                status: 422,
                type: "unprocessable_entity_error",
                message: "Source and target are the same customer"
            )
        }
        let before = from
        let moves: (String) -> Bool = { app in body.apps?.contains(app) ?? true }
        let subscriptions = from.subscriptions.filter { moves($0.app) }
        let purchases = from.purchases.filter { moves($0.app) }
        if subscriptions.isEmpty, purchases.isEmpty, emptyTransfer == .unprocessable {
            throw RevenueCatFailure(
                status: 422,
                type: "unprocessable_entity_error",
                message: "The customer has nothing to transfer"
            )
        }
        from.subscriptions.removeAll { moves($0.app) }
        from.purchases.removeAll { moves($0.app) }
        for var item in subscriptions {
            item.originalCustomerID = item.originalCustomerID ?? before.id
            to.subscriptions.append(item)
        }
        for var item in purchases {
            item.originalCustomerID = item.originalCustomerID ?? before.id
            to.purchases.append(item)
        }
        // The source goes first: the target's identifiers must be indexed last.
        try keep(from)
        try keep(to)
        recordTransfer(
            from: from,
            to: to,
            store: subscriptions.first?.store ?? purchases.first?.store ?? "app_store",
            nowMs: nowMs
        )

        let renderer = renderer(nowMs: nowMs)
        var json = JSONBytes()
        json.beginObject()
        json.key("source_customer")
        renderer.customer(&json, before, showsEntitlements: false)
        json.key("target_customer")
        renderer.customer(&json, to, showsEntitlements: false)
        json.endObject()
        return Reply(status: 200, body: json.bytes)
    }

    private mutating func recordTransfer(from: CustomerRecord, to: CustomerRecord, store: String, nowMs: Int64) {
        record(event: "TRANSFER", nowMs: nowMs) { json in
            json.key("store")
            json.value(store.uppercased())
            json.key("environment")
            json.literal("PRODUCTION")
            json.key("transferred_from")
            json.beginArray()
            for id in from.ids { json.value(id) }
            json.endArray()
            json.key("transferred_to")
            json.beginArray()
            for id in to.ids { json.value(id) }
            json.endArray()
        }
    }

    // MARK: Grants

    private mutating func grant(to id: String, _ body: GrantBody, nowMs: Int64) throws -> Reply {
        guard var customer = book.customer(id), let position = book.catalogue.position(ofID: body.entitlementID) else {
            throw RevenueCatFailure.missing
        }
        guard body.expiresAtMs > nowMs else {
            throw RevenueCatFailure.parameter("expires_at", "expires_at must be in the future")
        }
        var scenario = SubscriptionScenario(state: .promotional)
        scenario.starts = .absolute(milliseconds: nowMs)
        scenario.ends = .value(.absolute(milliseconds: body.expiresAtMs))
        // The catalogue may grow only through the book, and this position exists already.
        scenario.entitlements = []
        var builder = RecordBuilder(nowMs: nowMs, catalogue: book.catalogue)
        var item = builder.subscription(scenario, seed: "\(customer.id)/g\(customer.subscriptions.count)/\(nowMs)")
        item.entitlements = [position]
        customer.subscriptions.append(item)
        try keep(customer)
        return reply(customer, status: 201, nowMs: nowMs)
    }

    private mutating func revokeGrant(of id: String, _ body: RevokeBody, nowMs: Int64) throws -> Reply {
        guard var customer = book.customer(id), let position = book.catalogue.position(ofID: body.entitlementID) else {
            throw RevenueCatFailure.missing
        }
        for index in customer.subscriptions.indices {
            let item = customer.subscriptions[index]
            guard item.store == "promotional", item.entitlements.contains(position) else { continue }
            customer.subscriptions[index].givesAccess = false
            customer.subscriptions[index].status = "expired"
            customer.subscriptions[index].periodEndsAtMs = min(item.periodEndsAtMs ?? nowMs, nowMs)
            customer.subscriptions[index].endsAtMs = min(item.endsAtMs ?? nowMs, nowMs)
        }
        try keep(customer)
        return reply(customer, status: 200, nowMs: nowMs)
    }

    // MARK: Parts

    private mutating func keep(_ customer: CustomerRecord) throws {
        do {
            try book.store(customer)
        } catch is CustomerBook.Conflict {
            throw RevenueCatFailure.exists
        }
    }

    private func reply(_ customer: CustomerRecord, status: Int, nowMs: Int64) -> Reply {
        var json = JSONBytes()
        renderer(nowMs: nowMs).customer(&json, customer, showsEntitlements: false)
        return Reply(status: status, body: json.bytes)
    }

    private func decode<Body: Decodable>(_ request: StoreRequest) throws -> Body {
        do {
            return try JSONDecoder().decode(Body.self, from: Data(request.body.readableBytesView))
        } catch DecodingError.keyNotFound(let key, _) {
            throw RevenueCatFailure.parameter(key.stringValue, "\(key.stringValue) is required")
        } catch let error as DecodingError {
            let fault = ScenarioError(error)
            guard !fault.keyPath.isEmpty else {
                throw RevenueCatFailure.invalidRequest("The request body is no valid JSON object")
            }
            throw RevenueCatFailure.parameter(fault.keyPath, "\(fault.keyPath) \(fault.message)")
        }
    }
}

// MARK: - Bodies

private struct CreateBody: Decodable {
    struct Attribute: Decodable {
        var name: String
        var value: String
    }

    var id: String
    var attributes: [Attribute]?

    enum CodingKeys: String, CodingKey, CaseIterable { case id, attributes }

    init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        id = try fields.required(.id)
        attributes = try fields.optional(.attributes)
    }
}

private struct TransferBody: Decodable {
    var target: String
    var apps: [String]?

    enum CodingKeys: String, CodingKey, CaseIterable {
        case target = "target_customer_id"
        case apps = "app_ids"
    }

    // No other key is allowed; an early client of the real service sent `destination_customer_id`.
    init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        target = try fields.required(.target)
        apps = try fields.optional(.apps)
    }
}

private struct GrantBody: Decodable {
    var entitlementID: String
    var expiresAtMs: Int64

    enum CodingKeys: String, CodingKey, CaseIterable {
        case entitlementID = "entitlement_id"
        case expiresAtMs = "expires_at"
    }

    init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        entitlementID = try fields.required(.entitlementID)
        expiresAtMs = try fields.required(.expiresAtMs)
    }
}

private struct RevokeBody: Decodable {
    var entitlementID: String

    enum CodingKeys: String, CodingKey, CaseIterable { case entitlementID = "entitlement_id" }

    init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        entitlementID = try fields.required(.entitlementID)
    }
}
