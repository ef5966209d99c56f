import Entitlements

extension World {
    /// Applies a reading, and judges what became of it.
    ///
    /// - Returns: the rule that decided; `nil` where the person has to be read again.
    @discardableResult
    mutating func apply(_ look: Look) throws(Broken) -> Rule? {
        let asked = look.reading.askedAt
        if let readAt = records[look.record].readAt, readAt > asked {
            note("overtaken by a newer reading of the user")
            return nil
        }
        let before = self
        let (situation, holders) = situation(look)
        for attribution in situation.attributions { note("attribution \(attribution.name)") }
        let resolution = decide(situation)
        try before.judge(look, situation, resolution)
        endContests(look, situation)
        guard case .verdict(var verdict) = resolution else {
            note("read again")
            return nil
        }
        hold(&verdict, look)
        note("rule \(verdict.rule.rawValue)")
        if verdict.tickets.contains(where: { $0.kind == .sourcesDisagree || $0.kind == .identityCollision }) {
            hasDispute = true
        }
        guard let person = records[look.record].person else { return verdict.rule }
        record(situation, holders, look)
        settle(verdict, person, look, situation)
        try judge(look, situation, verdict, before)
        return verdict.rule
    }

    /// What a run has yet to count is held, and what exceeds the brake.
    private mutating func hold(_ verdict: inout Verdict, _ look: Look) {
        guard verdict.action == .demote, !verdict.wasAnnounced else {
            if verdict.action == .demote { note("announced demotion") }
            return
        }
        if look.isConfirmed { return note("a confirmed demotion passes the brake") }
        let epoch = records[look.record].epoch
        if look.isSwept || sweep?.held[look.record] == epoch {
            note(look.isSwept ? "held by a run" : "held from a reading beside the run")
            sweep?.held[look.record] = epoch
            return putOff(&verdict, by: .proposed)
        }
        let today = spent.count { clock < $0 + day }
        guard today < DemotionBrake(percent: 0, minimum: limit).limit(subscribers: 0) else {
            note("brake held")
            return putOff(&verdict, by: .brake)
        }
        spent.append(clock)
    }

    private func putOff(_ verdict: inout Verdict, by rule: Rule) {
        verdict.rule = rule
        verdict.action = .none
        verdict.outcome = .deferred
        verdict.absence = .keep
    }

    private mutating func settle(_ verdict: Verdict, _ person: Int, _ look: Look, _ situation: Situation) {
        let type = people[person].type
        if people[person].status.isEligible {
            switch verdict.action {
            case .grant: records[look.record].decidedType = .subscriber
            case .demote: records[look.record].decidedType = .free
            case .none: if type == .free { records[look.record].decidedType = .free }
            }
        }
        switch verdict.action {
        case .grant:
            people[person].type = .subscriber
            people[person].isLapsed = false
        case .demote:
            people[person].type = .free
            people[person].isLapsed = true
        case .none: break
        }
        if people[person].type != type { records[look.record].epoch += 1 }
        records[look.record].readAt = look.reading.askedAt
        switch verdict.absence {
        case .keep: break
        case .clear:
            records[look.record].absentSince = nil
            records[look.record].movedAwayAt = nil
        case .begin(let moment): records[look.record].absentSince = moment
        }
        if situation.isExplained { records[look.record].everObserved = true }
    }

    // MARK: The ledger

    private mutating func record(_ situation: Situation, _ holders: [[Purchase]], _ look: Look) {
        let key = situation.userKey
        var known: [(row: Int, item: Observation)] = []
        var fresh: [[Observation]] = []
        for (item, attribution) in zip(look.reading.observations, situation.attributions) {
            switch attribution {
            case .new:
                // Items that share a name are one purchase.
                let keys = Set(item.identifiers.map(\.key))
                let touched = fresh.filter { !keys.isDisjoint(with: $0.flatMap { $0.identifiers.map(\.key) }) }
                fresh.removeAll { touched.contains($0) }
                fresh.append(touched.joined() + [item])
            case .own(let into, let merging), .followed(let into, _, let merging):
                for row in merging { merge(Int(row), Int(into)) }
                known.append((Int(into), item))
            default: continue
            }
        }
        for (row, items) in Dictionary(grouping: known, by: { root($0.row) }) {
            if items.count > 1 { note("several items on one record") }
            update(row, standing(items.map(\.item)), key, look.reading.askedAt)
            name(items.map(\.item), row)
        }
        for items in fresh {
            rows.append(Row(facts: facts(standing(items), Int64(rows.count), key, look.reading.askedAt)))
            name(items, rows.count - 1)
        }
    }

    private func standing(_ items: [Observation]) -> Observation {
        items[StandingItem(among: items, counts: items.map { _ in true }, catalog: catalog)?.place ?? 0]
    }

    private mutating func name(_ items: [Observation], _ row: Int) {
        for identifier in items.flatMap(\.identifiers) where names[identifier.key] == nil {
            names[identifier.key] = row
        }
    }

    func root(_ row: Int) -> Int { rows[row].mergedInto.map(root) ?? row }

    private mutating func merge(_ one: Int, _ other: Int) {
        let (into, from) = (min(root(one), root(other)), max(root(one), root(other)))
        guard into != from else { return }
        note("merge of rows of one owner")
        rows[from].mergedInto = into
        rows[into].facts.transferredAt = [rows[into], rows[from]].compactMap(\.facts.transferredAt).max()
        for (name, row) in names where row == from { names[name] = into }
    }

    private func facts(_ item: Observation, _ id: Int64, _ key: Int64, _ asked: Instant) -> Purchase {
        Purchase(
            id: id,
            ownerKey: key,
            kind: item.kind,
            store: item.store,
            environment: item.environment,
            status: item.status,
            givesAccess: item.givesAccess,
            entitlements: item.entitlements,
            periodEndsAt: item.periodEndsAt,
            endAnnounced: Evidence.announces(item, at: asked),
            isFamilyShared: item.isFamilyShared,
            observedAt: asked,
            firstSeenAt: Instant(microseconds: id),
            ownerSince: asked
        )
    }

    private mutating func update(_ place: Int, _ item: Observation, _ key: Int64, _ asked: Instant) {
        let old = rows[place].facts
        guard old.observedAt <= asked else { return }
        var new = facts(item, old.id, key, asked)
        new.formerOwnerKey = old.formerOwnerKey
        new.transferredAt = old.transferredAt
        new.ownerSince = old.ownerSince
        if item.periodEndsAt.map({ $0 <= asked }) ?? true {
            new.endAnnounced = old.endAnnounced && old.periodEndsAt == item.periodEndsAt
        }
        if old.ownerKey != key {
            note("followed owner")
            let gaveAccess =
                Entitlements.standing(of: old.kind, status: old.status, givesAccess: old.givesAccess) == .access
            if gaveAccess, let former = old.ownerKey { records[Int(former) - 1].movedAwayAt = asked }
            new.ownerSince = asked
            new.formerOwnerKey = old.ownerKey
        }
        rows[place].facts = new
    }

    /// A purchase that moved is contested until one of its two owners is read without it.
    private mutating func endContests(_ look: Look, _ situation: Situation) {
        guard look.reading.coverage == .full else { return }
        let listed = Set(look.reading.observations.flatMap { $0.identifiers.compactMap { names[$0.key] } })
        for place in rows.indices where rows[place].mergedInto == nil && !listed.contains(place) {
            let facts = rows[place].facts
            guard let former = facts.formerOwnerKey, facts.ownerSince <= look.reading.askedAt,
                former == situation.userKey || facts.ownerKey == situation.userKey
            else { continue }
            note("contest ended")
            rows[place].facts.formerOwnerKey = nil
        }
    }
}
