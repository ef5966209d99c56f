import Entitlements

extension Observation {
    /// Turns an item into what the domain reasons about; its entitlements are those of every page of their list.
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
            let suffix = item.ownership == "family_shared" ? "#family:\(item.id)" : ""
            identifiers += Self.names(storeID, of: item.ledgerStore).map {
                PurchaseIdentifier(
                    value: $0 + suffix,
                    store: item.ledgerStore,
                    environment: item.environment,
                    kind: "store_id"
                )
            }
        }
        self.init(
            kind: item.kind,
            store: item.ledgerStore,
            environment: item.environment,
            identifiers: identifiers,
            // Lists have no documented order; the same facts must give the same observation.
            entitlements: Set(entitlements).sorted(),
            status: StoreStatus(item.status),
            givesAccess: item.givesAccess,
            ownership: item.ownership,
            owner: owner
        )
        productID = item.productID
        isPaymentPending = item.isPaymentPending
        renewal = item.renewal
        periodStartsAt = item.startsAt
        periodEndsAt = item.endsAt
        payloadHash = factsHash
    }

    /// A store's id, and what else the store itself calls the purchase by.
    ///
    /// Google Play adds `..0`, `..1` to the order id with each renewal; the id without it names them all.
    private static func names(_ value: String, of store: String) -> [String] {
        let base = store == Store.googlePlay.rawValue ? OrderNumber.base(value) : value
        return base == value ? [value] : [value, base]
    }
}
