import Crypto
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

    /// SHA-256 over every fact.
    ///
    /// Each fact is written as its length and its bytes, so that no two sets of facts are written alike.
    private var factsHash: [UInt8] {
        var facts = CanonicalFacts()
        facts.add("revenuecat/2")
        facts.add(kind.rawValue)
        facts.add(store)
        facts.add(environment)
        facts.add(identifiers.count)
        for identifier in identifiers {
            facts.add(identifier.kind)
            facts.add(identifier.store)
            facts.add(identifier.environment)
            facts.add(identifier.value)
        }
        facts.add(productID)
        facts.add(entitlements.count)
        for entitlement in entitlements { facts.add(entitlement) }
        facts.add(status.raw)
        facts.add(givesAccess.map { $0 ? "true" : "false" })
        facts.add(isPaymentPending ? "pending" : nil)
        facts.add(renewal)
        facts.add(periodStartsAt.map { String($0.microseconds) })
        facts.add(periodEndsAt.map { String($0.microseconds) })
        facts.add(ownership)
        switch owner {
        case .askedUser: facts.add("asked")
        case .anonymous: facts.add("anonymous")
        case .otherUser(let id):
            facts.add("other")
            facts.add(id)
        }
        return Array(SHA256.hash(data: facts.bytes))
    }
}

/// Facts behind one another, each told apart from its neighbours and from nothing at all.
private struct CanonicalFacts {
    private(set) var bytes: [UInt8] = []

    mutating func add(_ text: String?) {
        guard let text else {
            bytes.append(UInt8(ascii: "-"))
            return
        }
        bytes += "\(text.utf8.count):".utf8
        bytes += text.utf8
    }

    mutating func add(_ count: Int) { bytes += "#\(count)".utf8 }
}
