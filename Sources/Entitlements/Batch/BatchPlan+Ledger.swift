/// What a batch writes into the ledger.
extension BatchPlan {
    /// Plans what the ledger takes over from a reading.
    mutating func observe(
        _ item: ReadJob,
        attributions: [Attribution],
        targets: [Purchase?],
        holders: [PurchaseIdentifierKey: Purchase]
    ) {
        let none = ObservedRow(
            userKey: item.job.userKey,
            jobID: item.job.id,
            askedAt: item.reading.askedAt,
            coverage: item.reading.coverage,
            ownerRule: "none"
        )
        if item.reading.observations.isEmpty { observed.append(none) }
        let start = observed.count
        for (index, observation) in item.reading.observations.enumerated() {
            let attribution = attributions[index]
            if case .followed(_, let owner, _) = attribution {
                formerOwners.append((owner, item.job.userKey))
                reconciles.append(item.job.userKey)
                // Only what gave access explains that it is gone.
                if let row = targets[index], !row.carried.isEmpty, row.accessState == .access {
                    movedAway[owner] = max(movedAway[owner] ?? item.reading.askedAt, item.reading.askedAt)
                }
            }
            if let (into, merged) = attribution.merger {
                for from in merged { merge(from, with: into) }
            }
            var target = targets[index]
            if let id = target?.id { target?.id = remaining(id) }
            if let target {
                newIdentifiers += observation.identifiers.filter { holders[$0.key] == nil }.map { ($0, target.id) }
            }
            var row = none
            row.observation = observation
            row.attribution = attribution
            row.purchaseID = target?.id
            row.before = target
            row.ownerRule = Self.ownerRule(attribution, observation)
            observed.append(row)
            if attribution.isNew { share(observed.count - 1, from: start) }
        }
        // A later item may have merged the row of an earlier one.
        for index in start..<observed.count { observed[index].purchaseID = observed[index].purchaseID.map(remaining) }
    }

    /// Lets items that speak of one purchase for the first time, in one reading, have one row.
    private mutating func share(_ index: Int, from start: Int) {
        let row = observed[index]
        let keys = Set(row.observation?.identifiers.map(\.key) ?? [])
        var leader = index
        for earlier in start..<index {
            let other = observed[earlier]
            guard let attribution = other.attribution, attribution.isNew,
                attribution == row.attribution || attribution.counts && row.attribution?.counts == true
                    || attribution.hasNoOther && row.attribution?.hasNoOther == true,
                other.account.map(ExactText.init) == row.account.map(ExactText.init),
                let item = other.observation, !keys.isDisjoint(with: item.identifiers.map(\.key))
            else { continue }
            let first = other.sharesRowOf ?? earlier
            let (from, into) = (max(first, leader), min(first, leader))
            guard from != into else { continue }
            for place in start...index where place == from || observed[place].sharesRowOf == from {
                observed[place].sharesRowOf = into
            }
            leader = into
        }
    }

    /// Why the owner is the owner.
    private static func ownerRule(_ attribution: Attribution, _ observation: Observation) -> String {
        if case .foreign(nil, nil, _?) = attribution {
            if case .heldElsewhere = observation.owner { return "named_by_revenuecat" }
            return "account_id"
        }
        guard attribution.counts, observation.source != .revenueCat else {
            return attribution == .new ? "named_by_revenuecat" : attribution.name
        }
        if observation.owner == .account { return "account_id" }
        return observation.isImported ? ObservedRow.importedRule : "first_proof"
    }

    /// Plans a merger; items of one reading may lead through rows that an earlier item has merged already.
    ///
    /// The oldest of all rows that belong together stays, whatever the order of the items.
    private mutating func merge(_ row: Int64, with other: Int64) {
        let pair = [remaining(row), remaining(other)].sorted {
            (firstSeen[$0] ?? Instant(microseconds: 0), $0) < (firstSeen[$1] ?? Instant(microseconds: 0), $1)
        }
        guard let into = pair.first, let from = pair.last, from != into else { return }
        merges.append((from, into))
        mergedInto[from] = into
        for index in newIdentifiers.indices where newIdentifiers[index].1 == from { newIdentifiers[index].1 = into }
    }

    /// The row that is left of one once the mergers of this batch are made.
    private func remaining(_ row: Int64) -> Int64 {
        var row = row
        while let into = mergedInto[row] { row = into }
        return row
    }
}
