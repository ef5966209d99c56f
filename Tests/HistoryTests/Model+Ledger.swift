@testable import Entitlements
import Foundation

extension Model {
    /// Writes what was read into the ledger.
    mutating func record(_ effect: Effect) {
        let reading = effect.item.reading
        var known: [(row: Int, observation: Observation)] = []
        var wanted: [(PurchaseIdentifierKey, Int)] = []
        for (observation, attribution) in zip(reading.observations, effect.attributions) {
            switch attribution {
            case .own(let into, let merging), .followed(let into, _, let merging):
                for row in merging.map(Int.init) { merge(row, into: Int(into)) }
                known.append((Int(into), observation))
                wanted += observation.identifiers.map { ($0.key, Int(into)) }
            default: break
            }
        }
        // Rows are numbered in the order of the items that make them.
        for made in (recordOthers(effect) + newRows(effect)).sorted(by: { $0.place < $1.place }) {
            purchases.append(LedgerRow(facts: made.facts))
            purchases[purchases.count - 1].facts.id = Int64(purchases.count - 1)
            purchases[purchases.count - 1].facts.firstSeenAt = Instant(microseconds: Int64(purchases.count - 1))
            wanted += made.names.map { ($0, purchases.count - 1) }
        }
        for (name, row) in wanted where names[name] == nil || contested[name] != nil {
            names[name] = names[name] ?? root(row)
            contested[name, default: []].insert(root(row))
        }
        for (row, items) in Dictionary(grouping: known, by: { root($0.row) }) {
            if items.count > 1 { note("several items on one record") }
            guard purchases[row].facts.observedAt <= reading.askedAt else { continue }
            let isNamed = items.contains { $0.observation.owner == .account }
            update(row, standing(items.map(\.observation)), effect, isNamed: isNamed)
        }
    }

    /// A row that a reading makes: by the place of its first item.
    private struct NewRow {
        var place: Int
        var facts: Purchase
        var names: [PurchaseIdentifierKey]
    }

    /// The user's own new purchases: items that share a name, directly or through others, are one.
    private mutating func newRows(_ effect: Effect) -> [NewRow] {
        var groups: [[(place: Int, item: Observation)]] = []
        for (place, item) in effect.item.reading.observations.enumerated() where effect.attributions[place] == .new {
            let names = Set(item.identifiers.map(\.key))
            let isOne = { (group: [(place: Int, item: Observation)]) in
                !names.isDisjoint(with: group.flatMap { $0.item.identifiers.map(\.key) })
            }
            let touched = groups.filter(isOne).joined()
            groups.removeAll(where: isOne)
            groups.append(touched + [(place, item)])
        }
        return groups.map { group in
            let items = group.map(\.item)
            if items.count > 1 { note("several items make one row") }
            var facts = fresh(standing(items), effect)
            if items.contains(where: { $0.owner == .account }) { facts.accountKey = facts.ownerKey }
            let place = group.map(\.place).min() ?? 0
            return NewRow(place: place, facts: facts, names: items.flatMap { $0.identifiers.map(\.key) })
        }
    }

    /// The key of a user of the host's, who is on record from now on.
    private mutating func meet(_ account: String) -> Int64? {
        guard let user = userIndex(account), people.indices.contains(user) else { return nil }
        if people[user].exists { people[user].isKnown = true }
        return people[user].isKnown ? Int64(user + 1) : nil
    }

    /// Writes what is not the asked user's: the user of the app's id, and what belongs to no one.
    ///
    /// - Returns: the rows that it makes.
    private mutating func recordOthers(_ effect: Effect) -> [NewRow] {
        let asked = effect.item.reading.askedAt
        var made: [NewRow] = []
        for (place, observation) in effect.item.reading.observations.enumerated() {
            func make(owner: Int64?, account: Int64?) {
                var facts = fresh(observation, effect)
                facts.ownerKey = owner
                facts.accountKey = account
                made.append(NewRow(place: place, facts: facts, names: observation.identifiers.map(\.key)))
            }
            switch effect.attributions[place] {
            case .contradicted(let purchase?, _, let account?):
                if let key = meet(account) { purchases[Int(purchase)].facts.accountKey = key }
            case .contradicted(nil, _, let account?):
                let key = meet(account)
                make(owner: nil, account: key)
            case .foreign(let purchase?, nil, let account?):
                guard let key = meet(account) else { continue }
                if !isObserving { enqueue(Int(key) - 1, .reconcile) }
                purchases[Int(purchase)].facts.accountKey = key
                guard purchases[Int(purchase)].facts.ownerKey == nil else { continue }
                purchases[Int(purchase)].facts.ownerKey = key
                purchases[Int(purchase)].facts.ownerSince = asked
            case .foreign(nil, nil, let account?):
                let key = meet(account)
                make(owner: key, account: key)
                if let key, !isObserving { enqueue(Int(key) - 1, .reconcile) }
            case .unowned(nil, _): make(owner: nil, account: nil)
            case .unowned(let purchase?, let merging):
                let row = Int(purchase)
                for other in merging.map(Int.init) { merge(other, into: row) }
                guard purchases[row].facts.observedAt <= asked else { continue }
                let (owner, since) = (purchases[row].facts.ownerKey, purchases[row].facts.ownerSince)
                let former = purchases[row].facts.formerOwnerKey
                update(row, observation, effect, isNamed: false)
                purchases[row].facts.ownerKey = owner
                purchases[row].facts.ownerSince = since
                purchases[row].facts.formerOwnerKey = former
            default: break
            }
        }
        return made
    }

    /// The item that says most for access, then the later end.
    private func standing(_ items: [Observation]) -> Observation {
        let place = PrevailingItem(
            among: items,
            counts: items.map { _ in true },
            catalog: ProductCatalog(catalog)
        )?.place
        return items[place ?? 0]
    }

    private func root(_ row: Int) -> Int {
        var row = row
        while let next = purchases[row].mergedInto { row = next }
        return row
    }

    private mutating func merge(_ row: Int, into other: Int) {
        guard root(row) != root(other) else { return }
        // Rows are numbered in the order in which they were first seen: the oldest stays.
        let (into, from) = (min(root(row), root(other)), max(root(row), root(other)))
        note("merge of rows of one owner")
        purchases[from].mergedInto = into
        let moved = [purchases[into], purchases[from]].compactMap(\.facts.transferredAt).max()
        purchases[into].facts.transferredAt = moved
        purchases[into].facts.accountKey = purchases[into].facts.accountKey ?? purchases[from].facts.accountKey
        for (name, holder) in names where holder == from { names[name] = into }
    }

    private func fresh(_ observation: Observation, _ effect: Effect) -> Purchase {
        let moment = effect.item.reading.askedAt
        var purchase = Purchase(
            id: Int64(purchases.count),
            ownerKey: Int64(effect.item.user + 1),
            kind: observation.kind,
            store: observation.store,
            status: observation.status,
            givesAccess: observation.givesAccess,
            entitlements: observation.entitlements,
            observedAt: moment,
            // Rows count as first seen in the order in which they were written.
            firstSeenAt: Instant(microseconds: Int64(purchases.count)),
            ownerSince: moment
        )
        purchase.environment = observation.environment
        purchase.periodEndsAt = observation.periodEndsAt
        purchase.endAnnounced = AccessSummary.announces(observation, at: moment)
        purchase.isFamilyShared = observation.isFamilyShared
        purchase.source = observation.source
        return purchase
    }

    private mutating func update(_ row: Int, _ observation: Observation, _ effect: Effect, isNamed: Bool) {
        let moment = effect.item.reading.askedAt
        let old = purchases[row].facts
        var facts = fresh(observation, effect)
        facts.id = old.id
        facts.environment = old.environment
        facts.firstSeenAt = old.firstSeenAt
        if let end = observation.periodEndsAt, moment < end {
            facts.endAnnounced = AccessSummary.announces(observation, at: moment)
        } else {
            facts.endAnnounced = old.endAnnounced && old.periodEndsAt == observation.periodEndsAt
        }
        // What was detached while the purchase goes on stays known.
        let isSame = Set(old.carried).isSubset(of: facts.entitlements)
        let products = ProductCatalog(catalog)
        let means = { (keys: [String]) in products.mapping(of: keys) == .access }
        if facts.entitlements.isEmpty || !isSame && !means(facts.entitlements) && means(old.carried) {
            facts.carried = old.carried
        }
        facts.formerOwnerKey = old.formerOwnerKey
        facts.transferredAt = old.transferredAt
        facts.accountKey = isNamed ? facts.ownerKey : old.accountKey
        facts.ownerSince = old.ownerSince
        if old.ownerKey != facts.ownerKey {
            facts.ownerSince = moment
            if old.ownerKey != nil { facts.formerOwnerKey = old.ownerKey }
            note("followed owner")
        }
        purchases[row].facts = facts
    }
}
