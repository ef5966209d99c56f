@testable import Entitlements
import Runs

extension Model {
    /// A run over many users; by itself "run" is what a user's assets go on in here.
    struct Sweep {
        enum State: String { case reading, stopped, applying, done, canceled }

        struct Part {
            var users: [Int]
            /// Of a real run: who reads them.
            var jobs: [Int] = []
            var outcomes: [String]?
            var rules: [String?] = []
            var isOpen: Bool { outcomes == nil }
        }

        struct Change {
            enum State: String { case predicted, held, applied, void }
            var epoch: Int64
            var state: State
            var outcome: Outcome
            var rule: Rule
            var before: UserType?
            var after: UserType?
            var isAnnounced = false
            /// The decision that it rests on.
            var decision: Int?

            /// Whether somebody may have it written.
            var isOpen: Bool { (state == .held || state == .predicted) && outcome != .deferred }
        }

        var id: Int64
        var scope: RunRecord.Scope
        var isDry: Bool
        var askedAt: Instant
        var since: Instant?
        var most: Int?
        /// The dry run that it makes true.
        var of: Int?
        var isConfirmed = false
        var state = State.reading
        var isPaged = false
        var isFed = false
        var hasSettled = false
        var lastLook: Instant?
        var lastKey: Int64 = 0
        var lastID = ""
        var late: [Int] = []
        var lateWaits = false
        var parts: [Part] = []
        var changes: [Int: Change] = [:]
        var fed = 0
        var ended = 0
        var skipped = 0
        var held = 0
        var outcomes: [String: Int] = [:]
        var rules: [String: Int] = [:]
        var goesOn: Bool { state == .reading || state == .applying }
    }

    /// What runs say of a user's demotion: whatever a person has confirmed outranks what another run holds.
    func runs(on user: Int) -> (isHeld: Bool, isConfirmed: Bool)? {
        var found: [(isHeld: Bool, isConfirmed: Bool)] = []
        for sweep in sweeps where !sweep.isDry {
            let isCurrent = sweep.changes[user].map { $0.state == .held && $0.epoch == people[user].epoch } ?? false
            if sweep.parts.contains(where: { $0.isOpen && $0.users.contains(user) }) {
                found.append((!(sweep.state == .applying && isCurrent), sweep.isConfirmed))
            }
            if isCurrent, sweep.state == .reading || sweep.state == .stopped { found.append((true, false)) }
        }
        return found.first { !$0.isHeld && $0.isConfirmed } ?? found.first(where: \.isHeld) ?? found.first
    }

    /// Plans a stretch.
    ///
    /// - Returns: how many users were looked at.
    mutating func feed(_ index: Int, batch: Int) -> Int {
        guard !sweeps[index].isFed else { return 0 }
        if sweeps[index].state == .applying, paused.contains("demotions") || paused.contains("all") {
            note("a run waits for the end of a pause")
            return 0
        }
        guard !(sweeps[index].isPaged && sweeps[index].lateWaits) else { return 0 }
        let (users, looked) = stretch(of: index, batch)
        if !users.isEmpty {
            sweeps[index].fed += users.count
            let jobs = sweeps[index].isDry ? [] : users.map { enqueue($0, .reconcile) }
            sweeps[index].parts.append(.init(users: users, jobs: jobs))
        }
        sweeps[index].isPaged = sweeps[index].isPaged || (looked.map { $0 < batch } ?? false)
        sweeps[index].isFed = sweeps[index].isPaged && sweeps[index].late.isEmpty
        return looked ?? users.count
    }

    /// Whom a run reads next; how many it looked at for that, unless they only have another turn.
    private mutating func stretch(of index: Int, _ batch: Int) -> (users: [Int], looked: Int?) {
        let sweep = sweeps[index]
        let known = people.indices.filter { people[$0].isKnown && key($0) > sweep.lastKey }.sorted { key($0) < key($1) }
        if sweep.isPaged {
            note("another turn in a run")
            sweeps[index].late = Array(sweep.late.dropFirst(batch))
            return (Array(sweep.late.prefix(batch)), nil)
        }
        if sweep.state == .reading, sweep.scope == .all {
            let last = sweep.lastID.utf8
            let page = people.indices.filter { people[$0].exists && last.lexicographicallyPrecedes(userID($0).utf8) }
                .prefix(batch)
            let able = page.filter { people[$0].status.isEligible }
            for user in able { people[user].isKnown = true }
            sweeps[index].lastID = page.last.map(userID) ?? sweep.lastID
            sweeps[index].skipped += page.count - able.count
            return (able.sorted { (key($0), $0) < (key($1), $1) }, page.count)
        }
        let window: [Int]
        var users: [Int]
        if sweep.state == .applying {
            window = Array(known.filter { sweep.changes[$0]?.isOpen == true }.prefix(batch))
            users = window
        } else if sweep.scope == .due {
            window = Array(due(in: sweep).prefix(batch))
            users = window
            sweeps[index].lastLook = window.last.flatMap { people[$0].look } ?? sweep.lastLook
        } else {
            window = Array(known.prefix(batch))
            users = window.filter { user in
                !people[user].isErased && people[user].readAt.map { $0 < sweep.since ?? $0 } ?? true
            }
            sweeps[index].skipped += window.count - users.count
        }
        sweeps[index].lastKey = window.last.map(key) ?? sweep.lastKey
        return (users, window.count)
    }

    /// Whose look is due, in the order of their looks, behind those whom the run has planned already.
    private func due(in sweep: Sweep) -> [Int] {
        let waiting = people.indices.compactMap { user -> (Instant, Int64, Int)? in
            guard let look = people[user].look, look <= sweep.askedAt else { return nil }
            return (look, key(user), user)
        }
        return waiting.sorted { ($0.0, $0.1) < ($1.0, $1.1) }.filter { look, key, _ in
            sweep.lastLook.map { ($0, sweep.lastKey) < (look, key) } ?? true
        }.map(\.2)
    }

    private func key(_ user: Int) -> Int64 { people[user].key ?? .max }

    /// Ends the parts of real runs whose jobs have ended.
    ///
    /// - Returns: how many.
    mutating func closeParts() -> Int {
        var closed = 0
        for index in sweeps.indices where !sweeps[index].isDry {
            for place in sweeps[index].parts.indices where sweeps[index].parts[place].isOpen {
                let ends: Set<Job.State> = [.done, .dead, .canceled]
                guard sweeps[index].parts[place].jobs.allSatisfy({ ends.contains(jobs[$0].state) }) else { continue }
                close(place, of: index)
                closed += 1
            }
        }
        return closed
    }

    private mutating func close(_ place: Int, of index: Int) {
        let part = sweeps[index].parts[place]
        let said = part.jobs.map { jobs[$0].outcome?.rawValue ?? jobs[$0].state.rawValue }
        let found = part.jobs.map { job in decisions.lastIndex { $0.job == job } }
        let reasons = found.map { $0.map { decisions[$0].rule.rawValue } }
        for (user, decision) in zip(part.users, found) { if let decision { propose(decision, of: user, in: index) } }
        var again: Set<Int> = []
        if sweeps[index].state == .applying {
            let final: Set<String> = [
                "rejected", "unknown_to_store", "user_id_unusable", "store_not_configured", "data_refused", "crashed",
            ]
            for (place, user) in part.users.enumerated() {
                let state = sweeps[index].changes[user]?.state
                let isUnread =
                    jobs[part.jobs[place]].state == .dead && !final.contains(jobs[part.jobs[place]].error ?? "")
                if state == .held || state == .predicted, reasons[place] == Rule.demotionsPaused.rawValue || isUnread {
                    again.insert(user)
                }
            }
            if !again.isEmpty {
                sweeps[index].late += part.users.filter(again.contains)
                sweeps[index].lateWaits = true
                sweeps[index].isFed = false
            }
        }
        end(place, of: index, said, reasons, again: again)
    }

    /// What a decision comes to among a run's changes.
    private mutating func propose(_ number: Int, of user: Int, in index: Int) {
        let decision = decisions[number]
        let isProposed = decision.rule == .proposed
        let isReading = sweeps[index].state == .reading
        let waits = decision.rule == .firstAbsence || decision.rule == .absenceMargin
        guard sweeps[index].goesOn || !isProposed,
            decision.before != decision.after || isProposed && isReading || decision.outcome == .deferred && waits
        else { return }
        let isOld = decisions[(number + 1)...].contains { jobs[$0.job].user == user && $0.rule != .proposed }
        let state: Sweep.Change.State =
            if decision.isObserved || decision.outcome == .deferred && !isProposed {
                .predicted
            } else if !isProposed {
                .applied
            } else {
                isOld ? .void : .held
            }
        if isProposed, isOld { note("decided again before a run's part ended") }
        sweeps[index].changes[user] = Sweep.Change(
            epoch: sweeps[index].changes[user]?.epoch ?? people[user].epoch,
            state: state,
            outcome: isProposed ? .demoted : decision.outcome,
            rule: decision.rule,
            before: decision.before,
            after: isProposed ? .free : decision.after,
            isAnnounced: isReading && decision.outcome == .demoted && !decision.isBraked,
            decision: number
        )
    }

    /// Notes what became of a part.
    mutating func end(_ place: Int, of index: Int, _ said: [String], _ reasons: [String?], again: Set<Int> = []) {
        let users = sweeps[index].parts[place].users
        sweeps[index].parts[place].outcomes = said
        sweeps[index].parts[place].rules = reasons
        let wasHeld = sweeps[index].hasSettled && sweeps[index].scope != .diff
        let counted = users.indices.filter { !again.contains(users[$0]) }
        for place in counted {
            sweeps[index].outcomes[said[place], default: 0] += 1
            if let rule = reasons[place] { sweeps[index].rules[rule, default: 0] += 1 }
        }
        guard wasHeld else { return sweeps[index].ended += counted.count }
        sweeps[index].outcomes[Outcome.deferred.rawValue, default: 0] -= counted.count
        sweeps[index].rules[Rule.proposed.rawValue, default: 0] -= counted.count
    }
}
