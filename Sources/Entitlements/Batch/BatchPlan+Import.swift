/// What became of a line of a file that names users' purchases.
package enum ImportResult: String, Sendable, CaseIterable {
    /// It is written once an operator has approved the import.
    case planned
    case imported
    case alreadyOwned = "already_owned"
    /// The line says the same as an earlier one.
    case repeated
    // Conflicts: nothing is written, and operators see the line in the report alone.
    case ownedByAnother = "owned_by_another"
    /// The id that the app gave the store names another user.
    case namesAnother = "names_another"
    /// RevenueCat names another customer.
    case heldElsewhere = "held_elsewhere"
    /// The file names several users for the purchase.
    case namedForSeveral = "named_for_several"
    /// The store's identifiers of the purchase stand in the ledger with several owners.
    case identityCollision = "identity_collision"
    /// Only the id that the app gave the store may name the owner, and there is none.
    case unattributable
    // Lines that lead to no purchase, or to no user who may have it.
    case malformed
    case unknownUser = "unknown_user"
    case notEligible = "not_eligible"
    case notFound = "not_found"
    case sandbox
    /// The store is not configured.
    case storeOff = "store_off"
    /// The store, or the records, gave no answer however often they were asked.
    case unread
    /// The user was erased since.
    case erased

    /// Whether another user's claim keeps the line from being written.
    package var isConflict: Bool {
        switch self {
        case .ownedByAnother, .namesAnother, .heldElsewhere, .namedForSeveral, .identityCollision, .unattributable:
            true
        case .planned, .imported, .alreadyOwned, .repeated, .malformed, .unknownUser, .notEligible, .notFound, .sandbox,
            .storeOff, .unread, .erased:
            false
        }
    }
}

extension BatchPlan {
    /// Judges a purchase that an operator names for a user, and plans its record where it has no other owner.
    ///
    /// `item`: what the store said of the purchase, at least one observation. `user`: under our lock. `writes`: `false` judges alone,
    /// for which several lines may be about one purchase. Returns `nil` where the line has to be read again.
    package mutating func add(
        imported item: ReadJob,
        user: User,
        facts: UserFacts,
        holders: [PurchaseIdentifierKey: Purchase],
        writes: Bool
    ) -> ImportResult? {
        guard !facts.isErased else { return .erased }
        guard user.status.isEligible else { return .notEligible }
        let items = item.reading.observations
        guard items.allSatisfy({ !$0.isSandbox }) || facts.sandbox == .allowed else { return .sandbox }
        let keys = Set(items.flatMap { $0.identifiers.map(\.key) })
        let rows = items.map { Array(Set($0.identifiers.compactMap { holders[$0.key] })) }
        let ids = Set(rows.joined().map(\.id))
        guard !writes || touch(keys, ids) else { return nil }
        let attributions = attribute(
            items,
            holders: rows,
            userKey: item.job.userKey,
            eligible: true,
            askedAt: item.reading.askedAt
        )
        if let index = attributions.firstIndex(where: { !$0.counts }) {
            return refusal(attributions[index], items[index])
        }
        guard rows.contains(where: { $0.allSatisfy { $0.ownerKey != item.job.userKey } }) else { return .alreadyOwned }
        guard writes else { return .planned }
        for row in rows.joined() { firstSeen[row.id] = row.firstSeenAt }
        let byID = Dictionary(rows.joined().map { ($0.id, $0) }) { first, _ in first }
        observe(
            item,
            attributions: attributions,
            targets: attributions.map { $0.target.flatMap { byID[$0] } },
            holders: holders
        )
        return .imported
    }

    /// Why a purchase does not become the user's; `nil`: the records moved on while the store was asked.
    private func refusal(_ attribution: Attribution, _ item: Observation) -> ImportResult? {
        switch attribution {
        case .overtaken: return nil
        case .collision: return .identityCollision
        case .unattributed: return .unattributable
        case .disagree: return .ownedByAnother
        case .foreign(_, let owner, _):
            if owner != nil { return .ownedByAnother }
            if case .heldElsewhere = item.owner { return .heldElsewhere }
            return .namesAnother
        case .contradicted, .unowned, .otherUser, .anonymous, .sameAccount, .new, .own, .followed: return .namesAnother
        }
    }
}
