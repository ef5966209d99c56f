extension UserHistory {
    struct Step {
        var id: Int64
        var at: Instant
        /// `nil`: another user's.
        var decision: PastDecision?
        var items: [PastItem] = []
        /// Rows that became part of others.
        var merged: Set<Int64> = []
    }

    /// Goes through the past, up to a moment, and returns the records as they stood at last.
    ///
    /// `visit` gets each decision of the user with the records as they stood before it.
    @discardableResult
    func walk(
        until moment: Instant? = nil,
        catalog: ProductCatalog? = nil,
        _ visit: (Step, PastLedger) -> Void = { _, _ in }
    ) -> PastLedger {
        var ledger = PastLedger(userKey: userKey, catalog: catalog)
        var moves = moves[...]
        func isPast(_ at: Instant) -> Bool { moment.map { at <= $0 } ?? true }
        for step in steps where isPast(step.at) {
            while let move = moves.first, move.at <= step.at {
                ledger.apply(move)
                moves.removeFirst()
            }
            if step.decision != nil { visit(step, ledger) }
            ledger.apply(step)
        }
        for move in moves where isPast(move.at) { ledger.apply(move) }
        return ledger
    }

    /// The transfers, with what they moved beside the purchase that they were about.
    private var moves: [PastTransfer] {
        var moves = transfers
        for line in lineages {
            guard let at = line.transferredAt, let move = transfers.first(where: { at <= $0.at }),
                move.purchase != line.id
            else { continue }
            moves.append(PastTransfer(at: move.at, purchase: line.id, from: move.from, to: move.to))
        }
        return moves.sorted { ($0.at, $0.purchase) < ($1.at, $1.purchase) }
    }

    private var steps: [Step] {
        var steps: [Int64: Step] = [:]
        for decision in decisions { steps[decision.id] = Step(id: decision.id, at: decision.at, decision: decision) }
        for item in items {
            steps[item.decision, default: Step(id: item.decision, at: item.recordedAt)].items.append(item)
        }
        // What one transaction decided about others this user's decision in it had not seen.
        let own = Dictionary(decisions.map { ($0.at, $0.id) }) { max($0, $1) }
        func place(_ step: Step) -> (Int64, Int, Int64) {
            guard step.decision == nil, let together = own[step.at] else { return (step.id, 0, step.id) }
            return (max(step.id, together), 1, step.id)
        }
        return noteMergers(steps.values.sorted { place($0) < place($1) })
    }

    /// Places mergers, whose moment is not on record: a row is gone once what it became part of is read without it.
    private func noteMergers(_ steps: [Step]) -> [Step] {
        let into = Dictionary(lineages.map { ($0.id, $0.mergedInto) }) { first, _ in first }
        var open: [Int64: Set<Int64>] = [:]
        var last: [Int64: Int64] = [:]
        for step in steps {
            for case let id? in step.items.map(\.purchase) {
                last[id] = step.id
                guard open[id] == nil, case let target?? = into[id] else { continue }
                var chain: Set<Int64> = [target]
                var next = target
                while case let further?? = into[next], chain.insert(further).inserted { next = further }
                open[id] = chain
            }
        }
        guard !open.isEmpty else { return steps }
        var steps = steps
        for place in steps.indices {
            let read = Set(steps[place].items.filter(\.updatesRow).compactMap(\.purchase))
            for (id, chain) in open where (last[id] ?? 0) < steps[place].id && !chain.isDisjoint(with: read) {
                steps[place].merged.insert(id)
                open[id] = nil
            }
        }
        return steps
    }

    /// Rows that the user owned by a moment, and of which no reading is on record here or was made then (`reading`).
    func unread(in ledger: PastLedger, at moment: Instant, reading: [PastItem] = []) -> Int {
        lineages.count { line in
            line.ownerKey == userKey && line.mergedInto == nil && line.ownerSince <= moment
                && line.firstSeenAt <= moment && ledger.rows[line.id] == nil
                && !reading.contains { $0.purchase == line.id }
        }
    }

    /// Whether grants were given by a moment, and are in force then.
    func grants(at moment: Instant) -> GrantState {
        let given = grants.filter { $0.createdAt <= moment }
        guard !given.isEmpty else { return .none }
        return given.contains { $0.isInForce(at: moment) } ? .active : .past
    }

    /// Whether sandbox purchases count at a moment, as the list stands now.
    func sandbox(at moment: Instant) -> SandboxState {
        guard let until = sandboxUntil else { return .none }
        return moment < until ? .allowed : .past
    }
}
