/// All customers of the simulated project: those held one by one, those that are only a pattern, and the unlisted.
struct CustomerBook: Sendable {
    private(set) var catalogue = EntitlementCatalogue()
    private var records: [Int: CustomerRecord] = [:]
    private var nextKey = 0
    /// By the bytes of an id: RevenueCat keeps apart what Unicode equates.
    private var keys: [[UInt8]: Int] = [:]
    /// Store and RevenueCat identifiers of items held one by one.
    private var holders: [String: Int] = [:]
    private var generators: [CustomerGenerator] = []
    /// The answer for an unlisted id, but for the identifiers.
    private var unlisted: CustomerRecord?
    /// Ids that a pattern or the default would answer, had they not been deleted.
    private var deleted: Set<[UInt8]> = []

    /// An item that a lookup found, and who holds it.
    struct Holding<Item: ItemRecord>: Sendable {
        var customer: CustomerRecord
        var item: Item
    }

    /// Why a customer cannot be stored.
    struct Conflict: Error {
        /// The id in question.
        var id: String
        /// The customer that has it already.
        var owner: String
    }

    /// Fills the book from a scenario.
    init(_ scenario: Scenario, nowMs: Int64) throws {
        var builder = RecordBuilder(nowMs: nowMs, catalogue: EntitlementCatalogue())
        // `premium` always exists, so that grants work in an empty project.
        _ = builder.catalogue.position(of: "premium")
        for entitlement in scenario.entitlements { builder.catalogue.declare(entitlement) }
        generators = scenario.generate.enumerated().compactMap { index, block in
            CustomerGenerator(block, block: index, builder: &builder)
        }
        let customers = scenario.customers.map { builder.customer($0) }
        unlisted = scenario.defaultCustomer.map { builder.customer($0) }
        catalogue = builder.catalogue
        for customer in customers { try store(customer) }
    }

    // MARK: Reading

    /// The customer that an id or alias reaches.
    func customer(_ id: String) -> CustomerRecord? {
        if let key = keys[Array(id.utf8)] { return records[key] }
        guard !deleted.contains(Array(id.utf8)) else { return nil }
        for generator in generators {
            if let number = generator.number(of: id) { return generator.customer(number) }
        }
        return unlistedCustomer(id)
    }

    private func unlistedCustomer(_ id: String) -> CustomerRecord? {
        guard var customer = unlisted else { return nil }
        customer.id = id
        for index in customer.subscriptions.indices {
            let seed = "\(id)/s\(index)"
            customer.subscriptions[index].identify(Identifiers.hex(seed), digits: Identifiers.digits(seed))
        }
        for index in customer.purchases.indices {
            let seed = "\(id)/p\(index)"
            customer.purchases[index].identify(Identifiers.hex(seed), digits: Identifiers.digits(seed))
        }
        return customer
    }

    /// The subscription with a RevenueCat id, or with a present or past store identifier.
    func subscription(_ identifier: String) -> Holding<SubscriptionRecord>? {
        // Play renewals carry a suffix: GPA.1234-5678-9012-34567..0 belongs to the order without it.
        let parts = identifier.split(separator: "..", maxSplits: 1)
        let order = identifier.hasPrefix("GPA.") && parts.count == 2 ? String(parts[0]) : identifier
        return holding(of: order) { customer in
            customer.subscriptions.first {
                $0.storeIdentifier == order || $0.id == order || $0.pastIdentifiers.contains(order)
                    || $0.storeIdentifier == identifier || $0.pastIdentifiers.contains(identifier)
            }
        }
    }

    /// The purchase with a RevenueCat id or a store identifier.
    func purchase(_ identifier: String) -> Holding<PurchaseRecord>? {
        holding(of: identifier) { customer in
            customer.purchases.first { $0.storeIdentifier == identifier || $0.id == identifier }
        }
    }

    /// Customers held one by one, by primary id; those that are only a pattern are not listed.
    var heldCustomers: [CustomerRecord] {
        records.values.sorted { $0.id < $1.id }
    }

    private func holding<Item>(of identifier: String, item: (CustomerRecord) -> Item?) -> Holding<Item>? {
        if let key = holders[identifier], let customer = records[key], let item = item(customer) {
            return Holding(customer: customer, item: item)
        }
        for generator in generators {
            guard let number = generator.number(inIdentifier: identifier) else { continue }
            let customer = generator.customer(number)
            // Once a request has changed or deleted the customer, the pattern no longer speaks for it.
            let bytes = Array(customer.id.utf8)
            guard keys[bytes] == nil, !deleted.contains(bytes) else { continue }
            if let item = item(customer) { return Holding(customer: customer, item: item) }
        }
        return nil
    }

    // MARK: Changing

    /// Stores a customer as a scenario describes it, in place of the one with the same id.
    mutating func put(_ scenario: CustomerScenario, nowMs: Int64) throws -> CustomerRecord {
        var builder = RecordBuilder(nowMs: nowMs, catalogue: catalogue)
        let record = builder.customer(scenario)
        try store(record)
        catalogue = builder.catalogue
        return record
    }

    /// Stores a customer in place of the one with the same primary id.
    ///
    /// - Throws: `Conflict` when an id or alias belongs to another customer.
    mutating func store(_ record: CustomerRecord) throws {
        for id in record.ids {
            if let key = keys[Array(id.utf8)], let owner = records[key], !owner.id.utf8.elementsEqual(record.id.utf8) {
                throw Conflict(id: id, owner: owner.id)
            }
        }
        forget(record.id)
        let key = nextKey
        nextKey += 1
        records[key] = record
        for id in record.ids {
            keys[Array(id.utf8)] = key
            deleted.remove(Array(id.utf8))
        }
        for identifier in record.identifiers { holders[identifier] = key }
    }

    /// Deletes a customer by any of its ids.
    ///
    /// - Returns: the deleted customer, or nil where there was none.
    @discardableResult
    mutating func delete(_ id: String) -> CustomerRecord? {
        guard let record = customer(id) else { return nil }
        forget(record.id)
        if !generators.isEmpty || unlisted != nil { deleted.formUnion(record.ids.map { Array($0.utf8) }) }
        return record
    }

    private mutating func forget(_ primary: String) {
        guard let key = keys[Array(primary.utf8)], let old = records.removeValue(forKey: key) else { return }
        for id in old.ids where keys[Array(id.utf8)] == key { keys[Array(id.utf8)] = nil }
        for identifier in old.identifiers where holders[identifier] == key { holders[identifier] = nil }
    }
}

extension CustomerRecord {
    /// By which the customer's items are found; the order of a renewal of Google Play's is among them.
    fileprivate var identifiers: [String] {
        subscriptions.flatMap { item in
            [item.id, item.storeIdentifier] + item.pastIdentifiers
                + item.storeIdentifier.split(separator: "..").prefix(1).map(String.init)
        } + purchases.flatMap { [$0.id, $0.storeIdentifier] }
    }
}
