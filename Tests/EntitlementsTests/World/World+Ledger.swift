import Entitlements

extension World {
    /// What one reading says about one purchase: items that share a name, or a row.
    private struct Finding {
        var items: [Observation]
        /// The rows that they lead to.
        var rows: [Int]
        /// Whose it is.
        var word: Word
        /// Whether it moves to the asked user from another one.
        var isFollowed = false

        enum Word: Hashable {
            case own, unowned
            /// Another's, with the asked user's id: the user's as soon as RevenueCat has moved it to them.
            case moving
            /// The person of the app's id; the owner, unless a witness contradicts.
            case account(Int?, isOwner: Bool)
        }
    }

    /// Writes what was read: items that share a name are one purchase, and the strongest of them stands.
    mutating func record(_ input: DecisionInput, _ look: Look) {
        let (key, asked) = (input.userKey, look.reading.askedAt)
        for finding in findings(input, look) {
            guard let strongest = finding.items.max(by: Self.isWeaker) else { continue }
            let place: Int
            switch finding.word {
            case .own:
                if finding.items.count > 1 { note("several items on one record") }
                // Rows without an owner become the user's, and another's follows, before rows of one owner are merged.
                for row in finding.rows { take(root(row), key, asked) }
                place = join(finding.rows) ?? add(strongest, key, asked)
                update(place, strongest, isNamed: finding.items.contains { $0.owner == .account }, key, asked)
            case .unowned:
                place = join(finding.rows) ?? add(strongest, nil, asked)
                update(place, strongest, isNamed: false, rows[place].facts.ownerKey, asked)
            case .moving: continue
            case .account(let account, let isOwner):
                place = finding.rows.first.map(root) ?? add(strongest, nil, asked)
                let named = account.map { Int64(people[$0].record + 1) }
                if isOwner, rows[place].facts.ownerKey == nil {
                    rows[place].facts.ownerKey = named
                    rows[place].facts.ownerSince = asked
                }
                let isByAccount = finding.items.contains { if case .otherAccount = $0.owner { true } else { false } }
                if isByAccount { rows[place].facts.accountKey = named }
            }
            for name in finding.items.flatMap(\.identifiers).map(Name.init) where names[name] == nil {
                names[name] = place
            }
        }
    }

    private func findings(_ input: DecisionInput, _ look: Look) -> [Finding] {
        var findings: [Finding] = []
        for (item, attribution) in zip(look.reading.observations, input.attributions) {
            var found: Finding
            switch attribution {
            case .new: found = Finding(items: [item], rows: [], word: .own)
            case .own(let into, let merging):
                found = Finding(items: [item], rows: ([into] + merging).map { Int($0) }, word: .own)
            case .followed(let into, _, let merging):
                let rows = ([into] + merging).map { Int($0) }
                found = Finding(items: [item], rows: rows, word: .own, isFollowed: true)
            case .unowned(let into, let merging):
                let rows = into.map { [$0] + merging } ?? []
                found = Finding(items: [item], rows: rows.map { Int($0) }, word: .unowned)
            case .foreign(let purchase, nil, let account?):
                let word = Finding.Word.account(person(behind: account), isOwner: true)
                found = Finding(items: [item], rows: purchase.map { [Int($0)] } ?? [], word: word)
            case .foreign(let purchase?, _?, _) where item.owner == .account:
                found = Finding(items: [item], rows: [Int(purchase)], word: .moving)
            case .contradicted(let purchase, _, let account?):
                let word = Finding.Word.account(person(behind: account), isOwner: false)
                found = Finding(items: [item], rows: purchase.map { [Int($0)] } ?? [], word: word)
            default: continue
            }
            // What is over makes no owner; what goes on under the same name does.
            for other in findings where areOne(found, other) {
                if other.word == .own { found.word = .own }
                found.isFollowed = found.isFollowed || other.isFollowed
                found.items += other.items
                found.rows += other.rows.filter { !found.rows.contains($0) }
            }
            findings.removeAll { areOne(found, $0) }
            findings.append(found)
        }
        return findings
    }

    private func areOne(_ one: Finding, _ other: Finding) -> Bool {
        let words: Set<Finding.Word> = [one.word, other.word]
        guard words.count == 1 || words == [.own, .unowned] || words == [.own, .moving] else { return false }
        guard Set(one.rows.map(root)).isDisjoint(with: other.rows.map(root)) else { return true }
        // Rows of two owners are merged when a later reading finds them with one.
        guard one.rows.isEmpty || other.rows.isEmpty || !one.isFollowed && !other.isFollowed else { return false }
        let (left, right) = (one.items.flatMap(\.identifiers), other.items.flatMap(\.identifiers))
        return !Set(left.map(Name.init)).isDisjoint(with: right.map(Name.init))
    }

    private mutating func join(_ rows: [Int]) -> Int? {
        rows.dropFirst().reduce(rows.first.map(root)) { into, row in into.map { merge(row, $0) } }
    }

    /// Whether one item of a purchase says less than another: the stronger state stands, then the later end.
    static func isWeaker(_ one: Observation, _ other: Observation) -> Bool {
        func strength(_ item: Observation) -> Int {
            if item.givesAccess == true { return 4 }
            switch item.status.raw {
            case "active", "trialing", "in_grace_period", "replaced": return 3
            case "incomplete": return 2
            case "expired", "refunded", "paused", "in_billing_retry": return 0
            default: return 1
            }
        }
        let (left, right) = (strength(one), strength(other))
        guard left == right else { return left < right }
        let never = Instant(microseconds: left == 4 ? .max : .min)
        return (one.periodEndsAt ?? never) < (other.periodEndsAt ?? never)
    }

    func root(_ row: Int) -> Int { rows[row].mergedInto.map(root) ?? row }

    /// Merges two rows of one owner.
    ///
    /// - Returns: the one that stays.
    private mutating func merge(_ one: Int, _ other: Int) -> Int {
        let (into, from) = (min(root(one), root(other)), max(root(one), root(other)))
        guard into != from else { return into }
        note("merge of rows of one owner")
        rows[from].mergedInto = into
        rows[into].facts.transferredAt = [rows[into], rows[from]].compactMap(\.facts.transferredAt).max()
        rows[into].facts.accountKey = rows[into].facts.accountKey ?? rows[from].facts.accountKey
        for (name, row) in names where row == from { names[name] = into }
        return into
    }

    private mutating func take(_ row: Int, _ key: Int64, _ asked: Instant) {
        let owner = rows[row].facts.ownerKey
        guard owner != key else { return }
        if owner != nil {
            note("followed owner")
            // It gave access, and another has it now: that is a word about the former owner.
            if rows[row].facts.givesAccess == true, let former = owner.map({ Int($0) - 1 }) {
                records[former].movedAwayAt = asked
            }
            rows[row].facts.formerOwnerKey = owner
        }
        rows[row].facts.ownerSince = asked
        rows[row].facts.ownerKey = key
    }

    private mutating func add(_ item: Observation, _ key: Int64?, _ asked: Instant) -> Int {
        rows.append(Row(facts: facts(item, Int64(rows.count), key, asked)))
        return rows.count - 1
    }

    private func facts(_ item: Observation, _ id: Int64, _ key: Int64?, _ asked: Instant) -> Purchase {
        var purchase = Purchase(
            id: id,
            ownerKey: key,
            kind: item.kind,
            store: item.store,
            status: item.status,
            givesAccess: item.givesAccess,
            entitlements: item.entitlements,
            observedAt: asked,
            firstSeenAt: Instant(microseconds: id),
            ownerSince: asked
        )
        purchase.environment = item.environment
        purchase.periodEndsAt = item.periodEndsAt
        purchase.endAnnounced = AccessSummary.announces(item, at: asked)
        purchase.isFamilyShared = item.isFamilyShared
        purchase.source = item.source
        return purchase
    }

    private mutating func update(_ place: Int, _ item: Observation, isNamed: Bool, _ key: Int64?, _ asked: Instant) {
        let old = rows[place].facts
        guard old.observedAt <= asked || clock < old.observedAt else { return }
        var new = facts(item, old.id, key, asked)
        new.formerOwnerKey = old.formerOwnerKey
        new.transferredAt = old.transferredAt
        new.ownerSince = old.ownerSince
        new.accountKey = isNamed ? key : old.accountKey
        if item.periodEndsAt.map({ $0 <= asked }) ?? true {
            new.endAnnounced = old.endAnnounced && old.periodEndsAt == item.periodEndsAt
        }
        rows[place].facts = new
    }

    /// A purchase that moved is contested until one of its two owners is read without it.
    mutating func endContests(_ look: Look, _ input: DecisionInput) {
        guard look.reading.coverage == .full else { return }
        let listed = Set(look.reading.observations.flatMap { $0.identifiers.compactMap { names[Name($0)] } })
        for place in rows.indices where rows[place].mergedInto == nil && !listed.contains(place) {
            let facts = rows[place].facts
            guard let former = facts.formerOwnerKey, facts.ownerSince <= look.reading.askedAt,
                former == input.userKey || facts.ownerKey == input.userKey
            else { continue }
            note("contest ended")
            rows[place].facts.formerOwnerKey = nil
        }
    }
}
