import Entitlements
import Queue

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
        try judgeSilence(job, user, taken, before: before, after: after)
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
        let held = before.isHeldElsewhere(user, among: taken.truth)
        // RevenueCat's word suffices as long as its store has not named another account.
        let may = taken.truth.contains { !held($0) && gives($0, old, before.catalog) }
        let own = taken.truth.contains { item in
            !held(item) && gives(item, old, before.catalog) && item.account.map { $0 == user } ?? true
        }
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
        if old.type == .free, person.type == .subscriber, !may, !isGranted, newer.isEmpty {
            throw fail("L4: promoted without access")
        }
        if before.isComped(user), person.type == .free { throw fail("L3: a comped user was demoted") }
        if old.type == .subscriber, person.type == .free {
            if !isFull { throw fail("L3: demoted by a partial reading") }
            if after.jobs[job].kind == .restore { throw fail("demoted by a restore") }
            if after.setup.mode == .promoteOnly || before.paused.contains("demotions") {
                throw fail("demoted in spite")
            }
        }
        if isFull, person.type == .subscriber, !may, !isGranted, newer.isEmpty {
            let excused =
                decision.outcome == .deferred || decision.outcome == .alreadySubscriber
                || person.row?.jobs[.reconcile] != nil
            if !excused { throw fail("L2: a subscriber without access and without a reason") }
        }
        if !isFull, decision.outcome == .nothingToRestore || decision.outcome == .storeAccountMismatch {
            throw fail("L3: a negative answer from a partial reading")
        }
    }

    /// L3: no answer is an absence that does not list a purchase of which the store has said that its period runs.
    private static func judgeSilence(_ job: Int, _ user: Int, _ taken: Taken, before: Model, after: Model) throws {
        let person = before.people[user]
        guard taken.reading.coverage == .full, person.exists, person.status.isEligible, person.movedAwayAt == nil,
            !person.grants.contains(where: \.isActive),
            !taken.truth.contains(where: { gives($0, person, before.catalog) })
        else { return }
        let listed = Set(taken.reading.observations.flatMap { $0.identifiers.compactMap { before.names[$0.key] } })
        let isUnlisted = before.purchases.indices.contains { row in
            let facts = before.purchases[row].facts
            return before.purchases[row].mergedInto == nil && facts.ownerKey == Int64(user + 1) && !listed.contains(row)
                && facts.givesAccess == true && facts.observedAt <= taken.reading.askedAt
                && facts.periodEndsAt.map { taken.reading.askedAt < $0 } ?? false
                && facts.entitlements.contains { before.catalog[$0] == true }
                && (facts.environment == "production" || person.sandbox == .allowed)
        }
        guard isUnlisted else { return }
        let isBelieved =
            after.people[user].type != person.type || after.people[user].absentSince != person.absentSince
            || after.jobs[job].outcome == .nothingToRestore
        if isBelieved {
            throw Failed(kind: "L3: a running period counts as an absence", text: "u\(user), job \(job)")
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
            if new.facts.observedAt < old.facts.observedAt, !old.isAhead {
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

    /// A purchase stands in the ledger as the strongest of its items says, whatever the order of the list.
    static func judgeRecords(_ user: Int, _ taken: Taken, before: Model, after: Model) throws {
        for item in taken.truth
        where item.saysAccess && item.entitlements.contains(where: { after.catalog[$0] == true }) {
            let rows = Set(item.identifiers.compactMap { after.names[$0.key] }).map { after.purchases[$0].facts }
            // What leads to purchases of several owners is written nowhere, even where they have one from this reading on.
            let owners = Set(
                item.identifiers.compactMap { before.names[$0.key] }.compactMap { before.purchases[$0].facts.ownerKey }
            )
            guard owners.count <= 1 else { continue }
            guard rows.allSatisfy({ $0.ownerKey == Int64(user + 1) && ($0.accountKey ?? $0.ownerKey) == $0.ownerKey })
            else { continue }
            for facts in rows where facts.observedAt == taken.reading.askedAt {
                guard facts.givesAccess ?? (facts.status.raw == "owned") else {
                    throw Failed(kind: "a weaker item stands", text: "purchase \(facts.id) is \(facts.status.raw)")
                }
                if let end = item.ends, let known = facts.periodEndsAt, known < end {
                    throw Failed(kind: "an earlier end stands", text: "purchase \(facts.id)")
                }
            }
        }
    }

    /// Judges a user after everything has settled, with every store readable and margins of nothing.
    static func judgeSettled(_ user: Int, _ model: Model, _ truth: StoreTruth) throws {
        let person = model.people[user]
        guard person.exists, person.status.isEligible else { return }
        let held = model.isHeldElsewhere(user, among: [])
        let hasAccess =
            person.grants.contains(where: \.isActive)
            || truth.items.contains { item in
                let isOwn =
                    item.isAtStore
                    && item.identifiers.contains { identifier in
                        model.names[identifier.key].map { model.purchases[$0].facts.ownerKey == Int64(user + 1) }
                            ?? false
                    }
                return (item.isAtRevenueCat && item.customer == user || isOwn)
                    && item.account.map { $0 == user } ?? true
                    && (item.account == user || item.customer == user) && !held(item)
                    && gives(item, person, model.catalog)
            }
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
                && row.facts.isRunning(at: StoreTruth.past) && row.facts.periodEndsAt != StoreTruth.past
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
    /// Whether the host made the user a subscriber after the last decision that settled the type, which left it free.
    func isComped(_ user: Int) -> Bool {
        guard people[user].exists, people[user].type == .subscriber else { return false }
        let settled = decisions.last { decision in
            guard jobs[decision.job].user == user, decision.after != nil, !decision.isObserved,
                decision.outcome != .notEligible
            else { return false }
            let isAccess: Set<Rule> = [.storeAccess, .grantAccess, .ownerFollowedRevenuecat]
            return isAccess.contains(decision.rule) || decision.after == .free
        }
        return settled?.after == .free
    }

    /// Whether an item that the store names as the user's is held by somebody else, and may not be moved.
    ///
    /// What is not on record as the user's is judged with everything that is `listed` of its purchase.
    func isHeldElsewhere(_ user: Int, among listed: [StoreItem]) -> (StoreItem) -> Bool {
        { item in
            if isHeld(item, from: user) { return true }
            let owners = Set(rows(of: item).compactMap(\.ownerKey))
            guard !owners.contains(Int64(user + 1)) else { return false }
            // What is on record as another's moves by RevenueCat's word alone, and stays by that alone.
            return kin(of: item, listed).contains {
                Set(rows(of: $0).compactMap(\.ownerKey)).count <= 1 && isHeld($0, from: user)
                    && (owners.isEmpty || $0.isAtRevenueCat)
            }
        }
    }

    private func rows(of item: StoreItem) -> [Purchase] {
        Set(item.identifiers.compactMap { names[$0.key] }).map { purchases[$0].facts }
    }

    private func isHeld(_ item: StoreItem, from user: Int) -> Bool {
        let rows = rows(of: item)
        let owners = Set(rows.compactMap(\.ownerKey))
        if rows.contains(where: { $0.accountKey.map { $0 != Int64(user + 1) } ?? false && $0.transferredAt == nil }) {
            return true
        }
        guard owners != [Int64(user + 1)], !owners.isEmpty else { return false }
        return owners.count > 1 || item.isFamilyShared
            || rows.contains { $0.isFamilyShared || $0.formerOwnerKey != nil || $0.transferredAt != nil }
    }

    /// The listed items that share a name or a row with an item, directly or through others.
    private func kin(of item: StoreItem, _ listed: [StoreItem]) -> [StoreItem] {
        var (found, left) = ([item], listed)
        var place = 0
        while place < found.count {
            let keys = Set(found[place].identifiers.map(\.key))
            let ids = Set(rows(of: found[place]).map(\.id))
            let isOne = { (other: StoreItem) in
                !keys.isDisjoint(with: other.identifiers.map(\.key)) || !ids.isDisjoint(with: rows(of: other).map(\.id))
            }
            found += left.filter(isOne)
            left.removeAll(where: isOne)
            place += 1
        }
        return found
    }
}
