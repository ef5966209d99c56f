package import FoundationEssentials

/// An observation on its way into the ledger.
package struct ObservedRow {
    package var userKey: Int64
    package var jobID: UUID
    package var askedAt: Instant
    package var coverage: Coverage
    package var observation: Observation?
    package var attribution: Attribution?
    package var purchaseID: Int64?
    /// The ledger row before; `nil` for a new one.
    package var before: Purchase?
    package var ownerRule: String
    /// The row of the batch that stands in the ledger for this new one as well.
    package var sharesRowOf: Int?

    /// What is on record as observed: the row that it updates, or another user's purchase, for which the user submitted a proof.
    package var observedPurchase: Int64? {
        if case .foreign(let purchase?, _, _) = attribution, observation?.isSubmitted == true { return purchase }
        return purchaseID
    }

    /// Why a user is the owner that an operator has named, and the store has not.
    package static let importedRule = "imported_by_operator"

    /// What the observation is recorded with: an import's rule stands there, because no decision speaks of it.
    package var recordedAttribution: String? {
        ownerRule == Self.importedRule ? ownerRule : attribution?.name
    }

    /// The owner that the row has from now on.
    package var owner: Int64? { attribution?.counts == true ? userKey : nil }

    /// The user that the app's id in the purchase names, if it is not the user who was read.
    package var account: String? {
        switch attribution {
        case .contradicted(_, _, let account), .foreign(_, nil, let account): account
        default: nil
        }
    }

    /// Whether the app's id in the purchase names the user who was asked for, and the purchase is theirs.
    package var isNamed: Bool { observation?.owner == .account && attribution?.counts == true }

    /// Whether the store itself names that user, and not RevenueCat, which may change its mind.
    package var isByAccount: Bool { if case .otherAccount = observation?.owner { true } else { false } }

    /// Whether that user is the owner: no store names another one.
    package var isAccounts: Bool { if case .foreign = attribution { true } else { false } }

    /// What the ledger takes over where several items of one reading share a row, in the order of the first item.
    ///
    /// `key` tells which rows are one; a row without a key stands alone.
    package static func prevailing<Key: Hashable>(
        in rows: [ObservedRow],
        by key: (ObservedRow) -> Key?,
        catalog: ProductCatalog
    ) -> [ObservedRow] {
        let keys = rows.compactMap(key)
        guard keys.count < rows.count || Set(keys).count < keys.count else { return rows }
        var places: [Key: Int] = [:]
        var groups: [[ObservedRow]] = []
        groups.reserveCapacity(rows.count)
        for row in rows {
            let key = key(row)
            if let place = key.flatMap({ places[$0] }) {
                groups[place].append(row)
            } else {
                if let key { places[key] = groups.count }
                groups.append([row])
            }
        }
        return groups.compactMap { prevailing(among: $0, catalog: catalog) }
    }

    private static func prevailing(among rows: [ObservedRow], catalog: ProductCatalog) -> ObservedRow? {
        guard rows.count > 1 else { return rows.first }
        let named = rows.filter { $0.observation != nil }
        let counts = named.map { $0.attribution?.counts == true }
        let prevailing = PrevailingItem(among: named.compactMap(\.observation), counts: counts, catalog: catalog)
        guard let prevailing else { return rows.first }
        var row = named[prevailing.place]
        row.observation?.lookupID = prevailing.lookupID
        row.observation?.storeApp = prevailing.storeApp
        row.observation?.revenueCatProject = prevailing.revenueCatProject
        row.observation?.storeAccount = prevailing.storeAccount
        row.observation?.statedAt = prevailing.statedAt
        // The user that the app's id names is a fact of the purchase, whichever item says it.
        if counts[prevailing.place], named.contains(where: \.isNamed) { row.observation?.owner = .account }
        return row
    }
}
