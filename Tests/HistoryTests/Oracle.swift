import Entitlements

/// A second witness: the laws by what the store itself held, without the product's words for it.
enum Oracle {
    /// Whether an item gives a user access by the store's word.
    static func gives(_ item: StoreItem, _ person: Model.Person, _ catalog: [String: Bool]) -> Bool {
        item.isListed && item.saysAccess && item.entitlements.contains { catalog[$0] == true }
            && (item.environment == "production" || person.sandbox == .allowed)
    }

    /// Judges what became of one job.
    static func judge(_ job: Int, _ user: Int, _ taken: Taken, before: Model, after: Model) throws {
        let (old, person) = (before.people[user], after.people[user])
        guard after.jobs[job].state == .done, let decision = after.decisions.last(where: { $0.job == job }) else {
            return
        }
        func fail(_ law: String) -> Failed {
            Failed(kind: law, text: "\(law): u\(user) by \(decision.rule.rawValue), \(decision.outcome.rawValue)")
        }
        guard old.exists, old.status.isEligible else {
            if decision.outcome != .notEligible || old.type != person.type { throw fail("L6") }
            return
        }
        let isGranted = old.grants.contains(where: \.isActive)
        let held = before.isHeldElsewhere(user, taken.reading.askedAt)
        let own = taken.truth.contains { !held($0) && gives($0, old, before.catalog) }
        // Rows that another reading brought up to date after this one was asked for.
        let newer = before.purchases.filter {
            $0.mergedInto == nil && $0.facts.ownerKey == Int64(user + 1)
                && $0.facts.observedAt > taken.reading.askedAt
        }
        let isFull = taken.reading.coverage == .full
        guard !after.isObserving else {
            if old.type != person.type { throw fail("observe mode wrote") }
            return
        }
        if person.type == .free, isGranted { throw fail("L2: denied in spite of a grant") }
        if person.type == .free, own, newer.isEmpty { throw fail("L2: denied in spite of access") }
        if old.type == .free, person.type == .subscriber, !own, !isGranted, newer.isEmpty {
            throw fail("L4: promoted without access")
        }
        if old.type == .subscriber, person.type == .free {
            if !isFull { throw fail("L3: demoted by a partial reading") }
            if after.jobs[job].kind == .restore { throw fail("demoted by a restore") }
            if after.setup.mode == .promoteOnly || before.paused.contains("demotions") {
                throw fail("demoted in spite")
            }
        }
        if isFull, person.type == .subscriber, !own, !isGranted, newer.isEmpty {
            let excused =
                decision.outcome == .deferred || decision.outcome == .alreadySubscriber
                || person.row?.queued[.reconcile] != nil
            if !excused { throw fail("L2: a subscriber without access and without a reason") }
        }
        if !isFull, decision.outcome == .nothingToRestore || decision.outcome == .storeAccountMismatch {
            throw fail("L3: a negative answer from a partial reading")
        }
    }

    /// Judges what one batch did to the ledger: L1 and the order of observations.
    static func judgeLedger(_ items: [ModelItem], before: Model, after: Model) throws {
        for (index, old) in before.purchases.enumerated() {
            let new = after.purchases[index]
            if old.facts.ownerKey != new.facts.ownerKey {
                let mover = items.first { Int64($0.user + 1) == new.facts.ownerKey }
                let isNewest = mover.map { old.facts.observedAt <= $0.reading.askedAt } ?? false
                if !isNewest { throw Failed(kind: "L7: moved by an old reading", text: "purchase \(index)") }
                if old.facts.isFamilyShared { throw Failed(kind: "a family's share moved", text: "purchase \(index)") }
                if let mover, !before.people[mover.user].status.isEligible {
                    throw Failed(kind: "L6: a purchase was gained", text: "purchase \(index)")
                }
            }
            if new.facts.observedAt < old.facts.observedAt {
                throw Failed(kind: "L7: the ledger went back in time", text: "purchase \(index)")
            }
            guard old.mergedInto == nil, let into = new.mergedInto, before.purchases.indices.contains(into) else {
                continue
            }
            let other = before.purchases[into].facts
            if other.ownerKey != old.facts.ownerKey {
                throw Failed(kind: "L1: rows of two owners were merged", text: "purchases \(index), \(into)")
            }
            if other.firstSeenAt > old.facts.firstSeenAt {
                throw Failed(kind: "L1: merged into the younger row", text: "purchases \(index), \(into)")
            }
        }
    }

    /// Judges a user after everything has settled, with every store readable and margins of nothing.
    static func judgeSettled(_ user: Int, _ model: Model, _ truth: StoreTruth) throws {
        let person = model.people[user]
        guard person.exists, person.status.isEligible else { return }
        let held = model.isHeldElsewhere(user, StoreTruth.future)
        let hasAccess =
            person.grants.contains(where: \.isActive)
            || truth.items.contains { $0.customer == user && !held($0) && gives($0, person, model.catalog) }
        let last = model.decisions.last { model.jobs[$0.job].user == user }
        let deferrals: Set<Rule> = [
            .identityCollision, .sourcesDisagree, .unexplained, .unknownStatus, .entitlementDetached,
        ]
        let text = "u\(user) is \(person.type.rawValue), last by \(last?.rule.rawValue ?? "nothing")"
        if hasAccess, person.type == .free {
            throw Failed(kind: "not settled: access", text: "access by the store's word, but " + text)
        }
        // Paid for and gone from the lists: that is no absence.
        let hasToBeListed = model.purchases.contains { row in
            row.mergedInto == nil && row.facts.ownerKey == Int64(user + 1)
                && isRunning(
                    row.facts.kind,
                    status: row.facts.status,
                    givesAccess: row.facts.givesAccess,
                    periodEndsAt: row.facts.periodEndsAt,
                    at: StoreTruth.past
                ) && row.facts.periodEndsAt != StoreTruth.past
                && !truth.listing(for: user).contains { item in
                    item.identifiers.contains { model.names[$0.key] == Int(row.facts.id) }
                }
        }
        if !hasAccess, person.type == .subscriber, !hasToBeListed, !(last.map { deferrals.contains($0.rule) } ?? false)
        {
            throw Failed(kind: "not settled: no access", text: "no access by the store's word, but " + text)
        }
        let lapsed = model.assets.values.contains { $0.owner == user && $0.isLapsed }
        if person.type == .subscriber, hasAccess, lapsed {
            throw Failed(kind: "not settled: assets", text: "frozen for a lapse that is over: " + text)
        }
    }
}

extension Model {
    /// Whether an item that the store names as the user's is held by somebody else, and may not be moved.
    func isHeldElsewhere(_ user: Int, _ askedAt: Instant) -> (StoreItem) -> Bool {
        { item in
            let rows = Set(item.identifiers.compactMap { names[$0.key] }).map { purchases[$0].facts }
            let owners = Set(rows.compactMap(\.ownerKey))
            guard owners != [Int64(user + 1)], !owners.isEmpty else { return false }
            return owners.count > 1 || item.isFamilyShared
                || rows.contains { $0.isFamilyShared || $0.formerOwnerKey != nil || $0.transferredAt != nil }
        }
    }
}
