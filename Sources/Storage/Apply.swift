import Entitlements
import FoundationEssentials
package import Jobs
package import Logging
package import Postgres

/// Makes verdicts true: the one transaction that locks, decides and writes a batch of jobs.
///
/// Nothing is decided before the locks are held, so no verdict rests on a state that somebody changed meanwhile. Users,
/// jobs and assets that somebody else holds are skipped, never waited for.
package struct Apply: Sendable {
    private let pool: PostgresPool
    private let settings: ApplySettings
    private let logger: Logger
    private let numbers = PurchaseNumbers()

    package init(pool: PostgresPool, settings: ApplySettings, logger: Logger) {
        self.pool = pool
        self.settings = settings
        self.logger = logger
    }

    /// Applies a batch.
    ///
    /// - Parameters:
    ///   - batch: jobs of different users, leased under `epoch`.
    ///   - epoch: this process's lease; nothing is written once it has ended.
    /// - Returns: what became of each.
    /// - Throws: `PostgresError`; whether the transaction took place is then told by the jobs' rows alone.
    package func callAsFunction(_ batch: [ReadJob], epoch: Int32) async throws -> ApplyReport {
        var tries = 0
        var assetsApart = false
        while true {
            do {
                return try await pool.withTransaction { connection in
                    try await attempt(batch, epoch: epoch, assetsApart: assetsApart, on: connection)
                }
            } catch let refused as AssetsRefused where !assetsApart {
                logger.warning(
                    "assets refused in a batch, continuing one by one",
                    metadata: ["error.sqlstate": "\(refused.sqlState ?? "")", "batch.jobs": "\(batch.count)"]
                )
                assetsApart = true
            } catch is LedgerRace where tries < 5 {
                tries += 1
            } catch let error as PostgresError where error.isTransactionConflict && tries < 5 {
                tries += 1
            }
        }
    }

    /// Ends a job as dead without touching its user: the last way out for data that the database refuses.
    package func bury(_ job: ClaimedJob, epoch: Int32) async throws {
        try await pool.withTransaction { connection in
            guard try await LedgerReads.gate(epoch: epoch, on: connection).isAlive,
                try await JobEnds.lock([job.userKey], epoch: epoch, on: connection)[job.userKey]?.id == job.id
            else { return }
            let dead = JobEnd(
                id: job.id,
                userKey: job.userKey,
                kind: job.kind,
                state: .dead,
                outcome: .storeUnavailable,
                messageKey: job.kind == .restore ? .unavailable : nil,
                attempt: job.attempt,
                lastError: ReadFailure.Code.refused.rawValue
            )
            try await JobEnds.finish([dead], on: connection)
        }
    }

    /// Why a batch is written again with its assets left to runs.
    private struct AssetsRefused: Error {
        var sqlState: String?
    }

    private func attempt(
        _ batch: [ReadJob],
        epoch: Int32,
        assetsApart: Bool,
        on connection: PostgresConnection
    ) async throws -> ApplyReport {
        var report = ApplyReport()
        let gate = try await LedgerReads.gate(epoch: epoch, on: connection)
        guard gate.isAlive else {
            report.halted = .leaseLost
            return report
        }
        // Observing writes neither users nor assets, so a pause of those writes does not concern it.
        guard !gate.isPaused || settings.decision.mode == .observe else {
            report.halted = .paused
            return report
        }
        let plan = try await plan(batch, gate: gate, epoch: epoch, report: &report, on: connection)
        try await write(plan, assetsApart: assetsApart, report: &report, on: connection)
        return report
    }

    // MARK: - Lock, load, decide

    private func plan(
        _ batch: [ReadJob],
        gate: Gate,
        epoch: Int32,
        report: inout ApplyReport,
        on connection: PostgresConnection
    ) async throws -> ApplyPlan {
        let ids = batch.compactMap(\.job.userID).sorted()
        let users = try await LedgerReads.lockUsers(ids, on: connection)
        let unlocked = ids.filter { users[$0] == nil }
        let held = try await LedgerReads.existing(unlocked, on: connection)
        let candidates = batch.filter { item in
            guard let id = item.job.userID, held.contains(id) else { return true }
            report.postponed.append(item)
            return false
        }
        let keys = candidates.map(\.job.userKey).sorted()
        let facts = try await LedgerReads.facts(keys, on: connection)
        // Their rows are held elsewhere; whoever has none at all lost it to an erasure.
        let unheld = candidates.filter { facts[$0.job.userKey] != nil }
        report.postponed += candidates.filter { facts[$0.job.userKey] == nil }
        let locked = try await JobEnds.lock(unheld.map(\.job.userKey).sorted(), epoch: epoch, on: connection)
        // The row must still run this very job: after a commit whose answer was lost it may hold the successor already.
        let ours = unheld.filter { locked[$0.job.userKey]?.id == $0.job.id }
        let missing = unheld.filter { locked[$0.job.userKey] == nil }
        let busy = try await JobEnds.busy(missing.map(\.job.userKey), epoch: epoch, on: connection)
        let waiting = missing.filter { busy[$0.job.userKey]?.id == $0.job.id }
        report.postponed += waiting
        report.lost += unheld.count - ours.count - waiting.count
        var identifiers: Set<PurchaseIdentifier> = []
        for item in ours {
            for observation in item.reading.observations { identifiers.formUnion(observation.identifiers) }
            for found in item.reading.claims.found { identifiers.insert(found.identifier) }
        }
        let holders = try await LedgerReads.holders(identifiers.sorted(), on: connection)
        let ledger = try await LedgerReads.ledger(ours.map(\.job.userKey), on: connection)
        var decision = settings.decision
        decision.demotionsPaused = gate.demotionsPaused
        var plan: ApplyPlan
        var postponed: Set<Int64> = []
        repeat {
            plan = ApplyPlan(settings: settings, decision: decision, catalog: gate.catalog)
            for (key, purchase) in holders { plan.knownIdentifiers[purchase.id, default: []].insert(key) }
            for item in ours where !postponed.contains(item.job.userKey) {
                let key = item.job.userKey
                plan.add(
                    item,
                    user: item.job.userID.flatMap { users[$0] },
                    facts: facts[key],
                    canceled: locked[key]?.cancel ?? false,
                    holders: holders,
                    ledger: ledger.owned[key] ?? [],
                    contested: ledger.contested[key] ?? []
                )
            }
            // Without the jobs that have to wait, others may touch what they touched: planned anew, until nobody waits.
        } while try await postpone(&postponed, in: plan, on: connection)
        report.postponed += plan.postponed + ours.filter { postponed.contains($0.job.userKey) }
        let brakes = { (effect: Effect) in effect.verdict.action == .demote && !effect.verdict.wasAnnounced }
        if settings.decision.mode != .observe, plan.effects.contains(where: brakes) {
            let wanted = plan.effects.count(where: brakes)
            let allowance = try await BrakeStore.allowance(settings.brake, wanted: wanted, on: connection)
            BrakeStore.hold(&plan.effects, beyond: allowance)
        }
        return plan
    }

    /// Queues the former owners of purchases that move.
    ///
    /// A host's open transaction may hold such an owner's row of the queue: its claimants are put off, and nobody waits.
    ///
    /// - Returns: whether claimants were added to `postponed`.
    private func postpone(
        _ postponed: inout Set<Int64>,
        in plan: ApplyPlan,
        on connection: PostgresConnection
    ) async throws -> Bool {
        let owners = Set(plan.formerOwners.map(\.owner)).sorted()
        guard !owners.isEmpty else { return false }
        let held = try await JobEnds.enqueueUnheld(owners, lane: .event, on: connection)
        let claimants = plan.formerOwners.filter { held.contains($0.owner) }.map(\.claimant)
        postponed.formUnion(claimants)
        return !claimants.isEmpty
    }

    // MARK: - Write

    private func write(
        _ planned: ApplyPlan,
        assetsApart: Bool,
        report: inout ApplyReport,
        on connection: PostgresConnection
    ) async throws {
        var plan = planned
        let isObserving = settings.decision.mode == .observe
        let fresh = plan.observed.indices.filter { plan.observed[$0].attribution == .new }
        let newIDs = try await numbers.take(fresh.count, on: connection)
        for (index, id) in zip(fresh, newIDs) { plan.observed[index].purchaseID = id }
        try await LedgerWrites.insertPurchases(fresh.map { plan.observed[$0] }, on: connection)
        try await LedgerWrites.merge(plan.merges, on: connection)
        let names = fresh.flatMap { index -> [(PurchaseIdentifier, Int64)] in
            guard let id = plan.observed[index].purchaseID else { return [] }
            return (plan.observed[index].observation?.identifiers ?? []).map { ($0, id) }
        }
        try await LedgerWrites.insertIdentifiers(names + plan.newIdentifiers, on: connection)
        try await LedgerWrites.settle(plan.settled, on: connection)
        try await LedgerWrites.updatePurchases(
            plan.observed.filter { $0.before != nil && ($0.attribution?.counts ?? false) },
            on: connection
        )
        try await LedgerWrites.insertObservations(plan.observed, on: connection)
        if !isObserving {
            try await EffectWrites.setTypes(plan.effects, on: connection)
            try await changeAssets(&plan.effects, apart: assetsApart, on: connection)
        } else {
            try await foreseeAssets(&plan.effects, on: connection)
        }
        try await EffectWrites.updateUsers(
            isObserving ? plan.effects.map(withoutTypeChange) : plan.effects,
            on: connection
        )
        if !isObserving {
            let wanted = plan.effects.flatMap { effect in
                effect.verdict.tickets.map {
                    TicketWrites.Wanted(claimantKey: effect.job.userKey, jobID: effect.job.id, request: $0)
                }
            }
            let visible = try await TicketWrites.open(wanted, on: connection)
            for index in plan.effects.indices where !plan.effects[index].verdict.tickets.isEmpty {
                plan.effects[index].ticketID = visible[plan.effects[index].job.userKey]
            }
        }
        let decisions = try await EffectWrites.insertDecisions(
            plan.effects,
            mode: settings.decision.mode,
            on: connection
        )
        try await startRuns(plan.effects, decisions: decisions, report: &report, on: connection)
        try await EffectWrites.raise(plan.alarms, on: connection)
        report.alarms = plan.alarms.keys.sorted()
        let ends = plan.ends + plan.effects.map(end)
        try await JobEnds.finish(ends, on: connection)
        let answered = plan.effects.filter { $0.job.request.proofs != nil }.map(\.job.id)
        let canceled = plan.ends.filter { $0.state == .canceled }.map(\.id)
        try await JobEnds.forgetProofs(of: answered + canceled, on: connection)
        try await JobEnds.retry(plan.retries, on: connection)
        try await JobEnds.enqueueReconciles(for: plan.reconciles, lane: .event, on: connection)
        report.enqueued = !plan.reconciles.isEmpty || !plan.formerOwners.isEmpty
        report.retried = plan.retries.count
        if !isObserving { report.assetsChanged = plan.effects.reduce(0) { $0 + $1.assetsChanged } }
        report.ended = ends.map { .init(id: $0.id, kind: $0.kind, state: $0.state, outcome: $0.outcome) }
    }

    private func withoutTypeChange(_ effect: Effect) -> Effect {
        var same = effect
        same.verdict.action = .none
        return same
    }

    private func end(_ effect: Effect) -> JobEnd {
        JobEnd(
            id: effect.job.id,
            userKey: effect.job.userKey,
            kind: effect.job.kind,
            state: .done,
            outcome: effect.verdict.outcome,
            messageKey: effect.verdict.messageKey,
            ticketID: effect.ticketID,
            attempt: effect.job.attempt
        )
    }

    /// Changes the assets of everybody whose access is there or has just gone.
    ///
    /// A host's trigger or constraint may refuse one asset. Then the batch is written again with all its assets `apart`:
    /// types stand, and runs find the asset that fails and leave it aside. A savepoint for the rare case would burden
    /// every batch.
    private func changeAssets(_ effects: inout [Effect], apart: Bool, on connection: PostgresConnection) async throws {
        for direction in [AssetDirection.unfreeze, .freeze] {
            let indices = effects.indices.filter { direction == self.direction(of: effects[$0]) }
            let ids = indices.compactMap { effects[$0].user?.id }
            guard !ids.isEmpty else { continue }
            guard !apart else {
                let counts = try await countAssets(ids, on: connection)
                for index in indices {
                    guard let count = effects[index].user.flatMap({ counts[$0.id] }) else { continue }
                    let more = (direction == .unfreeze ? count.lapsed : count.others) > 0
                    effects[index].noteAssets(AssetProgress(changed: 0, cursor: nil, more: more), direction)
                }
                continue
            }
            let progress: [String: AssetProgress]
            do {
                progress = try await EffectWrites.changeAssets(
                    direction,
                    of: ids,
                    after: ids.map { _ in nil },
                    batch: settings.assetBatch,
                    on: connection
                )
            } catch let error as PostgresError where error.code == .serverError && !error.isRetryable {
                throw AssetsRefused(sqlState: error.sqlState)
            }
            for index in indices {
                guard let done = effects[index].user.flatMap({ progress[$0.id] }) else { continue }
                effects[index].noteAssets(done, direction)
            }
        }
    }

    private func direction(of effect: Effect) -> AssetDirection? {
        switch effect.verdict.action {
        case .grant: .unfreeze
        case .demote: .freeze
        case .none: nil
        }
    }

    /// What the assets would have changed, for decisions that are only observed.
    private func foreseeAssets(_ effects: inout [Effect], on connection: PostgresConnection) async throws {
        let ids = effects.filter { $0.verdict.action != .none }.compactMap(\.user?.id)
        guard !ids.isEmpty else { return }
        let counts = try await countAssets(ids, on: connection)
        for index in effects.indices {
            guard let direction = direction(of: effects[index]), let id = effects[index].user?.id,
                let count = counts[id]
            else { continue }
            let changed = direction == .unfreeze ? count.lapsed : count.others
            effects[index].noteAssets(AssetProgress(changed: Int(changed), cursor: nil, more: false), direction)
        }
    }

    private func countAssets(
        _ ids: [String],
        on connection: PostgresConnection
    ) async throws -> [String: (lapsed: Int64, others: Int64)] {
        let rows = try await connection.query(
            "SELECT a.user_id, a.lapsed, a.others FROM entitlement_sync_host.count_assets(\(ids)) AS a"
        )
        var counts: [String: (lapsed: Int64, others: Int64)] = [:]
        for row in rows {
            let (id, lapsed, others) = try row.decode(String.self, Int64.self, Int64.self)
            counts[id] = (lapsed, others)
        }
        return counts
    }

    private func startRuns(
        _ effects: [Effect],
        decisions: [Int64: Int64],
        report: inout ApplyReport,
        on connection: PostgresConnection
    ) async throws {
        guard settings.decision.mode != .observe else { return }
        let runs = effects.compactMap { effect -> NewAssetRun? in
            guard effect.assetsPending, let direction = direction(of: effect), let id = decisions[effect.job.userKey]
            else { return nil }
            return NewAssetRun(
                userKey: effect.job.userKey,
                decisionID: id,
                direction: direction,
                cursor: effect.assetCursor,
                changed: effect.assetsChanged
            )
        }
        try await EffectWrites.replaceRuns(runs, on: connection)
        report.startedRuns = !runs.isEmpty
    }
}
