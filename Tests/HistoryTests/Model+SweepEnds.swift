@testable import Entitlements
import Reconciliation
import Runs

extension Model {
    /// Takes a run that was read or written to its end on to what follows.
    ///
    /// - Returns: its new state.
    mutating func settleSweep(_ index: Int) -> Sweep.State? {
        guard sweeps[index].goesOn, sweeps[index].isFed, !sweeps[index].parts.contains(where: \.isOpen) else {
            return nil
        }
        for (user, change) in sweeps[index].changes where change.state == .held {
            guard change.epoch != people[user].epoch else { continue }
            note("changed while a run held it")
            let last = decisions.last { jobs[$0.job].user == user }
            sweeps[index].changes[user]?.state = last?.outcome == .demoted ? .applied : .void
        }
        let wasReading = sweeps[index].state == .reading
        let held = heldChanges(of: index)
        if wasReading, !sweeps[index].isDry { supersede(by: index) }
        let state: Sweep.State
        if !wasReading || sweeps[index].isDry || held == 0 {
            state = .done
            for (user, change) in sweeps[index].changes where change.state == .held {
                sweeps[index].changes[user]?.state = .void
            }
        } else {
            let others = sweeps.indices.filter {
                $0 != index && sweeps[$0].state == .applying && !sweeps[$0].isConfirmed
            }
            let spent = decisions.count(where: \.isBraked)
            let left = max(setup.brakeMinimum - spent, 0) - others.reduce(0) { $0 + heldChanges(of: $1) }
            state = held <= min(max(left, 0), sweeps[index].most ?? .max) ? .applying : .stopped
        }
        note(state == .stopped ? "run stopped" : state == .applying ? "run within its limit" : "run done")
        if wasReading { sweeps[index].held = held }
        sweeps[index].state = state
        sweeps[index].isFed = state != .applying
        sweeps[index].isPaged = state != .applying
        sweeps[index].lastKey = 0
        sweeps[index].hasSettled = true
        noteStops()
        return state
    }

    private func heldChanges(of index: Int) -> Int { sweeps[index].changes.values.count { $0.state == .held } }

    /// What a run found stands for what an earlier one of its scope has left to people, where all of them are among what it
    /// found, or something else was decided about them since.
    private mutating func supersede(by index: Int) {
        let undecided: Set<Rule> = [.proposed, .brake, .demotionsPaused, .promoteOnly]
        for earlier in sweeps.indices where earlier < index {
            guard sweeps[earlier].state == .stopped, sweeps[earlier].scope == sweeps[index].scope else { continue }
            if let most = sweeps[earlier].most { sweeps[index].most = min(most, sweeps[index].most ?? .max) }
            let isLeft = sweeps[earlier].changes.contains { user, change in
                let person = people[user]
                guard change.state == .held, change.epoch == person.epoch, !person.isErased else { return false }
                if let found = sweeps[index].changes[user], found.state == .held || found.state == .applied {
                    return false
                }
                let later = decisions[((change.decision ?? -1) + 1)...]
                return !later.contains { jobs[$0.job].user == user && !undecided.contains($0.rule) }
            }
            guard !isLeft else {
                note("a stopped run outlasts a later one")
                continue
            }
            note("run superseded")
            sweeps[earlier].state = .canceled
        }
    }

    private mutating func noteStops() {
        if sweeps.contains(where: { $0.state == .stopped }) {
            alarms.insert("run_stopped")
        } else {
            alarms.remove("run_stopped")
        }
    }

    /// A person confirms what a run would change.
    ///
    /// - Returns: the run that writes it.
    mutating func release(_ index: Int, as id: Int64) -> Int {
        note("run released")
        defer { noteStops() }
        guard sweeps[index].isDry else {
            sweeps[index].state = .applying
            sweeps[index].isConfirmed = true
            sweeps[index].isFed = false
            sweeps[index].isPaged = false
            sweeps[index].lastKey = 0
            return index
        }
        note("dry run released")
        let dry = sweeps[index]
        var made = Sweep(id: id, scope: .diff, isDry: false, askedAt: dry.askedAt, of: index)
        made.state = .applying
        made.isConfirmed = true
        made.changes = dry.changes.filter { $0.value.outcome != .deferred }.mapValues { change in
            var held = change
            held.state = change.outcome == .demoted ? .held : .predicted
            return held
        }
        sweeps.append(made)
        return sweeps.count - 1
    }

    /// Whether a run can be released at all.
    func isReleasable(_ index: Int) -> Bool {
        sweeps[index].state == .stopped || sweeps[index].state == .done && sweeps[index].isDry
    }

    /// Ends a run.
    ///
    /// - Returns: whether it went on.
    mutating func cancelSweep(_ index: Int) -> Bool {
        guard sweeps[index].goesOn || sweeps[index].state == .stopped else { return false }
        note("run canceled")
        if sweeps[index].parts.contains(where: \.isOpen) { note("run canceled while it was read") }
        sweeps[index].state = .canceled
        noteStops()
        return true
    }

    /// What a dry run finds out about the users of a part.
    ///
    /// - Parameters:
    ///   - items: of its users, in their order.
    ///   - place: the part's among the run's.
    ///   - index: the run's.
    mutating func lookAhead(_ items: [ModelItem], part place: Int, of index: Int) {
        var said: [String] = []
        var reasons: [String?] = []
        for item in items {
            switch decide(input(item).0) {
            case .retry:
                note("a dry run gets no answer")
                said.append(Outcome.storeUnavailable.rawValue)
                reasons.append(nil)
            case .verdict(let verdict):
                said.append(verdict.outcome.rawValue)
                reasons.append(verdict.rule.rawValue)
                let before = people[item.user].exists ? people[item.user].type : nil
                let effect = Effect(item: item, attributions: [], verdict: verdict, isExplained: false, before: before)
                let waits = verdict.rule == .firstAbsence || verdict.rule == .absenceMargin
                guard effect.after != before || verdict.outcome == .deferred && waits,
                    sweeps[index].changes[item.user] == nil
                else { continue }
                sweeps[index].changes[item.user] = Sweep.Change(
                    epoch: people[item.user].epoch,
                    state: .predicted,
                    outcome: verdict.outcome,
                    rule: verdict.rule,
                    before: before,
                    after: effect.after,
                    isAnnounced: verdict.action == .demote && verdict.wasAnnounced
                )
            }
        }
        end(place, of: index, said, reasons)
    }

    // MARK: Lines

    func sweepLines(_ index: Int) -> [String] {
        let sweep = sweeps[index]
        func counts(_ counts: [String: Int]) -> String {
            counts.filter { $0.value != 0 }.map { "\($0.key)=\($0.value)" }.sorted().joined(separator: ",")
        }
        var lines = [
            "sweep|\(index)|\(sweep.scope.rawValue)|\(sweep.isDry)|\(sweep.isConfirmed)|\(sweep.state.rawValue)"
                + "|\(sweep.isPaged)|\(sweep.isFed)|\(sweep.fed)|\(sweep.ended)|\(sweep.skipped)|\(sweep.held)"
                + "|\(sweep.late.count)|\(counts(sweep.outcomes))|\(counts(sweep.rules))"
        ]
        for (place, part) in sweep.parts.enumerated() {
            let told = part.users.enumerated().map { turn, user in
                let rule = part.isOpen ? nil : part.rules[turn]
                return "\(name(user))=\(part.outcomes?[turn] ?? "-")/\(text(rule))"
            }
            lines.append("part|\(index)|\(place + 1)|\(part.isOpen)|\(told.inByteOrder.joined(separator: ","))")
        }
        for (user, change) in sweep.changes {
            lines.append(
                "change|\(index)|\(name(user))|\(change.state.rawValue)|\(change.outcome.rawValue)"
                    + "|\(change.rule.rawValue)|\(text(change.before?.rawValue))|\(text(change.after?.rawValue))"
                    + "|\(change.isAnnounced)|\(change.epoch)"
            )
        }
        return lines
    }
}
