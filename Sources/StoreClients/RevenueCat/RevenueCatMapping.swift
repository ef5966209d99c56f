import Entitlements

extension Observation {
    /// Turns an item into what the domain reasons about.
    ///
    /// - Parameters:
    ///   - item: as the API listed it.
    ///   - entitlements: its lookup keys, from every page of its list.
    ///   - owner: whose it is.
    init(_ item: WireItem, entitlements: [String], owner: NamedOwner) {
        var identifiers = [
            PurchaseIdentifier(
                value: item.id,
                store: "revenuecat",
                environment: item.environment,
                kind: "revenuecat_id"
            )
        ]
        if let storeID = item.storeIdentifier {
            // The members of a family may show one transaction; each member's share is a purchase of its own.
            let value = item.ownership == "family_shared" ? "\(storeID)#family:\(item.id)" : storeID
            identifiers.append(
                PurchaseIdentifier(value: value, store: item.store, environment: item.environment, kind: "store_id")
            )
        }
        self.init(
            kind: item.kind,
            store: item.store,
            environment: item.environment,
            identifiers: identifiers,
            productID: item.productID,
            // Lists have no documented order; the same facts must give the same observation.
            entitlements: Set(entitlements).sorted(),
            status: StoreStatus(item.status),
            givesAccess: item.givesAccess,
            isPaymentPending: item.isPaymentPending,
            renewal: item.renewal,
            periodStartsAt: item.startsAt,
            periodEndsAt: item.endsAt,
            ownership: item.ownership,
            owner: owner
        )
        payloadHash = factsHash
    }
}
