import Entitlements

extension World {
    /// Applies a reading, and judges what became of it.
    ///
    /// - Returns: the rule that decided; `nil` where the person has to be read again.
    @discardableResult
    mutating func apply(_ look: Look) throws(Broken) -> Rule? {
        var look = look
        // A reading is never dated later than the clock says.
        look.reading.askedAt = min(look.reading.askedAt, clock)
        let asked = look.reading.askedAt
        date(look.record)
        if let readAt = records[look.record].readAt, readAt > asked {
            note("overtaken by a newer reading of the user")
            return nil
        }
        let before = self
        let input = input(look)
        notice(look, input)
        let resolution = decide(input)
        try before.judge(look, input, resolution)
        endContests(look, input)
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
        record(input, look)
        settle(verdict, person, look, input)
        try judge(look, input, verdict, before)
        return verdict.rule
    }

    /// Dates what is on record to the present, where a clock that was ahead has dated it later.
    private mutating func date(_ record: Int) {
        let now = clock
        func dated(_ moment: Instant?) -> Instant? { moment.map { min($0, now) } }
        var same = records[record]
        same.readAt = dated(same.readAt)
        same.absentSince = dated(same.absentSince)
        same.movedAwayAt = dated(same.movedAwayAt)
        if same.readAt != records[record].readAt { note("read at a time that has not come") }
        if same.absentSince != records[record].absentSince { note("absent since a time that has not come") }
        records[record] = same
    }

    /// Notes what a reading is about.
    private mutating func notice(_ look: Look, _ input: DecisionInput) {
        for attribution in input.attributions { note("attribution \(attribution.name)") }
        let asked = look.reading.askedAt
        if rows.contains(where: { clock < $0.facts.observedAt }) { note("rows of a time that has not come") }
        if isComped(look.record) { note("a comped user is read") }
        guard look.reading.coverage == .full, input.user?.status.isEligible == true else { return }
        if hasOthersKey, !unknownPurchases(look, input).isEmpty {
            note("a store that knows no customer any more")
        }
        for (observation, attribution) in zip(look.reading.observations, input.attributions) {
            guard case .foreign = attribution, case .otherAccount = observation.owner, observation.isSubmitted,
                observation.givesAccess == true
            else { continue }
            note("a proof with another user's account id")
        }
        if input.ledger.contains(where: { $0.observedAt == asked }) { note("read twice at one time") }
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

    private mutating func settle(_ verdict: Verdict, _ person: Int, _ look: Look, _ input: DecisionInput) {
        let type = people[person].type
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
        if input.isExplained { records[look.record].everObserved = true }
        guard input.user?.status.isEligible == true else { return }
        switch verdict.action {
        case .grant: records[look.record].decidedType = .subscriber
        case .demote: records[look.record].decidedType = .free
        case .none: if type == .free { records[look.record].decidedType = .free }
        }
    }
}
