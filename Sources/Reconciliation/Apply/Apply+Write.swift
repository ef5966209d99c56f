import Entitlements
import FoundationEssentials
import Ledger
import Outbox
import Postgres
import Queue
import StoreEvents
import TextFormats
import UserRequests

/// What a planned batch comes to in the database.
extension Apply {
    /// Writes it and commits.
    func write(
        _ plan: BatchPlan,
        assetsApart: Bool,
        report: inout ApplyReport,
        on connection: PostgresConnection
    ) async throws {
        // Absences are judged by all that is counted; what does not come about was not counted.
        let known = plan.absences.isEmpty ? [:] : absences.takeKnown()
        do {
            try await write(plan, known: known, assetsApart: assetsApart, report: &report, on: connection)
        } catch {
            absences.note(known: known)
            throw error
        }
        // With absences it was written down beside them.
        if plan.absences.isEmpty { absences.note(known: plan.known) }
    }

    private func write(
        _ planned: BatchPlan,
        known: [Store: Int64],
        assetsApart: Bool,
        report: inout ApplyReport,
        on connection: PostgresConnection
    ) async throws {
        var plan = planned
        let isObserving = settings.decision.mode == .observe
        let fresh = try await numberNew(&plan, on: connection)
        // Not with the COMMIT: an operator may have locked an alarm's row, and a wait for it can be stopped here.
        plan.alarms.merge(DecisionWrites.alarms(plan.effects)) { first, _ in first }
        report.alarms = plan.alarms.keys.sorted()
        try await meetAccounts(plan, on: connection)
        if !isObserving { try noteEntitlements(&plan) }
        try await noteConfirmations(&plan, on: connection)
        let confirming = plan.confirming
        var requests = ledgerWrites(plan, fresh: fresh) + LedgerWrites.noteMovedAway(plan.movedAway)
        requests += AccountSearch.note(plan.accounts, isObserving: isObserving)
        requests += Alarms.statements(raising: plan.alarms)
        if isObserving {
            try await connection.send(requests)
            try await predictAssets(&plan.effects, on: connection)
        } else {
            requests += Acknowledgements.plan(plan.acknowledgements)
            try await changeHost(&plan.effects, assetsApart: assetsApart, after: requests, on: connection)
            try await openTickets(&plan, on: connection)
        }
        let counted = known.merging(plan.absences.isEmpty ? [:] : plan.known, uniquingKeysWith: +)
        report.alarms += try await absences.write(plan.absences, known: counted, on: connection)
        // What changed assets after all is a decision of its own.
        for index in plan.effects.indices where plan.effects[index].confirmation != nil {
            let effect = plan.effects[index]
            guard effect.assetsChanged > 0 || effect.assetsPending || effect.ticketID != nil else { continue }
            plan.effects[index].confirmation = nil
        }
        let late = confirming.subtracting(plan.confirming)
        requests = LedgerWrites.insertObservations(plan.observed.filter { late.contains($0.userKey) })
        requests += isObserving ? [] : BrakeStore.spend(plan.effects.count(where: \.countsTowardBrake))
        var decisions: [Int64: Int64] = [:]
        let decided = plan.effects.filter { $0.confirmation == nil }
        if !decided.isEmpty {
            requests += [DecisionWrites.insertDecisions(decided, mode: settings.decision.mode).then { decisions = $0 }]
        }
        requests += DecisionWrites.updateUsers(plan.effects, isObserving: isObserving)
        let ends = plan.ends + plan.effects.map(end)
        var passedOn = 0
        requests += JobEnds.finish(ends) { passedOn = $0 }
        let startsRuns = !isObserving && plan.effects.contains(where: \.assetsPending)
        if startsRuns {
            // Runs carry the numbers that their decisions are given.
            try await connection.send(requests)
            requests = DecisionWrites.replaceRuns(assetRuns(plan.effects, decisions: decisions))
        }
        let answered = plan.effects.filter { ($0.job.request.proofs ?? "[]") != "[]" }.map(\.job.id)
        let canceled = plan.ends.filter { $0.state == .canceled }.map(\.id)
        requests += JobEnds.forgetProofs(of: answered + canceled) + JobEnds.retry(plan.retries)
        requests += JobEnds.enqueueReconciles(for: plan.reconciles, lane: .event)
        if settings.publishes, !isObserving { requests += OutboxWrites.insert(outboxMessages(plan.effects, ends)) }
        if settings.keepsClaims, !isObserving { requests += ClaimsQueue.note(claims(plan.effects)) }
        let awaited = plan.effects.filter { $0.job.kind == .restore && settings.wantsAnswer($0.job.id) }
        var findings: [UUID: RestoreFindings] = [:]
        requests += RestoreFindings.of(awaited.map(end), wanted: awaited.map(\.job.request.productIDs)).map {
            $0.then { findings = $0 }
        }
        if !isObserving, plan.effects.contains(where: { $0.newType != nil || $0.assetsChanged > 0 }) {
            // What triggers of the host's tables defer until the commit.
            requests.append(PostgresRequest(SessionSettings.plansOfServer))
        }
        try await connection.sendAndCommit(requests)
        report.answers = awaited.compactMap { effect in
            let age = effect.job.age + effect.job.claimedTick.duration(to: .now)
            return findings[effect.job.id].map { RestoreAnswer(end(effect), $0, age: age / .seconds(1)) }
        }
        report.startedRuns = startsRuns
        report.searchesAccounts = !isObserving && plan.accounts.contains(where: \.isSearched)
        report.acknowledges = !isObserving && !plan.acknowledgements.isEmpty
        let isAgain = plan.retries.contains { $0.after == .zero }
        report.enqueued = passedOn > 0 || isAgain || !plan.reconciles.isEmpty || !plan.formerOwners.isEmpty
        report.retried = plan.retries.count
        if !isObserving { report.assetsChanged = plan.effects.reduce(0) { $0 + $1.assetsChanged } }
        report.ended = ends
    }

    /// Gives rows that are new to the ledger their ids; returns their places.
    func numberNew(_ plan: inout BatchPlan, on connection: PostgresConnection) async throws -> [Int] {
        let fresh = plan.observed.indices.filter {
            plan.observed[$0].attribution?.isNew == true && plan.observed[$0].sharesRowOf == nil
        }
        let newIDs = try await numbers.take(fresh.count, on: connection)
        for (index, id) in zip(fresh, newIDs) { plan.observed[index].purchaseID = id }
        for index in plan.observed.indices {
            guard let leader = plan.observed[index].sharesRowOf else { continue }
            plan.observed[index].purchaseID = plan.observed[leader].purchaseID
        }
        return fresh
    }

    /// Makes users known that only the app's ids in purchases name, and queues reads of users whose purchases were found.
    ///
    /// Throws `LockedByOthers` if another transaction has locked such a user's row of the queue: the job that submitted the
    /// purchase is postponed.
    private func meetAccounts(_ plan: BatchPlan, on connection: PostgresConnection) async throws {
        let rows = plan.observed
        let accounts = rows.compactMap(\.account).sortedExactly
        guard !accounts.isEmpty else { return }
        try await TicketWrites.meet(accounts, on: connection)
        let owners = rows.filter(\.isAccounts).compactMap(\.account).sortedExactly
        guard !owners.isEmpty, settings.decision.mode != .observe else { return }
        let users = try await connection.query(
            """
            SELECT u.user_key, u.user_id FROM entitlement_sync.user_sync AS u
             WHERE u.user_id = ANY (\(owners)) ORDER BY u.user_key
            """
        ).map { try $0.decode(Int64.self, String.self) }
        let held = try await JobEnds.enqueueUnheld(users.map(\.0), lane: .event, on: connection)
        guard !held.isEmpty else { return }
        let heldIDs = Set(users.filter { held.contains($0.0) }.map { ExactText($0.1) })
        throw LockedByOthers(
            users: Set(
                rows.filter { $0.isAccounts && $0.account.map { heldIDs.contains(ExactText($0)) } == true }
                    .map(\.userKey)
            )
        )
    }

    /// Finds out whose set of entitlements changes; what is only observed changes none.
    private func noteEntitlements(_ plan: inout BatchPlan) throws {
        for index in plan.effects.indices {
            let known = plan.effects[index].facts?.entitlements ?? "[]"
            guard let held = try plan.effects[index].held ?? Self.unrefuted(of: known) else { continue }
            let record = EntitlementJSON.record(held)
            guard record != known else { continue }
            let former = try EntitlementJSON.read(record: known)
            plan.effects[index].entitlements = EntitlementChange(from: former, to: held, record: record)
        }
    }

    /// What stays of a set that no store has refuted; `nil`: all of it.
    ///
    /// Grants do not stay: with one in force there would be access.
    private static func unrefuted(of record: String) throws -> [HeldEntitlement]? {
        let set = try EntitlementJSON.read(record: record)
        return set.contains { $0.source != nil } ? set.filter { $0.source == nil } : nil
    }

    /// Whose custom claims are to be written, or compared because a check has just been made.
    private func claims(_ effects: [DecidedJob]) -> [(key: Int64, isCheck: Bool)] {
        effects.compactMap { effect in
            if effect.entitlements?.isNews == true { return (effect.job.userKey, false) }
            return effect.user == nil ? nil : (effect.job.userKey, true)
        }
    }

    /// Finds out which verdicts only confirm what is on record.
    private func noteConfirmations(_ plan: inout BatchPlan, on connection: PostgresConnection) async throws {
        let isObserving = settings.decision.mode == .observe
        var rows: [Int64: [ObservedRow]] = [:]
        for row in plan.observed { rows[row.userKey, default: []].append(row) }
        for index in plan.effects.indices {
            let effect = plan.effects[index]
            plan.effects[index].fingerprint = Confirmation.fingerprint(
                of: effect,
                rows: rows[effect.job.userKey] ?? [],
                isObserving: isObserving
            )
        }
        let confirming = plan.effects.filter { Confirmation.confirms($0) }
        let numbers = try await Confirmation.numbers(of: confirming, on: connection)
        guard !numbers.isEmpty else { return }
        for index in plan.effects.indices {
            plan.effects[index].confirmation = numbers[plan.effects[index].job.userKey]
        }
    }

    /// What was read, as it goes into the ledger.
    func ledgerWrites(_ plan: BatchPlan, fresh: [Int]) -> [PostgresRequest<Void>] {
        let names = plan.observed.flatMap { row -> [(PurchaseIdentifier, Int64)] in
            guard row.attribution?.isNew == true, let id = row.purchaseID else { return [] }
            return (row.observation?.identifiers ?? []).map { ($0, id) }
        }
        let known = plan.observed.filter { $0.before != nil && $0.attribution?.target != nil }
        let confirming = plan.confirming
        // Only a row that others share has more than one item.
        let isShared = plan.observed.contains { $0.sharesRowOf != nil }
        let new =
            isShared
            ? ObservedRow.prevailing(
                in: plan.observed.filter { $0.attribution?.isNew == true },
                by: \.purchaseID,
                catalog: plan.catalog
            ) : fresh.map { plan.observed[$0] }
        return LedgerWrites.insertPurchases(new)
            + LedgerWrites.merge(plan.merges)
            + LedgerWrites.insertIdentifiers(names + plan.newIdentifiers)
            + LedgerWrites.settle(plan.settled)
            + LedgerWrites.noteAccounts(plan.observed)
            + LedgerWrites.updatePurchases(known, catalog: plan.catalog)
            + LedgerWrites.insertObservations(plan.observed.filter { !confirming.contains($0.userKey) })
    }

    /// The rows that other users' purchases are given by this batch: by user key, store and the store's id.
    private func newRows(in plan: BatchPlan) -> [ExactText: Int64] {
        var rows: [ExactText: Int64] = [:]
        for row in plan.observed where row.attribution?.isNew == true && row.attribution != .new {
            guard let id = row.purchaseID, let item = row.observation, let spoken = item.spokenID else { continue }
            rows[ExactText("\(row.userKey) \(item.store) \(spoken)")] = id
        }
        return rows
    }

    private func openTickets(_ plan: inout BatchPlan, on connection: PostgresConnection) async throws {
        let rows = newRows(in: plan)
        let wanted = plan.effects.flatMap { effect in
            effect.verdict.tickets.map { ticket in
                // A ticket may be about a purchase whose row is made by this very batch.
                var ticket = ticket
                if ticket.purchase == nil, let store = ticket.store, let id = ticket.originalID {
                    ticket.purchase = rows[ExactText("\(effect.job.userKey) \(store) \(id)")]
                }
                return WantedTicket(ticket, for: effect.job)
            }
        }
        let visible = try await TicketWrites.open(wanted + plan.tickets, publishes: settings.publishes, on: connection)
        for index in plan.effects.indices where !plan.effects[index].verdict.tickets.isEmpty {
            plan.effects[index].ticketID = visible[plan.effects[index].job.userKey]
        }
        let jobs = Set(plan.tickets.map(\.jobID))
        for index in plan.ends.indices where jobs.contains(plan.ends[index].id) {
            plan.ends[index].ticketID = visible[plan.ends[index].userKey]
        }
    }

    private func end(_ effect: DecidedJob) -> JobEnd {
        let verdict = effect.verdict
        var end = JobEnd(effect.job, .done, outcome: verdict.outcome)
        end.messageKey = verdict.messageKey
        end.ticketID = effect.ticketID
        end.confirmation = effect.confirmation
        return end
    }

    /// Sets types, and changes the assets of everybody whose access is there or has just gone.
    ///
    /// A host's trigger or constraint may refuse one asset. Then the batch is written again with all its assets `apart`:
    /// types stand, and runs find the asset that fails and leave it aside. A savepoint for the rare case would burden
    /// every batch.
    private func changeHost(
        _ effects: inout [DecidedJob],
        assetsApart: Bool,
        after requests: [PostgresRequest<Void>],
        on connection: PostgresConnection
    ) async throws {
        let directions: [(AssetDirection, [Int])] = [AssetDirection.unfreeze, .freeze].map { direction in
            (direction, effects.indices.filter { self.direction(of: effects[$0]) == direction })
        }.filter { !$0.1.isEmpty }
        let types = DecisionWrites.setTypes(effects)
        guard !assetsApart else {
            try await connection.send(requests + byServer(types))
            for (direction, indices) in directions {
                let counts = try await countAssets(indices.compactMap { effects[$0].user?.id }, on: connection)
                for index in indices {
                    guard let count = effects[index].user.flatMap({ counts[ExactText($0.id)] }) else { continue }
                    let more = (direction == .unfreeze ? count.lapsed : count.others) > 0
                    effects[index].note(AssetProgress(changed: 0, cursor: nil, more: more))
                }
            }
            return
        }
        var progress: [ExactText: AssetProgress] = [:]
        let changes = directions.map { direction, indices in
            let ids = indices.compactMap { effects[$0].user?.id }
            return DecisionWrites.changeAssets(
                direction,
                of: ids,
                after: ids.map { _ in nil },
                batch: settings.assetBatch
            )
            .refused { error in
                guard error.code == .serverError, !error.isRetryable else { return error }
                return AssetsRefused(sqlState: error.sqlState)
            }
            .then { progress.merge($0) { first, _ in first } }
        }
        try await connection.send(requests + byServer(types + changes))
        let asked = effects.compactMap(\.user?.id)
        let known = Set(asked.map(ExactText.init))
        if !progress.keys.allSatisfy(known.contains) {
            progress = try await connection.withPlansOfServer { [progress] in
                try await AssetProgress.respelled(progress, as: asked, on: $0)
            }
        }
        for index in directions.flatMap(\.1) {
            guard let done = effects[index].user.flatMap({ progress[ExactText($0.id)] }) else { continue }
            effects[index].note(done)
        }
    }

    /// Calls of the host's adapter, planned as the server chooses.
    private func byServer(_ calls: [PostgresRequest<Void>]) -> [PostgresRequest<Void>] {
        guard !calls.isEmpty else { return [] }
        return [PostgresRequest(SessionSettings.plansOfServer)] + calls + [PostgresRequest(SessionSettings.plansByKey)]
    }

    private func direction(of effect: DecidedJob) -> AssetDirection? {
        switch effect.decision.verdict.action {
        case .grant: .unfreeze
        case .demote: .freeze
        case .none: nil
        }
    }

    /// What the assets would have changed, for decisions that are only observed.
    func predictAssets(_ effects: inout [DecidedJob], on connection: PostgresConnection) async throws {
        let ids = effects.filter { $0.verdict.action != .none }.compactMap(\.user?.id)
        guard !ids.isEmpty else { return }
        let counts = try await countAssets(ids, on: connection)
        for index in effects.indices {
            guard let direction = direction(of: effects[index]), let id = effects[index].user?.id,
                let count = counts[ExactText(id)]
            else { continue }
            let changed = direction == .unfreeze ? count.lapsed : count.others
            effects[index].note(AssetProgress(changed: Int(changed), cursor: nil, more: false))
        }
    }

    private func countAssets(
        _ ids: [String],
        on connection: PostgresConnection
    ) async throws -> [ExactText: (lapsed: Int64, others: Int64)] {
        let rows = try await connection.withPlansOfServer {
            try await $0.query(
                "SELECT a.user_id, a.lapsed, a.others FROM entitlement_sync_host.count_assets(\(ids)) AS a"
            )
        }
        var counts: [ExactText: (lapsed: Int64, others: Int64)] = [:]
        for row in rows {
            let (id, lapsed, others) = try row.decode(String?.self, Int64?.self, Int64?.self)
            guard let id, let lapsed, let others else {
                throw AdapterFault("count_assets", id == nil ? "user_id" : lapsed == nil ? "lapsed" : "others")
            }
            counts[ExactText(id)] = (lapsed, others)
        }
        return counts
    }

    /// The assets that a batch leaves to be carried on.
    private func assetRuns(_ effects: [DecidedJob], decisions: [Int64: Int64]) -> [NewAssetRun] {
        effects.compactMap { effect in
            guard effect.assetsPending, let direction = direction(of: effect), let id = decisions[effect.job.userKey]
            else { return nil }
            return (effect, id, direction)
        }
    }
}

/// What is published of verdicts and of the ends of jobs.
func outboxMessages(_ effects: [DecidedJob], _ ends: [JobEnd]) -> [OutboxMessage] {
    var messages: [OutboxMessage] = []
    for effect in effects {
        if let type = effect.newType, let before = effect.user?.type {
            messages.append(.typeChanged(of: effect.job.userKey, from: before, to: type, by: effect.verdict.rule))
        }
        if let change = effect.entitlements, change.isNews {
            messages.append(.entitlementsChanged(of: effect.job.userKey, change))
        }
        if effect.assetsChanged > 0 || effect.assetsPending {
            let direction: AssetDirection = effect.verdict.action == .demote ? .freeze : .unfreeze
            let (key, count) = (effect.job.userKey, effect.assetsChanged)
            messages.append(.assetsChanged(of: key, topic: direction.topic, count: count, more: effect.assetsPending))
        }
    }
    return messages + ends.filter { $0.kind == .restore }.map { .restoreFinished($0) }
}
