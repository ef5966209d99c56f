import Entitlements
import FoundationEssentials
import Ledger
import Postgres
import Queue

/// What is loaded, locked and decided before anything is written.
extension Apply {
    /// What was loaded and locked for a batch.
    struct Scene {
        var switches: Switches
        var users: [ExactText: User]
        var facts: [Int64: UserFacts]
        var locked: [Int64: JobEnds.Running]
        var named: [PurchaseIdentifierKey: Int64]
        var ledger: LedgerReads.Ledger
        /// Nothing of it will be written.
        var isDryRun = false

        /// The host's user of a job, locked.
        func user(of job: ClaimedJob) -> User? { job.userID.flatMap { users[ExactText($0)] } }
    }

    /// All identifiers of a batch, some of them more than once.
    func identifiers(in batch: [ReadJob]) -> [PurchaseIdentifier] {
        var identifiers: [PurchaseIdentifier] = []
        identifiers.reserveCapacity(batch.count * 2)
        for item in batch {
            for observation in item.reading.observations { identifiers += observation.identifiers }
            for found in item.reading.claims.found { identifiers.append(found.identifier) }
        }
        return identifiers
    }

    /// The jobs of a batch that are still ours and whose rows we hold; the others are postponed or lost.
    private func ours(
        of batch: [ReadJob],
        in scene: Scene,
        epoch: Int32,
        report: inout ApplyReport,
        on connection: PostgresConnection
    ) async throws -> [ReadJob] {
        let unlocked = batch.filter { $0.job.userID != nil && scene.user(of: $0.job) == nil }
        if !unlocked.isEmpty {
            let spellings = try await connection.withPlansOfServer {
                try await LedgerReads.spellings(unlocked.compactMap(\.job.userID), on: $0)
            }
            var held: Set<Int64> = []
            var respelled: [Int64: String] = [:]
            for item in unlocked {
                guard let id = item.job.userID, let spelling = spellings[ExactText(id)] else { continue }
                if spelling.isExactly(id) {
                    held.insert(item.job.userKey)
                } else {
                    respelled[item.job.userKey] = spelling
                }
            }
            guard respelled.isEmpty else { throw SpelledOtherwise(ids: respelled) }
            guard held.isEmpty else { throw LockedByOthers(users: held) }
        }
        // Another transaction has locked our rows of them; a user without a row was erased.
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

    /// Finds the keyed hashes of the store accounts that readings name.
    private func nameAccounts(in batch: inout [ReadJob], on connection: PostgresConnection) async throws {
        func name(_ environment: String, _ id: String) -> String { "\(environment) \(id)" }
        var names: Set<String> = []
        for item in batch {
            for observation in item.reading.observations {
                if let id = observation.storeAccount?.id { names.insert(name(observation.environment, id)) }
            }
            for account in item.reading.claims.accounts { names.insert(name(account.environment, account.id)) }
        }
        guard !names.isEmpty else { return }
        let hashes = try await LedgerReads.storeAccounts(names.sorted(), on: connection)
        for index in batch.indices {
            for place in batch[index].reading.observations.indices {
                let item = batch[index].reading.observations[place]
                guard let id = item.storeAccount?.id else { continue }
                batch[index].reading.observations[place].storeAccount?.hash = hashes[name(item.environment, id)]
            }
            for place in batch[index].reading.claims.accounts.indices {
                let account = batch[index].reading.claims.accounts[place]
                batch[index].reading.claims.accounts[place].hash = hashes[name(account.environment, account.id)]
            }
        }
    }

    /// Decides a batch.
    ///
    /// `limits`: whether runs and the brake may hold demotions back.
    func plan(
        _ batch: [ReadJob],
        _ scene: Scene,
        epoch: Int32,
        limits: Bool = true,
        report: inout ApplyReport,
        on connection: PostgresConnection
    ) async throws -> BatchPlan {
        let (switches, locked) = (scene.switches, scene.locked)
        var facts = scene.facts
        var ours = try await ours(of: batch, in: scene, epoch: epoch, report: &report, on: connection)
        // A clock that was set back since the claim would date the reading to a time that is still to come.
        for index in ours.indices { ours[index].reading.askedAt = min(ours[index].reading.askedAt, switches.now) }
        try await nameAccounts(in: &ours, on: connection)
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
        let ahead = ClockSetBack(facts, holders, ledger, at: switches.now)
        var dated: (users: Set<Int64>, purchases: Set<Int64>) = ([], [])
        if !ahead.isEmpty, scene.isDryRun {
            for item in ours { facts[item.job.userKey]?.date(notAfter: item.reading.askedAt) }
        } else if !ahead.isEmpty {
            dated = try await ahead.mend(on: connection)
        }
        let firstSeenByEvent = try await FirstSeenByEvent.purchases(shown: ours, holders, on: connection)
        var decision = settings.decision
        decision.demotionsPaused = switches.demotionsPaused
        var plan: BatchPlan
        var postponed: Set<Int64> = []
        repeat {
            plan = BatchPlan(
                decision: decision,
                retry: settings.retry,
                acknowledges: settings.acknowledges,
                catalog: switches.catalog,
                jitter: { .random(in: 0...1) }
            )
            plan.firstSeenByEvent = firstSeenByEvent
            plan.dated = dated.purchases
            if !dated.users.isEmpty || !dated.purchases.isEmpty {
                plan.alarms[ClockSetBack.alarm] = ClockSetBack.advice
            }
            for item in ours where !postponed.contains(item.job.userKey) {
                let key = item.job.userKey
                // A job that was taken before an erasure carries the name that is gone.
                let isErased = facts[key]?.isErased == true
                plan.add(
                    item,
                    user: isErased ? nil : scene.user(of: item.job),
                    facts: facts[key],
                    canceled: locked[key]?.cancel ?? false,
                    isDated: dated.users.contains(key),
                    holders: holders,
                    ledger: ledger.owned[key] ?? [],
                    contested: ledger.contested[key] ?? []
                )
            }
            // Without the jobs that have to wait, others may write what those would have written: planned again, until no job waits.
        } while try await postpone(&postponed, in: plan, on: connection)
        report.postponed += plan.postponed + ours.filter { postponed.contains($0.job.userKey) }
        guard limits, settings.decision.mode != .observe, plan.effects.contains(where: \.countsTowardBrake) else {
            return plan
        }
        try await limitDemotions(&plan, on: connection)
        return plan
    }

    /// Holds demotions for runs and the brake.
    private func limitDemotions(_ plan: inout BatchPlan, on connection: PostgresConnection) async throws {
        let decided = plan.effects
        let holds = try await RunLimits.of(decided, connection)
        let wanted = limit(decided.map(\.decision), holds: holds, allowance: nil).count(where: \.countsTowardBrake)
        var allowed: Int?
        if wanted > 0 {
            let (allowance, dayLimit) = try await BrakeStore.allowance(
                settings.brake,
                wanted: wanted,
                countingFor: settings.countLimit,
                on: connection
            )
            allowed = allowance
            // Users who are read one by one are in no run that would stop, and a mistake would use its share every day.
            if dayLimit > 0, 2 * (dayLimit - allowance + min(wanted, allowance)) >= dayLimit {
                plan.alarms["demotion_brake_half"] =
                    "Half of the demotions that a day may have are written. See the rules of the last decisions, and"
                    + " entitlement-sync pause demotions if something is wrong."
            }
            if wanted > allowance {
                plan.alarms["demotion_brake"] =
                    "The brake puts demotions off: more than a day may have would be written. See the rules of the last"
                    + " decisions, and entitlement-sync pause demotions if something is wrong."
            }
        }
        let limited = limit(decided.map(\.decision), holds: holds, allowance: allowed)
        plan.effects = zip(decided, limited).map { $0.with($1) }
    }

    /// Queues the former owners of purchases that move.
    ///
    /// A host's open transaction may hold such an owner's row of the queue: its claimants are postponed, so that no transaction waits.
    /// Returns whether claimants were added to `postponed`.
    private func postpone(
        _ postponed: inout Set<Int64>,
        in plan: BatchPlan,
        on connection: PostgresConnection
    ) async throws -> Bool {
        let owners = Set(plan.formerOwners.map(\.owner)).sorted()
        guard !owners.isEmpty else { return false }
        // Their own rows are written as well: one that another transaction holds is waited for in the queue, not here.
        let locked = try await connection.query(
            """
            SELECT u.user_key FROM entitlement_sync.user_sync AS u
             WHERE u.user_key = ANY (\(owners)) ORDER BY u.user_key FOR NO KEY UPDATE SKIP LOCKED
            """
        ).map { try $0.decode(Int64.self) }
        var held: Set<Int64> = []
        if locked.count < owners.count {
            held = Set(
                try await connection.query(
                    "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_key = ANY (\(owners))"
                ).map { try $0.decode(Int64.self) }
            ).subtracting(locked)
        }
        held.formUnion(try await JobEnds.enqueueUnheld(locked, lane: .event, on: connection))
        let claimants = plan.formerOwners.filter { held.contains($0.owner) }.map(\.claimant)
        postponed.formUnion(claimants)
        return !claimants.isEmpty
    }
}
