/// An entitlement of the project.
struct EntitlementRecord: Sendable {
    var id: String
    var lookupKey: String
    var displayName: String
    let createdAtMs: Int64 = 1_700_000_000_000
}

/// The project's entitlements; a position never changes its meaning, so records may hold positions.
struct EntitlementCatalogue: Sendable {
    private(set) var entries: [EntitlementRecord] = []
    private var positions: [String: Int] = [:]

    /// The position of a lookup key; an unknown one is added with a derived id.
    mutating func position(of lookupKey: String) -> Int {
        if let position = positions[lookupKey] { return position }
        // The example id of RevenueCat's own documents belongs to `premium`.
        let id = lookupKey == "premium" ? "entl9f8e7d6c5b" : "entl" + Identifiers.hex("entitlement/" + lookupKey)
        let title = lookupKey.prefix(1).uppercased() + lookupKey.dropFirst()
        positions[lookupKey] = entries.count
        entries.append(EntitlementRecord(id: id, lookupKey: lookupKey, displayName: title))
        return entries.count - 1
    }

    /// The position of an entitlement id, if there is one.
    func position(ofID id: String) -> Int? {
        entries.firstIndex { $0.id == id }
    }

    /// Adds what a scenario declares.
    mutating func declare(_ entitlement: Scenario.EntitlementScenario) {
        let position = position(of: entitlement.lookupKey)
        if let id = entitlement.id { entries[position].id = id }
        if let name = entitlement.displayName { entries[position].displayName = name }
    }
}
