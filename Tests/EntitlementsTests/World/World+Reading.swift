@testable import Entitlements

extension World {
    /// What the stores answer about a person now.
    ///
    /// - Parameters:
    ///   - person: who is asked for.
    ///   - kind: the job's.
    ///   - parity: leaves every other item out.
    ///   - notified: the item that an event is about.
    ///   - shown: the item of which the person has shown a proof.
    /// - Returns: the reading.
    func look(_ person: Int, _ kind: JobKind, parity: Int? = nil, notified: Int? = nil, shown: Int? = nil) -> Look {
        var listed: [(item: Observation, truth: Truth)] = []
        for (place, item) in items.enumerated() {
            let isCustomers = item.isListed && item.customer == person && !hasOthersKey
            if isCustomers {
                let truth = Truth(
                    names: item.identifiers.map(Name.init),
                    gives: item.access,
                    isCustomers: true,
                    account: item.account,
                    isSubmitted: false
                )
                listed.append((observation(of: item, .askedUser, .revenueCat), truth))
            }
            guard item.isAtStore, let answer = answer(about: place, person, notified: notified, shown: shown) else {
                continue
            }
            listed.append(answer)
        }
        if let parity { listed = listed.enumerated().filter { $0.offset % 2 == parity }.map(\.element) }
        return Look(
            person: person,
            record: people[person].record,
            kind: kind,
            reading: Reading(
                coverage: parity == nil ? .full : .partial,
                askedAt: clock,
                observations: listed.map(\.item),
                failure: parity == nil ? nil : ReadFailure(.timeout)
            ),
            truth: listed.map(\.truth)
        )
    }

    /// Whether a person's record owns the purchase behind a name.
    func isOwned(_ name: Name, by person: Int) -> Bool {
        names[name].map { rows[$0].facts.ownerKey == Int64(people[person].record + 1) } ?? false
    }

    /// What the store itself answers about a purchase, if it is asked: one item for all that belongs to it.
    ///
    /// - Returns: `nil` where it is not asked, or answers at another item of the purchase.
    private func answer(about place: Int, _ person: Int, notified: Int?, shown: Int?) -> (Observation, Truth)? {
        let lineage = lineage(of: place)
        guard lineage.min() == place, let last = lineage.filter({ items[$0].isListed }).max(by: isWeaker) else {
            return nil
        }
        var item = items[last]
        item.identifiers = Set(lineage.flatMap { items[$0].identifiers }).sorted()
        let isSubmitted = shown.map(lineage.contains) ?? false
        let isOwn = item.identifiers.contains { isOwned(Name($0), by: person) }
        guard isOwn || isSubmitted || notified.map(lineage.contains) ?? false else { return nil }
        let store = item.identifiers[0].store == "play_store" ? Store.googlePlay : .appStore
        let customers = Set(lineage.compactMap { items[$0].customer })
        var answer = observation(of: item, owner(of: item, customers, for: person, isSubmitted: isSubmitted), store)
        answer.isSubmitted = isSubmitted
        let truth = Truth(
            names: item.identifiers.map(Name.init),
            gives: item.access,
            isCustomers: false,
            account: item.account,
            isSubmitted: isSubmitted
        )
        return (answer, truth)
    }

    private func isWeaker(_ one: Int, _ other: Int) -> Bool {
        let pair = [one, other].map { observation(of: items[$0], .unnamed, .appStore) }
        return Self.isWeaker(pair[0], pair[1])
    }

    /// The owner that the store itself names, which knows at most the id that the app gave it.
    private func owner(of item: Item, _ customers: Set<Int>, for person: Int, isSubmitted: Bool) -> NamedOwner {
        if let account = item.account { return account == person ? .account : .otherAccount(id: id(of: account)) }
        // RevenueCat is asked whose it is before a proof makes an owner.
        if isSubmitted, !hasOthersKey, !customers.contains(person), let customer = customers.min() {
            return .heldElsewhere(id: id(of: customer))
        }
        return .unnamed
    }

    /// The items that belong to one purchase by their names, directly or through others.
    func lineage(of place: Int, where isListed: (Item) -> Bool = { _ in true }) -> Set<Int> {
        var (found, spelled): (Set<Int>, Set<Name>) = ([place], Set(items[place].identifiers.map(Name.init)))
        while let next = items.indices.first(where: {
            !found.contains($0) && isListed(items[$0])
                && !spelled.isDisjoint(with: items[$0].identifiers.map(Name.init))
        }) {
            found.insert(next)
            spelled.formUnion(items[next].identifiers.map(Name.init))
        }
        return found
    }

    private func observation(of item: Item, _ owner: NamedOwner, _ source: Store) -> Observation {
        var observation = Observation(
            kind: .subscription,
            store: item.identifiers[0].store,
            environment: "production",
            identifiers: item.identifiers,
            entitlements: ["premium"],
            status: StoreStatus(item.status),
            givesAccess: item.access,
            ownership: item.isFamilyShared ? "family_shared" : "purchased",
            owner: owner,
            source: source
        )
        observation.renewal = item.renewal
        observation.periodEndsAt = item.ends
        return observation
    }

    /// A row as it counts for a reading: what was observed later than now was observed by a clock that was ahead.
    private func current(_ facts: Purchase, _ asked: Instant) -> Purchase {
        guard clock < facts.observedAt else { return facts }
        var same = facts
        same.observedAt = min(facts.observedAt, asked)
        return same
    }

    /// The rows that an item leads to, as they count for a reading.
    func holders(of item: Observation, _ asked: Instant) -> [Purchase] {
        Set(item.identifiers.compactMap { names[Name($0)] }).sorted().map { current(rows[$0].facts, asked) }
    }

    /// Everything that a verdict rests on.
    func input(_ look: Look) -> DecisionInput {
        let record = records[look.record]
        let person = record.person.map { people[$0] }
        let (key, asked) = (Int64(look.record + 1), look.reading.askedAt)
        let holders = look.reading.observations.map { self.holders(of: $0, asked) }
        let attributions = attribute(
            look.reading.observations,
            holders: holders,
            userKey: key,
            eligible: person?.status.isEligible ?? false,
            askedAt: asked
        )
        let targets = attributions.map { attribution in
            attribution.target.flatMap { id in holders.joined().first { $0.id == id } }
        }
        let isGranted = record.grants.contains { !$0.isRevoked && clock < $0.until }
        var input = DecisionInput(
            kind: look.kind,
            user: person.map { User(id: id(of: look.person), type: $0.type, status: $0.status) },
            userKey: key,
            reading: look.reading,
            attributions: attributions,
            rows: targets,
            ledger: rows.filter { $0.mergedInto == nil && $0.facts.ownerKey == key }.map { current($0.facts, asked) },
            listed: Set(holders.joined().map(\.id)),
            catalog: catalog
        )
        input.grants = isGranted ? .active : record.grants.isEmpty ? .none : .past
        input.everObserved = record.everObserved
        input.decidedType = record.decidedType
        input.absentSince = record.absentSince
        input.movedAwayAt = record.movedAwayAt
        return input
    }
}
