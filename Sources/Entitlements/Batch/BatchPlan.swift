package import FoundationEssentials

/// What a batch comes to, before it is written: pure once everything is loaded.
package struct BatchPlan {
    let retryPolicy: RetryPolicy
    /// From 0 to 1: spreads the times of retries.
    let jitter: @Sendable () -> Double
    /// Whether granted sales are acknowledged.
    private let acknowledges: Bool
    private let decision: DecisionSettings
    package let catalog: ProductCatalog
    /// What earlier jobs of this batch touch: two jobs of one batch never write the same purchase.
    private var touchedPurchases: Set<Int64> = []
    private var touchedIdentifiers: Set<PurchaseIdentifierKey> = []

    /// Jobs with a verdict and what it is to change; writing them fills in what came of it.
    package var effects: [DecidedJob] = []
    package var observed: [ObservedRow] = []
    package var newIdentifiers: [(PurchaseIdentifier, Int64)] = []
    /// The store accounts that restores submitted.
    package var accounts: [SubmittedAccountRow] = []
    package var merges: [(from: Int64, into: Int64)] = []
    /// When the rows that readings name were first seen.
    var firstSeen: [Int64: Instant] = [:]
    /// Where merged rows of this batch went.
    var mergedInto: [Int64: Int64] = [:]
    /// Contested purchases whose owner is clear again.
    package var settled: [(purchase: Int64, former: Int64)] = []
    package var ends: [JobEnd] = []
    package var retries: [JobRetry] = []
    package var reconciles: [Int64] = []
    /// Former owners who are to be read again, with the users whose jobs took their purchases over.
    package var formerOwners: [(owner: Int64, claimant: Int64)] = []
    package var postponed: [ReadJob] = []
    /// Cases of jobs that end without a verdict.
    package var tickets: [WantedTicket] = []
    /// Former owners who lost a purchase that gave access, by RevenueCat's word, with the time of that reading.
    package var movedAway: [Int64: Instant] = [:]
    /// Users whose purchases stores do not list.
    package var absences: Set<Absence> = []
    /// How many users' purchases that gave access each store knew.
    package var known: [Store: Int64] = [:]
    package var acknowledgements: [Acknowledgement] = []
    package var alarms: [String: String] = [:]
    /// Purchases whose records were dated to the present: a reading from before that says nothing of them.
    package var dated: Set<Int64> = []
    /// When other users' purchases, submitted as proofs, were first seen, if an event named them before.
    package var firstSeenByEvent: [Int64: Instant] = [:]

    /// Users whose verdicts only confirm what is on record.
    package var confirming: Set<Int64> { Set(effects.filter { $0.confirmation != nil }.map(\.job.userKey)) }

    package init(
        decision: DecisionSettings,
        retry: RetryPolicy,
        acknowledges: Bool,
        catalog: ProductCatalog,
        jitter: @escaping @Sendable () -> Double
    ) {
        self.jitter = jitter
        retryPolicy = retry
        self.acknowledges = acknowledges
        self.decision = decision
        self.catalog = catalog
    }

    package mutating func add(
        _ item: ReadJob,
        user: User?,
        facts: UserFacts?,
        canceled: Bool,
        isDated: Bool = false,
        holders: [PurchaseIdentifierKey: Purchase],
        ledger: [Purchase],
        contested: [Purchase] = []
    ) {
        guard !canceled else {
            ends.append(JobEnd(item.job, .canceled, outcome: nil))
            return
        }
        let keys = Set(item.reading.observations.flatMap { $0.identifiers.map(\.key) })
        let rows = item.reading.observations.map { observation in
            Array(Set(observation.identifiers.compactMap { holders[$0.key] }))
        }
        let ids = Set(rows.joined().map(\.id))
        // Hardly ever anything is dated.
        let isOutranked =
            isDated || !dated.isEmpty && !dated.isDisjoint(with: ids.union((ledger + contested).map(\.id)))
        // An older read than the one applied last says nothing new, and its silence says something wrong.
        let isOlder = facts?.readAt.map { $0 > item.reading.askedAt && item.reading.coverage != .none } ?? false
        guard !isOutranked, !isOlder else {
            tryAgain(item, after: ReadFailure(.overtaken))
            return
        }
        guard touch(keys, ids) else {
            postponed.append(item)
            return
        }
        for row in rows.joined() { firstSeen[row.id] = row.firstSeenAt }
        let attributions = attribute(
            item.reading.observations,
            holders: rows,
            userKey: item.job.userKey,
            eligible: user?.status.isEligible ?? false,
            askedAt: item.reading.askedAt
        )
        // One of the two owners was read to the end without it: a user named from now on is the owner.
        // A reading without failure lists every subscription, even where it left one-time purchases out.
        let isFull = item.reading.coverage == .full
        let listsSubscriptions = isFull || item.reading.coverage == .partial && item.reading.failure == nil
        for purchase in contested where purchase.ownerSince <= item.reading.askedAt && !ids.contains(purchase.id) {
            guard let former = purchase.formerOwnerKey, isFull || listsSubscriptions && purchase.kind == .subscription
            else { continue }
            settled.append((purchase.id, former))
            // It has left its owner: it may have gone back.
            if former != item.job.userKey { formerOwners.append((former, item.job.userKey)) }
        }
        for (attribution, holding) in zip(attributions, rows) {
            guard case .disagree(_, let owner) = attribution, holding.contains(where: { $0.formerOwnerKey != nil })
            else { continue }
            formerOwners.append((owner, item.job.userKey))
        }
        decide(item, user: user, facts: facts, rows: rows, attributions: attributions, holders: holders, ledger: ledger)
    }

    /// Notes what a job writes; `false`: an earlier job of the batch writes some of it.
    mutating func touch(_ keys: Set<PurchaseIdentifierKey>, _ ids: Set<Int64>) -> Bool {
        guard touchedIdentifiers.isDisjoint(with: keys), touchedPurchases.isDisjoint(with: ids) else { return false }
        touchedIdentifiers.formUnion(keys)
        touchedPurchases.formUnion(ids)
        return true
    }

    private mutating func decide(
        _ item: ReadJob,
        user: User?,
        facts: UserFacts?,
        rows: [[Purchase]],
        attributions: [Attribution],
        holders: [PurchaseIdentifierKey: Purchase],
        ledger: [Purchase]
    ) {
        // An item may have its row from another item of the same purchase.
        let byID = Dictionary(rows.joined().map { ($0.id, $0) }) { first, _ in first }
        let targets = attributions.map { $0.target.flatMap { byID[$0] } }
        var input = DecisionInput(
            kind: item.job.kind,
            user: user,
            userKey: item.job.userKey,
            reading: item.reading,
            attributions: attributions,
            rows: targets,
            ledger: ledger,
            listed: Set(byID.keys),
            catalog: catalog,
            settings: decision
        )
        input.grants = facts?.grants ?? .none
        input.activeGrants = facts?.activeGrants ?? []
        input.sandbox = facts?.sandbox ?? .none
        input.sandboxEnds = facts?.sandboxEnds
        input.everObserved = facts?.everObserved ?? false
        input.decidedType = facts?.decidedType
        input.absentSince = facts?.absentSince
        input.accessEventAt = facts?.accessEventAt
        input.movedAwayAt = facts?.movedAwayAt
        input.claimed = claimed(item, holders: holders)
        input.firstSeenByEvent = firstSeenByEvent
        switch Entitlements.decide(input) {
        case .retry(let failure):
            note(failure, of: item.job, input)
            tryAgain(item, after: failure, proven: provenMismatch(input))
        case .verdict(let verdict):
            if item.reading.coverage != .none, user != nil {
                observe(item, attributions: attributions, targets: targets, holders: holders)
            }
            if user != nil {
                accounts += input.submittedAccounts.compactMap { account in
                    account.hash.map { SubmittedAccountRow(account, hash: $0, of: item.job, verdict.outcome) }
                }
            }
            effects.append(
                DecidedJob(
                    job: item.job,
                    user: user,
                    facts: facts,
                    coverage: item.reading.coverage,
                    isExplained: input.isExplained,
                    decision: Decision(
                        verdict: verdict,
                        nextCheck: ScheduledCheck(
                            item.reading,
                            attributions,
                            outcome: verdict.outcome,
                            known: known(of: item, facts: facts, ledger: ledger, verdict)
                        ),
                        askedAt: item.reading.askedAt
                    )
                )
            )
            acknowledge(item, input, verdict)
            note(verdict, input)
            if verdict.enqueuesReconcile { reconciles.append(item.job.userKey) }
            let unreadable = item.reading.unreadable.union(item.reading.claims.unreadable)
            if !unreadable.isEmpty {
                let stores = unreadable.map(\.name).sorted().joined(separator: ", ")
                alarms["unreadable_item"] =
                    "\(stores) lists an item, and whether it gives access can't be read: subscribers keep their access,"
                    + " free users get store_unavailable. Report this with the store's answer."
            }
            if verdict.rule == .clientAppNotRegistered {
                alarms["app_not_registered"] = "The app is not registered at its store: check the store's console."
            }
        }
    }

    /// Notes what the stores knew of purchases that gave access, and what they do not list any more.
    private mutating func note(_ verdict: Verdict, _ input: DecisionInput) {
        if !verdict.detached.isEmpty {
            let names = verdict.detached.sorted().prefix(5).map { String($0.prefix(100)) }.joined(separator: ", ")
            alarms["entitlement_detached"] =
                "Purchases that still run have lost an entitlement that gave access: attach it to its product again in"
                + " RevenueCat's dashboard (\(names)). No user is demoted for it."
        }
        let proven = input.ledger.filter { $0.accessState == .access }
        guard !proven.isEmpty else { return }
        if verdict.rule == .firstAbsence {
            for row in proven where !input.listed.contains(row.id) {
                absences.insert(.init(store: row.source, userKey: input.userKey, isUnknown: false))
            }
        }
        let ids = Set(proven.map(\.id))
        let stores = zip(input.reading.observations, input.rows).filter {
            $1.map { ids.contains($0.id) } ?? false
        }
        for store in Set(stores.map(\.0.source)) { known[store, default: 0] += 1 }
    }

    private mutating func note(_ failure: ReadFailure, of job: ClaimedJob, _ input: DecisionInput) {
        // What has just moved to another owner is known as soon as that owner is read: a second answer counts.
        if failure.code == .unknownToStore,
            job.lastError == failure.code.rawValue || job.attempt + 1 >= retryPolicy.maxAttempts
        {
            let store = failure.store ?? .revenueCat
            absences.insert(.init(store: store, userKey: input.userKey, isUnknown: true))
        }
        // What is missing in the catalogue is missing whatever else failed.
        guard failure.code == .unmapped || AccessSummary(input).hasUnmapped else { return }
        let keys = Set(input.reading.observations.flatMap(\.entitlements))
            .filter { catalog.mapping(of: [$0]) == .unmapped }.sorted()
        let names = keys.prefix(5).map { String($0.prefix(100)) }.joined(separator: ", ")
        alarms["product_unmapped"] =
            "An entitlement or product that gives access has no row in entitlement_sync.product, or one without the"
            + " duration it needs\(names.isEmpty ? "" : ": " + names)."
    }

    private func known(
        of item: ReadJob,
        facts: UserFacts?,
        ledger: [Purchase],
        _ verdict: Verdict
    ) -> ScheduledCheck.Knowledge {
        var known = ScheduledCheck.Knowledge()
        known.grants = verdict.action == .grant
        known.rule = verdict.rule
        known.accessEventAt = facts?.accessEventAt
        known.ownEnds = (facts?.activeGrants.compactMap(\.until) ?? []) + [facts?.sandboxEnds].compactMap(\.self)
        known.margin = ledger.map { decision.margin(of: $0.store) }.max() ?? decision.absenceMargin
        known.background = decision.backgroundCheck
        known.jitter = Jitter(userKey: item.job.userKey)
        return known
    }

    /// Plans the acknowledgement of what was granted; what was not granted is never acknowledged.
    private mutating func acknowledge(_ item: ReadJob, _ input: DecisionInput, _ verdict: Verdict) {
        guard acknowledges, verdict.action == .grant else { return }
        for (observation, attribution) in zip(item.reading.observations, input.attributions) {
            guard let acknowledgement = observation.acknowledgement, attribution.counts,
                input.givesAccess(observation)
            else { continue }
            acknowledgements.append(acknowledgement)
        }
    }

    private func claimed(_ item: ReadJob, holders: [PurchaseIdentifierKey: Purchase]) -> [ClaimedPurchase] {
        item.reading.claims.found.compactMap { found in
            guard item.job.userID.map(found.customerID.isExactly) != true else { return nil }
            let held = holders[found.identifier.key]
            guard held?.ownerKey != item.job.userKey else { return nil }
            return ClaimedPurchase(
                found: found,
                purchase: held?.id,
                ownerKey: held?.ownerKey,
                ownerID: found.isAnonymous ? nil : found.customerID
            )
        }
    }
}

/// A store account on its way into the records.
package struct SubmittedAccountRow {
    package var userKey: Int64
    package var hash: UUID
    package var app: String
    package var jobID: UUID
    /// Whether other users' purchases under the account are searched for, once the restore has ended.
    package var isSearched: Bool

    init(_ account: SubmittedAccount, hash: UUID, of job: ClaimedJob, _ outcome: Outcome) {
        userKey = job.userKey
        self.hash = hash
        app = account.app
        jobID = job.id
        isSearched = outcome == .nothingToRestore
    }
}

/// A user whose purchase a store does not list.
package struct Absence: Hashable {
    package var store: Store
    package var userKey: Int64
    /// It has to exist; otherwise it is a first absence.
    package var isUnknown: Bool
}

package struct WantedTicket {
    package var claimantKey: Int64
    package var jobID: UUID
    package var request: TicketRequest

    package init(_ request: TicketRequest, for job: ClaimedJob) {
        self.init(request, claimantKey: job.userKey, jobID: job.id)
    }

    package init(_ request: TicketRequest, claimantKey: Int64, jobID: UUID) {
        self.claimantKey = claimantKey
        self.jobID = jobID
        self.request = request
    }
}
