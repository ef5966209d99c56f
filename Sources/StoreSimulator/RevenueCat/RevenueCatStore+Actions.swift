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
        let isWord = body.id.utf8.allSatisfy { $0.isAlphanumeric || "_-".utf8.contains($0) }
        guard !body.id.isEmpty, body.id.utf8.count <= 1500, isWord else {
            throw RevenueCatFailure.parameter("id", "id must match ^[0-9a-zA-Z_-]*$ and have at most 1500 characters")
        }
        guard book.customer(body.id) == nil else { throw RevenueCatFailure.exists }
        var customer = CustomerRecord(id: body.id, firstSeenMs: nowMs)
        customer.attributes = (body.attributes ?? []).map { ($0.name, $0.value) }
        try keep(customer)
        return try reply(customer, status: 201, nowMs: nowMs)
    }

    private mutating func deleteCustomer(_ id: String, nowMs: Int64) throws -> Reply {
        guard let customer = book.delete(id) else { throw RevenueCatFailure.missing }
        return .object { json in
            json.member("object", literal: "customer")
            json.member("id", customer.id)
            json.member("deleted_at", nowMs)
        }
    }

    // MARK: Transfer

    private mutating func transfer(from source: String, _ body: TransferBody, nowMs: Int64) throws -> Reply {
        guard var from = book.customer(source), var to = book.customer(body.target) else {
            throw RevenueCatFailure.missing
        }
        guard from.id != to.id else {
            throw RevenueCatFailure.unprocessable("Source and target are the same customer")
        }
        let before = from
        /// Takes the items that move out of the source, and gives them to the target.
        func move<Item: ItemRecord>(_ items: WritableKeyPath<CustomerRecord, [Item]>) -> [Item] {
            func moves(_ item: Item) -> Bool { body.apps?.contains(item.app) ?? true }
            let moved = from[keyPath: items].filter(moves).map { item in
                var item = item
                item.originalCustomerID = item.originalCustomerID ?? before.id
                return item
            }
            from[keyPath: items].removeAll(where: moves)
            to[keyPath: items] += moved
            return moved
        }
        let (subscriptions, purchases) = (move(\.subscriptions), move(\.purchases))
        let store = subscriptions.first?.store ?? purchases.first?.store
        if store == nil, emptyTransfer == .unprocessable {
            throw RevenueCatFailure.unprocessable("The customer has nothing to transfer")
        }
        // The source goes first: the target's identifiers must be indexed last.
        try keep(from)
        try keep(to)
        recordTransfer(from: from, to: to, store: store ?? "app_store", nowMs: nowMs)

        let (renderer, after) = (renderer(nowMs: nowMs), to)
        return try .object { json in
            try json.member("source_customer") { try renderer.customer(&$0, before, showsEntitlements: false) }
            try json.member("target_customer") { try renderer.customer(&$0, after, showsEntitlements: false) }
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
        return try reply(customer, status: 201, nowMs: nowMs)
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
        return try reply(customer, status: 200, nowMs: nowMs)
    }

    // MARK: Parts

    private mutating func keep(_ customer: CustomerRecord) throws {
        do {
            try book.store(customer)
        } catch is CustomerBook.Conflict {
            throw RevenueCatFailure.exists
        }
    }

    private func reply(_ customer: CustomerRecord, status: Int, nowMs: Int64) throws -> Reply {
        var json = JSONBytes()
        try renderer(nowMs: nowMs).customer(&json, customer, showsEntitlements: false)
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

private struct CreateBody: ScenarioObject {
    struct Attribute: Codable {
        var name: String
        var value: String
    }

    var id = ""
    var attributes: [Attribute]?

    static let fields: [ScenarioField<Self>] = [.required("id", \.id), .optional("attributes", \.attributes)]
}

private struct TransferBody: ScenarioObject {
    var target = ""
    var apps: [String]?

    // No other key is allowed; an early client of the real service sent `destination_customer_id`.
    static let fields: [ScenarioField<Self>] = [
        .required("target_customer_id", \.target), .optional("app_ids", \.apps),
    ]
}

private struct GrantBody: ScenarioObject {
    var entitlementID = ""
    var expiresAtMs: Int64 = 0

    static let fields: [ScenarioField<Self>] = [
        .required("entitlement_id", \.entitlementID), .required("expires_at", \.expiresAtMs),
    ]
}

private struct RevokeBody: ScenarioObject {
    var entitlementID = ""

    static let fields: [ScenarioField<Self>] = [.required("entitlement_id", \.entitlementID)]
}
