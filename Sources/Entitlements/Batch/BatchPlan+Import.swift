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
