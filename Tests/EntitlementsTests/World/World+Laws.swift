import Entitlements

extension World {
    /// Judges a verdict before anything is written.
    func judge(_ look: Look, _ input: DecisionInput, _ resolution: Resolution) throws(Broken) {
        guard case .verdict(let verdict) = resolution else {
            if let user = input.user, !user.status.isEligible { throw Broken(law: "L6: read again") }
            guard look.reading.coverage == .full, !input.attributions.contains(.overtaken),
                ownsAccess(look, input)
            else { return }
            throw Broken(law: "L2: the store gives access, and the user is read again")
        }
        guard let user = input.user else {
            if verdict.rule != .accountGone || verdict.action != .none { throw Broken(law: "an erased account") }
            return
        }
        guard user.status.isEligible else {
            if verdict.action != .none || verdict.outcome != .notEligible { throw Broken(law: "L6: \(verdict.rule)") }
            return
        }
        let hasAccess = Oracle.hasAccess(input)
        if hasAccess != (verdict.action == .grant) {
            throw Broken(law: hasAccess ? "L2: denied by \(verdict.rule)" : "L4: granted by \(verdict.rule)")
        }
        try judgeByTruth(verdict, look, input)
        if input.grants == .active, verdict.action != .grant { throw Broken(law: "L2: denied in spite of a grant") }
        guard verdict.action == .demote else {
            let isNegative = verdict.outcome == .nothingToRestore || verdict.outcome == .storeAccountMismatch
            if isNegative, look.reading.coverage != .full { throw Broken(law: "L3: a no from a partial reading") }
            return
        }
        if isComped(look.record) { throw Broken(law: "L3: a comped user was demoted by \(verdict.rule)") }
        guard look.kind == .reconcile else { throw Broken(law: "a restore demotes") }
        guard look.reading.coverage == .full else { throw Broken(law: "L3: demoted by a partial reading") }
        try judgeDemotion(verdict, look, input)
    }

    /// L3: a demotion rests on a store's word, on silence twice a margin apart, or on a transfer.
    private func judgeDemotion(_ verdict: Verdict, _ look: Look, _ input: DecisionInput) throws(Broken) {
        let record = records[look.record]
        switch verdict.rule {
        case .storeEnded:
            let words = look.reading.observations.map(\.status.raw) + input.ledger.map(\.status.raw)
            let ends: Set<String> = ["expired", "refunded", "paused", "in_billing_retry"]
            if ends.isDisjoint(with: words) { throw Broken(law: "L3: no word of an end") }
            let isOpen = input.ledger.contains { row in
                row.givesAccess == true && row.observedAt <= look.reading.askedAt && !input.listed.contains(row.id)
            }
            if isOpen { throw Broken(law: "L3: one silence about what gave access was taken for an end") }
        case .absenceConfirmed:
            guard let since = record.absentSince, since + day <= look.reading.askedAt else {
                throw Broken(law: "L3: silence was not heard twice, a margin apart")
            }
        case .movedAway:
            guard let moved = record.movedAwayAt, moved <= look.reading.askedAt else {
                throw Broken(law: "L9: nothing was moved away")
            }
        default: throw Broken(law: "L3: demoted by \(verdict.rule)")
        }
    }

    /// Judges what was written.
    func judge(_ look: Look, _ input: DecisionInput, _ verdict: Verdict, _ before: World) throws(Broken) {
        for row in names.values where rows[row].mergedInto != nil {
            throw Broken(law: "L1: a name leads to a row that is merged")
        }
        if names != before.names { try judgeNames() }
        try judgeRecords(look, input)
        for place in before.rows.indices {
            let (old, new) = (before.rows[place], rows[place])
            if new.facts.observedAt < old.facts.observedAt, old.facts.observedAt <= clock {
                throw Broken(law: "L7: the ledger went back in time")
            }
            if old.facts.ownerKey != nil, old.mergedInto == nil, let into = new.mergedInto,
                rows[into].facts.ownerKey != old.facts.ownerKey,
                (before.rows[into].facts.ownerKey ?? old.facts.ownerKey) != old.facts.ownerKey
            {
                throw Broken(law: "L1: rows of two owners were merged")
            }
            guard old.facts.ownerKey != new.facts.ownerKey, old.mergedInto == nil, new.mergedInto == nil else {
                continue
            }
            if old.facts.isFamilyShared || old.facts.transferredAt != nil || old.facts.formerOwnerKey != nil {
                throw Broken(law: "L9: a purchase moved that must not")
            }
            let isGained = old.facts.ownerKey != nil && new.facts.ownerKey == input.userKey
            if isGained, input.user?.status.isEligible != true { throw Broken(law: "L6: a purchase was gained") }
        }
        for person in people.indices {
            let (old, new) = (before.people[person], people[person])
            if old.isModerated != new.isModerated { throw Broken(law: "L5: another reason was touched") }
            if old != new, records[look.record].person != person { throw Broken(law: "somebody else was changed") }
            if old != new, !new.status.isEligible { throw Broken(law: "L6: somebody gained or lost") }
            if new.isLapsed, !old.isLapsed, new.type != .free { throw Broken(law: "L5: a subscriber's assets froze") }
        }
        if spent.count(where: { clock < $0 + day }) > max(limit, before.spent.count { clock < $0 + day }) {
            throw Broken(law: "more were demoted than the brake allows")
        }
        try judgeState(verdict, look, input)
    }

    /// L2: at the commit of a full reading, whoever is a subscriber has access or a reason.
    private func judgeState(_ verdict: Verdict, _ look: Look, _ input: DecisionInput) throws(Broken) {
        guard look.reading.coverage == .full, let user = input.user, user.status.isEligible,
            let person = records[look.record].person
        else { return }
        let hasAccess = Oracle.hasAccess(input)
        let isExcused =
            verdict.outcome == .deferred || verdict.outcome == .alreadySubscriber || verdict.enqueuesReconcile
        switch people[person].type {
        case .free: if hasAccess { throw Broken(law: "L2: free with access") }
        case .subscriber: if !hasAccess, !isExcused { throw Broken(law: "L2: a subscriber without a reason") }
        }
    }

    /// Whose each name is, and what is known of it.
    var ledger: [Name: String] {
        names.mapValues { "of \(rows[$0].facts.ownerKey ?? 0): \(rows[$0].facts.status.raw)" }
    }

    /// L7: what was applied once changes nothing a second time.
    func judgeRepetition(_ look: Look) throws(Broken) {
        var again = self
        guard try again.apply(look) != nil else { return }
        guard again.people == people, again.ledger == ledger else {
            throw Broken(law: "L7: a repetition changed something")
        }
        var (first, second) = (records[look.record], again.records[look.record])
        first.readAt = nil
        second.readAt = nil
        if first != second { throw Broken(law: "L7: a repetition changed what is on record") }
    }

    /// L7: the order of what is listed decides nothing.
    func judgeListing(_ look: Look) throws(Broken) {
        guard look.reading.observations.count > 1 else { return }
        var turned = look
        turned.reading.observations.reverse()
        turned.truth.reverse()
        var (one, other) = (self, self)
        let rules = (try one.apply(look), try other.apply(turned))
        guard rules.0 == rules.1, one.people == other.people, one.records == other.records, one.ledger == other.ledger
        else { throw Broken(law: "L7: the order of a list counts: \(rules)") }
        let facts = (one.known(of: look), other.known(of: look))
        guard facts.0 == facts.1 else { throw Broken(law: "L7: the order of a list counts on record: \(facts)") }
    }

    /// What is on record of the purchases that a reading lists, whatever numbers their rows have.
    private func known(of look: Look) -> [Name: [String]] {
        let spelled = Set(look.truth.flatMap(\.names))
        return names.filter { spelled.contains($0.key) }.mapValues { row in
            let facts = rows[row].facts
            return [
                "\(facts.status)", "\(String(describing: facts.givesAccess))",
                "\(String(describing: facts.periodEndsAt))",
            ]
        }
    }
}
