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
        var free = batch
        var putOff: [ReadJob] = []
        while true {
            do {
                var report = try await pool.withTransaction { connection in
                    try await attempt(free, epoch: epoch, assetsApart: assetsApart, on: connection)
                }
                report.postponed += putOff
                return report
            } catch let held as HeldElsewhere {
                putOff += free.filter { held.concerns($0) }
                free.removeAll { held.concerns($0) }
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
            let (gate, held) = try await connection.send(
                LedgerReads.gate(epoch: epoch),
                JobEnds.lock([job.userKey], epoch: epoch)
            )
            guard gate.isAlive, held[job.userKey]?.id == job.id else { return }
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
            try await finish([dead], with: [], on: connection)
        }
    }

    /// Users whom somebody else holds: the batch starts again without them.
    ///
    /// By then the rest of what is theirs was locked, and a host that asks for a restore of a user whom it holds must not
    /// wait for the whole batch, or worse, the batch for it.
    private struct HeldElsewhere: Error {
        var users: Set<String>

        func concerns(_ item: ReadJob) -> Bool { item.job.userID.map(users.contains) ?? false }
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
        let ids = batch.compactMap(\.job.userID).sorted()
        let keys = batch.map(\.job.userKey).sorted()
        // In the order in which locks are taken everywhere: users, our rows of them, jobs, ledger.
        let (gate, users, facts, grants, sandboxes, locked, named, ledger) = try await connection.send(
            LedgerReads.gate(epoch: epoch),
            LedgerReads.lockUsers(ids),
            LedgerReads.facts(keys),
            LedgerReads.grants(keys),
            LedgerReads.sandboxes(ids),
            JobEnds.lock(keys, epoch: epoch),
            LedgerReads.named(by: identifiers(in: batch)),
            LedgerReads.ledger(keys)
        )
        guard gate.isAlive else {
            report.halted = .leaseLost
            return report
        }
        // Observing writes neither users nor assets, so a pause of those writes does not concern it.
        guard !gate.isPaused || settings.decision.mode == .observe else {
            report.halted = .paused
            return report
        }
        var scene = Scene(gate: gate, users: users, facts: facts, locked: locked, named: named, ledger: ledger)
        for (key, state) in grants { scene.facts[key]?.grants = state }
        if !sandboxes.isEmpty {
            for item in batch {
                guard let state = item.job.userID.flatMap({ sandboxes[$0] }) else { continue }
                scene.facts[item.job.userKey]?.sandbox = state
            }
        }
        let plan = try await plan(batch, scene, epoch: epoch, report: &report, on: connection)
        try await write(plan, assetsApart: assetsApart, report: &report, on: connection)
        return report
    }

    // MARK: - Lock, load, decide

    /// What was loaded and locked for a batch.
    private struct Scene {
        var gate: Gate
        var users: [String: User]
        var facts: [Int64: UserFacts]
        var locked: [Int64: JobEnds.Held]
        var named: [PurchaseIdentifierKey: Int64]
        var ledger: LedgerReads.Ledger
    }

    /// All identifiers of a batch, some of them more than once.
    private func identifiers(in batch: [ReadJob]) -> [PurchaseIdentifier] {
        var identifiers: [PurchaseIdentifier] = []
        identifiers.reserveCapacity(batch.count * 2)
        for item in batch {
            for observation in item.reading.observations { identifiers += observation.identifiers }
            for found in item.reading.claims.found { identifiers.append(found.identifier) }
        }
        return identifiers
    }

    /// The jobs of a batch that are still ours and whose rows we hold; the others are put off or lost.
    private func ours(
        of batch: [ReadJob],
        in scene: Scene,
        epoch: Int32,
        report: inout ApplyReport,
        on connection: PostgresConnection
    ) async throws -> [ReadJob] {
        let unlocked = batch.compactMap(\.job.userID).filter { scene.users[$0] == nil }.sorted()
        let held = try await LedgerReads.existing(unlocked, on: connection)
        guard held.isEmpty else { throw HeldElsewhere(users: held) }
        // Our rows of them are held elsewhere; whoever has none at all lost it to an erasure.
        let isFree = { (item: ReadJob) in scene.facts[item.job.userKey] != nil }
        report.postponed += batch.filter { !isFree($0) }
        let free = batch.filter(isFree)
        // The row must still run this very job: after a commit whose answer was lost it may hold the successor already.
        let ours = free.filter { scene.locked[$0.job.userKey]?.id == $0.job.id }
        let missing = free.filter { scene.locked[$0.job.userKey] == nil }
        let busy = try await JobEnds.busy(missing.map(\.job.userKey), epoch: epoch, on: connection)
        let waiting = missing.filter { busy[$0.job.userKey]?.id == $0.job.id }
        report.postponed += waiting
        report.lost += free.count - ours.count - waiting.count
        return ours
    }

    private func plan(
        _ batch: [ReadJob],
        _ scene: Scene,
        epoch: Int32,
        report: inout ApplyReport,
        on connection: PostgresConnection
    ) async throws -> ApplyPlan {
        let (gate, facts, locked) = (scene.gate, scene.facts, scene.locked)
        let ours = try await ours(of: batch, in: scene, epoch: epoch, report: &report, on: connection)
        var ledger = scene.ledger
        var holders: [PurchaseIdentifierKey: Purchase] = [:]
        if !scene.named.isEmpty {
            let keys = Set(identifiers(in: ours).map(\.key))
            let named = scene.named.filter { keys.contains($0.key) }
            // Read again now that the rows are locked: they may have moved meanwhile.
            (holders, ledger) = try await connection.send(
                LedgerReads.holders(named),
                LedgerReads.ledger(ours.map(\.job.userKey))
            )
        }
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
                    user: item.job.userID.flatMap { scene.users[$0] },
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
        var requests = ledgerWrites(plan, fresh: fresh)
        if isObserving {
            try await connection.send(requests)
            try await foreseeAssets(&plan.effects, on: connection)
        } else {
            requests += EffectWrites.setTypes(plan.effects)
            try await changeAssets(&plan.effects, apart: assetsApart, after: requests, on: connection)
            try await openTickets(&plan.effects, on: connection)
        }
        requests = EffectWrites.updateUsers(isObserving ? plan.effects.map(withoutTypeChange) : plan.effects)
        var decisions: [Int64: Int64] = [:]
        if !plan.effects.isEmpty {
            requests.append(
                EffectWrites.insertDecisions(plan.effects, mode: settings.decision.mode).then { decisions = $0 }
            )
        }
        plan.alarms.merge(EffectWrites.alarms(plan.effects)) { first, _ in first }
        requests += EffectWrites.raise(plan.alarms)
        report.alarms = plan.alarms.keys.sorted()
        let ends = plan.ends + plan.effects.map(end)
        try await finish(ends, with: requests, on: connection)
        let runs = assetRuns(plan.effects, decisions: decisions)
        let answered = plan.effects.filter { $0.job.request.proofs != nil }.map(\.job.id)
        let canceled = plan.ends.filter { $0.state == .canceled }.map(\.id)
        try await connection.send(
            EffectWrites.replaceRuns(runs) + JobEnds.forgetProofs(of: answered + canceled)
                + JobEnds.retry(plan.retries) + JobEnds.enqueueReconciles(for: plan.reconciles, lane: .event)
        )
        report.startedRuns = !runs.isEmpty
        report.enqueued = !plan.reconciles.isEmpty || !plan.formerOwners.isEmpty
        report.retried = plan.retries.count
        if !isObserving { report.assetsChanged = plan.effects.reduce(0) { $0 + $1.assetsChanged } }
        report.ended = ends.map { .init(id: $0.id, kind: $0.kind, state: $0.state, outcome: $0.outcome) }
    }

    /// What was read, as it goes into the ledger.
    private func ledgerWrites(_ plan: ApplyPlan, fresh: [Int]) -> [PostgresRequest<Void>] {
        let names = fresh.flatMap { index -> [(PurchaseIdentifier, Int64)] in
            guard let id = plan.observed[index].purchaseID else { return [] }
            return (plan.observed[index].observation?.identifiers ?? []).map { ($0, id) }
        }
        let known = plan.observed.filter { $0.before != nil && ($0.attribution?.counts ?? false) }
        return LedgerWrites.insertPurchases(fresh.map { plan.observed[$0] })
            + LedgerWrites.merge(plan.merges)
            + LedgerWrites.insertIdentifiers(names + plan.newIdentifiers)
            + LedgerWrites.settle(plan.settled)
            + LedgerWrites.updatePurchases(known)
            + LedgerWrites.insertObservations(plan.observed)
    }

    private func openTickets(_ effects: inout [Effect], on connection: PostgresConnection) async throws {
        let wanted = effects.flatMap { effect in
            effect.verdict.tickets.map {
                TicketWrites.Wanted(claimantKey: effect.job.userKey, jobID: effect.job.id, request: $0)
            }
        }
        let visible = try await TicketWrites.open(wanted, on: connection)
        for index in effects.indices where !effects[index].verdict.tickets.isEmpty {
            effects[index].ticketID = visible[effects[index].job.userKey]
        }
    }

    /// Ends jobs, after `requests` and together with them.
    private func finish(
        _ ends: [JobEnd],
        with requests: [PostgresRequest<Void>],
        on connection: PostgresConnection
    ) async throws {
        guard !ends.isEmpty else { return try await connection.send(requests) }
        var gone = 0
        try await connection.send(requests + [JobEnds.finish(ends).then { gone = $0 }])
        guard gone < ends.count else { return }
        try await connection.send(JobEnds.passOn(ends.map(\.userKey)))
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
    private func changeAssets(
        _ effects: inout [Effect],
        apart: Bool,
        after requests: [PostgresRequest<Void>],
        on connection: PostgresConnection
    ) async throws {
        let directions: [(AssetDirection, [Int])] = [AssetDirection.unfreeze, .freeze].map { direction in
            (direction, effects.indices.filter { self.direction(of: effects[$0]) == direction })
        }.filter { !$0.1.isEmpty }
        guard !apart else {
            try await connection.send(requests)
            for (direction, indices) in directions {
                let counts = try await countAssets(indices.compactMap { effects[$0].user?.id }, on: connection)
                for index in indices {
                    guard let count = effects[index].user.flatMap({ counts[$0.id] }) else { continue }
                    let more = (direction == .unfreeze ? count.lapsed : count.others) > 0
                    effects[index].noteAssets(AssetProgress(changed: 0, cursor: nil, more: more), direction)
                }
            }
            return
        }
        var progress: [String: AssetProgress] = [:]
        let changes = directions.map { direction, indices in
            let ids = indices.compactMap { effects[$0].user?.id }
            return EffectWrites.changeAssets(
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
        try await connection.send(requests + changes)
        for (direction, indices) in directions {
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

    /// The assets that a batch leaves to be carried on.
    private func assetRuns(_ effects: [Effect], decisions: [Int64: Int64]) -> [NewAssetRun] {
        guard settings.decision.mode != .observe else { return [] }
        return effects.compactMap { effect in
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
    }
}
