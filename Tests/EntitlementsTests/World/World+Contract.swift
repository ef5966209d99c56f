import Entitlements

/// The laws by what the stores and the host hold themselves, without the product's words for it.
extension World {
    /// Whether the host made the person a subscriber after our last decision, which found no access.
    func isComped(_ record: Int) -> Bool {
        guard let person = records[record].person, people[person].status.isEligible else { return false }
        return people[person].type == .subscriber && records[record].decidedType == .free
    }

    /// The person's purchases whose paid period still runs, of which the stores do not say anything.
    func unknownPurchases(_ look: Look, _ input: DecisionInput) -> [Int] {
        let listed = Set(look.truth.flatMap(\.names).compactMap { names[$0] })
        let asked = look.reading.askedAt
        return rows.indices.filter { row in
            let facts = rows[row].facts
            guard rows[row].mergedInto == nil, facts.ownerKey == input.userKey, !listed.contains(row),
                facts.givesAccess == true, facts.observedAt <= asked || clock < facts.observedAt
            else { return false }
            // Support moved what RevenueCat held for the user.
            if let moved = records[look.record].movedAwayAt, facts.observedAt <= moved { return false }
            return facts.periodEndsAt.map { asked < $0 } ?? false
        }
    }

    /// Whether the store gives access by what is the user's own beyond any doubt.
    func ownsAccess(_ look: Look, _ input: DecisionInput) -> Bool {
        func isUndisputed(_ truth: Truth) -> Bool {
            truth.names.compactMap { names[$0] }.allSatisfy { row in
                let facts = rows[row].facts
                return facts.ownerKey == input.userKey
                    && (facts.accountKey ?? input.userKey) == input.userKey
                    && (facts.observedAt <= look.reading.askedAt || clock < facts.observedAt)
            }
        }
        return look.truth.indices.contains { place in
            let truth = look.truth[place]
            let isNew = truth.names.allSatisfy { names[$0] == nil }
            // What is not on record yet is judged with everything that is listed of its purchase.
            let all = isNew ? kin(of: place, look) : [truth]
            let isNamed = truth.account.map { $0 == look.person } ?? (truth.isCustomers || truth.isSubmitted || !isNew)
            return truth.gives && isNamed && all.allSatisfy(isUndisputed) && !all.contains { isHeldElsewhere($0, look) }
        }
    }

    /// What is listed of one purchase: by common names or rows, directly or through others.
    private func kin(of place: Int, _ look: Look) -> [Truth] {
        var (found, left) = ([look.truth[place]], look.truth)
        left.remove(at: place)
        var at = 0
        while at < found.count {
            let one = found[at]
            let isOne = { (other: Truth) in
                !Set(one.names).isDisjoint(with: other.names)
                    || !Set(one.names.compactMap { names[$0] }).isDisjoint(with: other.names.compactMap { names[$0] })
            }
            found += left.filter(isOne)
            left.removeAll(where: isOne)
            at += 1
        }
        return found
    }

    /// Whether RevenueCat moves a purchase to the user about which another item of the reading still speaks for the former
    /// owner, or as about another purchase: both users are read again.
    func isMoving(_ look: Look) -> Bool {
        let attributions = input(look).attributions
        let names = Set(attributions.map(\.name))
        guard names.contains("owner_followed_revenuecat") else { return false }
        guard !names.contains("foreign") else { return true }
        let items = Array(zip(look.reading.observations, attributions))
        return items.contains { item, attribution in
            guard case .followed(let row, _, _) = attribution else { return false }
            return items.contains { other, its in
                if case .collision = its { return other.identifiers.contains { self.names[Name($0)] == Int(row) } }
                return its.counts && its.target != row
                    && !Set(item.identifiers.map(\.key)).isDisjoint(with: other.identifiers.map(\.key))
            }
        }
    }

    /// L2, L3 and L4 by the store's own truth.
    func judgeByTruth(_ verdict: Verdict, _ look: Look, _ input: DecisionInput) throws(Broken) {
        if verdict.action != .grant, ownsAccess(look, input) {
            throw Broken(law: "L2: the store gives access, denied by \(verdict.rule)")
        }
        if verdict.action == .grant, input.grants != .active, !hasBasis(look, input) {
            throw Broken(law: "L4: access without anything of the user's own, by \(verdict.rule)")
        }
        guard look.reading.coverage == .full, verdict.action != .grant else { return }
        if !unknownPurchases(look, input).isEmpty {
            throw Broken(law: "L3: a store that does not know a running purchase was believed: \(verdict.rule)")
        }
    }

    /// Whether RevenueCat names another customer for what is shown, or another listed item contradicts it.
    private func isHeldElsewhere(_ truth: Truth, _ look: Look) -> Bool {
        zip(look.reading.observations, look.truth).contains { item, other in
            guard !Set(truth.names).isDisjoint(with: other.names) else { return false }
            switch item.owner {
            case .heldElsewhere, .otherAccount: return true
            default: return false
            }
        } || Set(truth.names.compactMap { names[$0] }).count > 1
    }

    /// Whether anything of the user's own can give access: what is listed for the user or carries the user's id, what
    /// no one is named for, what people moved to the user, or what a newer reading left on record.
    private func hasBasis(_ look: Look, _ input: DecisionInput) -> Bool {
        let key = input.userKey
        let isListed = look.truth.indices.contains { place in
            let truth = look.truth[place]
            guard truth.gives else { return false }
            // What support moved to somebody else gives nothing by another name.
            let isOwn = truth.names.compactMap { names[$0] }.contains { rows[$0].facts.ownerKey == key }
            let isMovedAway = kin(of: place, look).contains { other in
                let held = Set(other.names.compactMap { names[$0] }).map { rows[$0].facts }
                // What leads to purchases of several owners says nothing of either.
                return Set(held.compactMap(\.ownerKey)).count == 1
                    && held.contains { $0.transferredAt != nil && $0.ownerKey != key }
            }
            guard isOwn || !isMovedAway else { return false }
            let isMoved = truth.names.compactMap { names[$0] }.contains {
                rows[$0].facts.ownerKey == key && rows[$0].facts.transferredAt != nil
            }
            return isMoved || truth.isCustomers || truth.account.map { $0 == look.person } ?? true
        }
        return isListed
            || rows.contains { row in
                row.mergedInto == nil && row.facts.ownerKey == key && row.facts.givesAccess == true
                    && row.facts.observedAt > look.reading.askedAt && row.facts.observedAt <= clock
            }
    }

    /// L1: two purchases without a common name never become one row, however alike their names are.
    func judgeNames() throws(Broken) {
        var holders: [Name: Int] = [:]
        for place in items.indices {
            guard let first = lineage(of: place).min() else { continue }
            for name in items[place].identifiers.map(Name.init) { holders[name] = first }
        }
        var clusters: [Int: Int] = [:]
        for (name, row) in names {
            guard let place = holders[name] else { throw Broken(law: "L1: a name of no purchase") }
            if clusters.updateValue(place, forKey: row).map({ $0 != place }) == true {
                throw Broken(law: "L1: two purchases are one row")
            }
        }
    }

    /// After a reading its purchases stand as the strongest of their items says, and the user's are on record.
    func judgeRecords(_ look: Look, _ input: DecisionInput) throws(Broken) {
        for (item, attribution) in zip(look.reading.observations, input.attributions) where attribution.counts {
            for row in Set(item.identifiers.compactMap { names[Name($0)] }) {
                let facts = rows[row].facts
                guard facts.observedAt == look.reading.askedAt else { continue }
                if item.givesAccess == true, facts.givesAccess != true {
                    throw Broken(law: "a purchase that gives access is on record as \(facts.status.raw)")
                }
                guard item.givesAccess == true, let end = item.periodEndsAt, let known = facts.periodEndsAt else {
                    continue
                }
                if known < end { throw Broken(law: "of two items with access the earlier end is on record") }
            }
        }
    }
}
