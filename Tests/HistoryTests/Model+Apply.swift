@testable import Entitlements
import Foundation
import Queue

/// What was read for one job, with what the store held at that moment.
struct Taken: Sendable {
    var reading: Reading
    /// The items of the listing, so that a second witness can judge without the product's words.
    var truth: [StoreItem]
    var manner: Manner
    /// RevenueCat was asked with another project's key.
    var hasOthersKey = false
}

/// A reading on its way into the model: the job by its number.
struct ModelItem {
    var job: Int
    var user: Int
    /// The database's key of the user's record.
    var key: Int64
    /// Failed readings before, by the claim.
    var attempt: Int
    /// How the last try had ended, by the claim.
    var lastError: String?
    var kind: JobKind
    /// An event has asked for it.
    var isEvents = false
    var reading: Reading
}

extension Model {
    /// Applies the jobs of a batch that were not put off: each is decided on the state before the batch.
    ///
    /// `lockedAssets`: held by a host's transaction.
    /// Returns the jobs that ended, and who keeps their ticket.
    mutating func apply(_ items: [ModelItem], lockedAssets: Set<Int64>, dated: Dated = Dated()) -> [Int] {
        if !dated.isEmpty { alarms.insert("clock_set_back") }
        let before = self
        var ended: [Int] = []
        var effects: [Effect] = []
        var retries: [(item: ModelItem, failure: ReadFailure)] = []
        var lookedAt: [(item: ModelItem, attributions: [Attribution])] = []
        for item in items {
            let person = before.people[item.user]
            if person.row?.isCanceling == true {
                note("canceled while running")
                jobs[item.job].state = .canceled
                jobs[item.job].attempt = item.attempt
                ended.append(item.job)
                continue
            }
            if before.concerns(dated, item) {
                note("overtaken by what a clock dated ahead")
                retries.append((item, ReadFailure(.overtaken)))
                continue
            }
            if let readAt = person.readAt, readAt > item.reading.askedAt, item.reading.coverage != .none {
                note("overtaken by a newer reading of the user")
                retries.append((item, ReadFailure(.overtaken)))
                continue
            }
            let (input, attributions) = before.input(item)
            lookedAt.append((item, attributions))
            switch decide(input) {
            case .retry(let failure):
                if failure.code == .overtaken { note("overtaken read") }
                if failure.code == .unknownToStore {
                    note("a store does not know what has to exist")
                    let isSecond = item.lastError == failure.code.rawValue
                    if isSecond || item.attempt + 1 >= setup.maxAttempts {
                        alarms.insert("unknown_to_store.\((failure.store ?? .revenueCat).rawValue)")
                    }
                }
                if AccessSummary(input).hasUnmapped { alarms.insert("product_unmapped") }
                if item.reading.coverage == .partial { note("partial reading without access") }
                retries.append((item, failure))
            case .verdict(let verdict):
                if !verdict.detached.isEmpty { alarms.insert("entitlement_detached") }
                notice(verdict, attributions, item, before)
                effects.append(
                    Effect(
                        item: item,
                        attributions: attributions,
                        verdict: verdict,
                        isExplained: input.isExplained,
                        nextCheck: ScheduledCheck(
                            item.reading,
                            attributions,
                            outcome: verdict.outcome,
                            known: known(of: item, input, verdict)
                        ),
                        before: person.exists ? person.type : nil
                    )
                )
            }
        }
        hold(&effects)
        // Former owners are queued while this batch's jobs still run.
        for effect in effects where effect.writesLedger {
            for attribution in effect.attributions {
                guard case .followed(let purchase, let owner, _) = attribution else { continue }
                enqueue(Int(owner) - 1, .reconcile)
                let row = before.purchases[Int(purchase)].facts
                if row.accessState == .access, !row.carried.isEmpty {
                    let at = effect.item.reading.askedAt
                    people[Int(owner) - 1].movedAwayAt = max(people[Int(owner) - 1].movedAwayAt ?? at, at)
                }
            }
        }
        for (item, attributions) in lookedAt { endContests(item, attributions, before) }
        for effect in effects where effect.writesLedger { record(effect) }
        for index in effects.indices { settle(&effects[index], lockedAssets: lockedAssets) }
        for effect in effects {
            remove(effect.item.job)
            jobs[effect.item.job].state = .done
            jobs[effect.item.job].attempt = effect.item.attempt
            jobs[effect.item.job].outcome = effect.verdict.outcome
            jobs[effect.item.job].key = effect.verdict.messageKey
        }
        for job in ended { remove(job) }
        for (item, failure) in retries where again(item, failure) { ended.append(item.job) }
        for effect in effects {
            let hasFollowed = effect.attributions.contains { if case .followed = $0 { true } else { false } }
            if effect.verdict.enqueuesReconcile || hasFollowed && effect.writesLedger {
                enqueue(effect.item.user, .reconcile)
            }
        }
        return ended + effects.map(\.item.job)
    }

    private func known(of item: ModelItem, _ input: DecisionInput, _ verdict: Verdict) -> ScheduledCheck.Knowledge {
        var known = ScheduledCheck.Knowledge()
        known.grants = verdict.action == .grant
        known.rule = verdict.rule
        known.margin =
            input.ledger.map { input.settings.margin(of: $0.store) }.max() ?? input.settings.absenceMargin
        // Whatever is given in these histories is given until then.
        if input.grants == .active { known.ownEnds.append(StoreTruth.future) }
        if input.sandbox == .allowed { known.ownEnds.append(StoreTruth.future) }
        known.jitter = Jitter(userKey: item.key)
        return known
    }

    struct Effect {
        var item: ModelItem
        var attributions: [Attribution]
        var verdict: Verdict
        var isExplained: Bool
        /// `nil`: what was planned before stands.
        var nextCheck: ScheduledCheck?
        /// The type before; nil for a user who is gone.
        var before: UserType?
        /// A person has confirmed it among a run's.
        var isConfirmed = false
        var writesLedger: Bool { item.reading.coverage != .none && before != nil }

        mutating func putOff(by rule: Rule) {
            verdict.rule = rule
            verdict.action = .none
            verdict.outcome = .deferred
            verdict.absence = .keep
            nextCheck = ScheduledCheck(at: item.reading.askedAt + .seconds(86_400))
        }

        var after: UserType? {
            switch verdict.action {
            case .grant: before.map { _ in .subscriber }
            case .demote: before.map { _ in .free }
            case .none: before
            }
        }
    }

    /// Everything the verdict on one job rests on.
    func input(_ item: ModelItem) -> (DecisionInput, [Attribution]) {
        let person = people[item.user]
        let key = Int64(item.user + 1)
        let attributions = attribute(
            item.reading.observations,
            holders: item.reading.observations.map { observation in
                Set(observation.identifiers.compactMap { names[$0.key] }).map { purchases[$0].facts }
            },
            userKey: key,
            eligible: person.exists && person.status.isEligible,
            askedAt: item.reading.askedAt
        )
        let targets = attributions.map { attribution in attribution.target.map { purchases[Int($0)].facts } }
        let claimed = item.reading.claims.found.compactMap { found -> ClaimedPurchase? in
            guard userIndex(found.customerID) != item.user else { return nil }
            let row = names[found.identifier.key].map { purchases[$0].facts }
            guard row?.ownerKey != key else { return nil }
            return ClaimedPurchase(
                found: found,
                purchase: row?.id,
                ownerKey: row?.ownerKey,
                ownerID: found.isAnonymous ? nil : found.customerID
            )
        }
        var settings = setup.decision
        settings.demotionsPaused = paused.contains("demotions")
        var input = DecisionInput(
            kind: item.kind,
            user: person.exists ? User(id: userID(item.user), type: person.type, status: person.status) : nil,
            userKey: key,
            reading: item.reading,
            attributions: attributions,
            rows: targets,
            ledger: purchases.filter { $0.mergedInto == nil && $0.facts.ownerKey == key }.map(\.facts),
            listed: Set(
                item.reading.observations.flatMap { $0.identifiers.compactMap { names[$0.key] } }
                    .map { purchases[$0].facts.id }
            ),
            catalog: ProductCatalog(catalog),
            settings: settings
        )
        input.grants = person.grants.contains(where: \.isActive) ? .active : person.grants.isEmpty ? .none : .past
        input.sandbox = person.sandbox
        input.everObserved = person.everObserved
        input.decidedType = person.decidedType
        // A dry run dates nothing, and takes what lies ahead for the present.
        input.absentSince =
            person.isAhead
            ? person.absentSince.map { min($0, item.reading.askedAt) } : person.absentSince
        input.movedAwayAt = person.movedAwayAt
        input.claimed = claimed
        return (input, attributions)
    }

    /// A purchase that moved is contested until one of its two owners is read without it; then the other is read again.
    ///
    /// Whoever is named meanwhile gets nothing, and has the owner read again.
    private mutating func endContests(_ item: ModelItem, _ attributions: [Attribution], _ before: Model) {
        for (row, former) in before.endedContests(item) {
            note("contest ended")
            if purchases[row].facts.formerOwnerKey == former { purchases[row].facts.formerOwnerKey = nil }
            if former != Int64(item.user + 1) { enqueue(Int(former) - 1, .reconcile) }
        }
        for owner in before.contestedOwners(item, attributions) {
            note("contested purchase stays")
            enqueue(owner, .reconcile)
        }
    }

    /// The contests that a reading ends: the rows, and from whom they came.
    private func endedContests(_ item: ModelItem) -> [(row: Int, former: Int64)] {
        let (key, reading) = (Int64(item.user + 1), item.reading)
        let named = Set(reading.observations.flatMap(\.identifiers).compactMap { names[$0.key] })
        return purchases.indices.compactMap { row in
            let facts = purchases[row].facts
            guard purchases[row].mergedInto == nil, !named.contains(row), let former = facts.formerOwnerKey,
                [former, facts.ownerKey].contains(key), facts.ownerSince <= reading.askedAt
            else { return nil }
            let isListed = facts.kind == .subscription && reading.coverage == .partial && reading.failure == nil
            return reading.coverage == .full || isListed ? (row, former) : nil
        }
    }

    /// The owners of contested purchases that a reading names for its user.
    private func contestedOwners(_ item: ModelItem, _ attributions: [Attribution]) -> [Int] {
        zip(item.reading.observations, attributions).compactMap { observation, attribution in
            guard case .disagree(_, let owner) = attribution else { return nil }
            let rows = Set(observation.identifiers.compactMap { names[$0.key] })
            return rows.contains { purchases[$0].facts.formerOwnerKey != nil } ? Int(owner) - 1 : nil
        }
    }

    /// The other users who are read again because of a reading.
    func othersReadAgain(_ item: ModelItem) -> [Int] {
        let attributions = input(item).1
        let followed = attributions.compactMap { attribution -> Int? in
            guard case .followed(_, let owner, _) = attribution else { return nil }
            return Int(owner) - 1
        }
        let returned = endedContests(item).map { Int($0.former) - 1 }.filter { $0 != item.user }
        return followed + returned + contestedOwners(item, attributions)
    }

    /// Runs hold back what they have yet to count; of the rest the brake lets so many unannounced demotions through, and
    /// defers the others.
    private mutating func hold(_ effects: inout [Effect]) {
        guard !isObserving else { return }
        let spent = decisions.count(where: \.isBraked)
        var left = setup.brakeMinimum - spent
        var wanted = 0
        for index in effects.indices where effects[index].verdict.action == .demote {
            guard !effects[index].verdict.wasAnnounced else {
                note("announced demotion")
                continue
            }
            if let run = runs(on: effects[index].item.user) {
                effects[index].isConfirmed = !run.isHeld && run.isConfirmed
                if effects[index].isConfirmed { note("a confirmed demotion passes the brake") }
                guard !effects[index].isConfirmed else { continue }
                if run.isHeld, effects[index].item.isEvents { note("an event waits for no run") }
                if run.isHeld, !effects[index].item.isEvents {
                    note("held by a run")
                    effects[index].putOff(by: .proposed)
                    continue
                }
            }
            left -= 1
            wanted += 1
            guard left < 0 else { continue }
            note("brake held")
            alarms.insert("demotion_brake")
            effects[index].putOff(by: .brake)
        }
        let written = min(spent, setup.brakeMinimum) + min(wanted, max(setup.brakeMinimum - spent, 0))
        if wanted > 0, setup.brakeMinimum > 0, 2 * written >= setup.brakeMinimum {
            alarms.insert("demotion_brake_half")
        }
    }

    /// A failed reading: tried again or dead.
    ///
    /// - Returns: whether the job has ended.
    private mutating func again(_ item: ModelItem, _ failure: ReadFailure) -> Bool {
        let job = item.job
        let waits: Set<ReadFailure.Code> = [.breakerOpen, .budgetExhausted, .interrupted]
        let isParked = failure.code == .rejected || failure.code == .refused || failure.code == .crashed
        switch failure.code {
        case .unauthorized: alarms.insert("credentials")
        case .unmapped: alarms.insert("product_unmapped")
        case .rejected: alarms.insert("request_rejected")
        default: break
        }
        let isImmediateRetry = ReadFailure.isImmediateRetry(failure.code.rawValue)
        let isFree = isImmediateRetry && !ReadFailure.isImmediateRetry(item.lastError)
        let counts = !isFree && !waits.contains(failure.code)
        jobs[job].attempt = item.attempt + (counts ? 1 : 0)
        jobs[job].error = failure.code.rawValue
        if isParked || counts && jobs[job].attempt >= setup.maxAttempts {
            note(failure.code == .unmapped ? "dead by an unmapped product" : "dead by failed readings")
            remove(job)
            jobs[job].state = .dead
            jobs[job].outcome = .storeUnavailable
            jobs[job].key = jobs[job].kind == .restore ? .unavailable : nil
            return true
        }
        release(jobs[job].user)
        people[jobs[job].user].row?.retry()
        jobs[job].isDelayed = !isFree && (setup.backsOff || failure.retryAfter != nil)
        if jobs[job].isDelayed { note("delayed retry") }
        return false
    }
}
