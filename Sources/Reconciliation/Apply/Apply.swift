package import Entitlements
import FoundationEssentials
package import Ledger
package import Logging
import Outbox
package import Postgres
package import Queue

/// Makes verdicts true: the one transaction that locks, decides and writes a batch of jobs.
///
/// Nothing is decided before the locks are held, so no verdict rests on a state that has changed meanwhile. Users,
/// jobs and assets that another transaction has locked are skipped, never waited for.
package struct Apply: Sendable {
    let pool: PostgresPool
    let settings: ApplySettings
    private let logger: Logger
    let numbers = PurchaseNumbers()
    /// Counts what stores know and do not know.
    let absences = AbsenceWatch()

    package init(pool: PostgresPool, settings: ApplySettings, logger: Logger) {
        self.pool = pool
        self.settings = settings
        self.logger = logger
    }

    /// Applies a batch.
    ///
    /// The jobs are of different users, leased under `epoch`; nothing is written if that lease has ended when the transaction
    /// takes its locks, and until it ends no other worker gets the jobs. After an error only the jobs' rows show whether the
    /// transaction took place.
    package func callAsFunction(_ batch: [ReadJob], epoch: Int32) async throws -> ApplyReport {
        var tries = 0
        var assetsApart = false
        var free = batch
        var postponed: [ReadJob] = []
        var respelled: Set<Int64> = []
        // Each time around, jobs leave the batch, or change once, or a bounded number of tries is used up.
        while true {
            do {
                var report = try await pool.withTransaction { connection in
                    try await attempt(free, epoch: epoch, assetsApart: assetsApart, on: connection)
                }
                report.postponed += postponed
                return report
            } catch let held as LockedByOthers {
                let waiting = free.filter { held.concerns($0) }
                guard !waiting.isEmpty else {
                    logger.error("a batch makes no progress; its jobs wait", metadata: ["batch.jobs": "\(free.count)"])
                    return ApplyReport(postponed: postponed + free)
                }
                postponed += waiting
                free.removeAll { held.concerns($0) }
            } catch let other as SpelledOtherwise {
                try await respell(&free, other.ids, known: &respelled)
            } catch let refused as AssetsRefused where !assetsApart {
                logger.warning(
                    "assets refused in a batch, continuing one by one",
                    metadata: ["error.sqlstate": "\(refused.sqlState ?? "")", "batch.jobs": "\(batch.count)"]
                )
                assetsApart = true
            } catch let unknown as OtherAccess.Unknown {
                try? await Alarms.raise(AdapterFault.alarm, unknown.advice, in: pool)
                throw unknown
            } catch is LedgerRace where tries < 5 {
                tries += 1
                numbers.drop()
            } catch let error as PostgresError where error.isTransactionConflict && tries < 5 {
                tries += 1
            }
        }
    }

    /// Writes down in how many answers stores knew their purchases, which this process has only counted.
    package func absenceKeeper() -> PeriodicService {
        PeriodicService("absence keeper", .upkeep, every: .seconds(5), logger: logger) {
            try await keepAbsences()
            return .idle
        }
    }

    /// Writes down in how many answers stores knew their purchases, and forgets absences that are over.
    package func keepAbsences() async throws {
        try await absences.flush(to: pool)
        try await absences.forget(in: pool)
    }

    /// Ends a job as dead without touching its user: the last way out for data that the database refuses, and for what
    /// the host adapter gives of the user.
    ///
    /// Returns whether another job of the user has its turn.
    package func endAsDead(_ job: ClaimedJob, for fault: AdapterFault? = nil, epoch: Int32) async throws -> Bool {
        var passedOn = 0
        try await pool.withTransaction { connection in
            let (_, switches, held) = try await connection.send(
                PostgresRequest(SessionSettings.plansByKey),
                LedgerReads.switches(epoch: epoch),
                JobEnds.lock([job.userKey], epoch: epoch)
            )
            guard switches.isAlive, held[job.userKey]?.id == job.id else { return }
            var dead = JobEnd(job, .dead, outcome: .storeUnavailable)
            if job.kind == .restore { dead.messageKey = .unavailable }
            dead.lastError = (fault == nil ? ReadFailure.Code.refused : .adapterRefused).rawValue
            if let fault {
                try await connection.send(
                    Alarms.statements(raising: [AdapterFault.alarm: "\(fault). \(AdapterFault.fix)"])
                )
            }
            if settings.publishes, settings.decision.mode != .observe {
                try await connection.send(OutboxWrites.insert(outboxMessages([], [dead])))
            }
            try await connection.sendAndCommit(JobEnds.finish([dead]) { passedOn = $0 })
        }
        return passedOn > 0
    }

    /// Users that another transaction has locked: the batch starts again without them.
    ///
    /// By then the rest of what is theirs was locked, and a host that requests a restore of a user that it has locked must not
    /// wait for the whole batch, or worse, the batch for it.
    struct LockedByOthers: Error {
        var users: Set<Int64>

        func concerns(_ item: ReadJob) -> Bool { users.contains(item.job.userKey) }
    }

    /// Users that the host returns under other ids than our records hold: by user key, the host's.
    struct SpelledOtherwise: Error {
        var ids: [Int64: String]
    }

    /// Takes over the host's spelling of ids, and has those users read again, for the stores were asked about other ids.
    ///
    /// A user whose spelling does not settle, or whose spelling another record holds, counts as gone.
    private func respell(_ batch: inout [ReadJob], _ ids: [Int64: String], known: inout Set<Int64>) async throws {
        logger.warning(
            "the host spells user ids differently from our records; our records now use the host's spelling",
            metadata: ["users": "\(ids.count)"]
        )
        let keys = ids.keys.filter { !known.contains($0) }.sorted()
        let names = keys.compactMap { ids[$0] }
        let renamed = try await pool.query(
            """
            UPDATE entitlement_sync.user_sync AS u SET user_id = n.id
              FROM unnest(\(keys), \(names)) AS n(key, id)
             WHERE u.user_key = n.key AND u.user_id IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.user_sync AS x WHERE x.user_id = n.id)
            RETURNING u.user_key
            """
        ).map { try $0.decode(Int64.self, at: 0) }
        known.formUnion(keys)
        for place in batch.indices {
            let key = batch[place].job.userKey
            guard let id = ids[key] else { continue }
            guard renamed.contains(key) else {
                batch[place].job.userID = nil
                continue
            }
            batch[place].job.userID = id
            batch[place].reading = Reading(
                coverage: .none,
                askedAt: batch[place].reading.askedAt,
                failure: ReadFailure(.overtaken)
            )
        }
    }

    /// Why a batch is written again with its assets left to runs.
    struct AssetsRefused: Error {
        var sqlState: String?
    }

    private func attempt(
        _ batch: [ReadJob],
        epoch: Int32,
        assetsApart: Bool,
        on connection: PostgresConnection
    ) async throws -> ApplyReport {
        var report = ApplyReport()
        let scene = try await scene(of: batch, epoch: epoch, on: connection)
        guard scene.switches.isAlive else {
            report.halted = .leaseLost
            return report
        }
        // Observing writes neither users nor assets, so a pause of those writes does not concern it.
        guard !scene.switches.isPaused || settings.decision.mode == .observe else {
            report.halted = .paused
            return report
        }
        let plan = try await plan(batch, scene, epoch: epoch, report: &report, on: connection)
        try await write(plan, assetsApart: assetsApart, report: &report, on: connection)
        return report
    }

    /// Loads and locks what a batch is decided by.
    func scene(of batch: [ReadJob], epoch: Int32, on connection: PostgresConnection) async throws -> Scene {
        let ids = batch.compactMap(\.job.userID).sortedExactly
        let keys = batch.map(\.job.userKey).sorted()
        // In the order in which locks are taken everywhere: users, our rows of them, jobs, ledger.
        // Grants are read behind the job's lock: who gives access requests a reconcile in the same transaction, so an open one
        // makes the job busy.
        let (switches, users, _, facts, locked, recorded, sandboxes, named, ledger) = try await connection.send(
            LedgerReads.switches(epoch: epoch),
            LedgerReads.lockUsers(ids),
            PostgresRequest(SessionSettings.plansByKey),
            LedgerReads.facts(keys),
            JobEnds.lock(keys, epoch: epoch),
            LedgerReads.grants(keys),
            LedgerReads.sandboxes(ids),
            LedgerReads.named(by: identifiers(in: batch)),
            LedgerReads.ledger(keys)
        )
        var grants = recorded
        if switches.asksHost, switches.isAlive {
            var asked: [ExactText: Int64] = [:]
            for item in batch where facts[item.job.userKey] != nil {
                if let user = item.job.userID.flatMap({ users[ExactText($0)] }) {
                    asked[ExactText(user.id)] = item.job.userKey
                }
            }
            try await OtherAccess.note(asked, on: connection)
            grants = try await connection.send(LedgerReads.grants(keys))
        }
        var scene = Scene(switches: switches, users: users, facts: facts, locked: locked, named: named, ledger: ledger)
        for (key, grant) in grants {
            scene.facts[key]?.grants = grant.state
            scene.facts[key]?.activeGrants = grant.active
        }
        if !sandboxes.isEmpty {
            for item in batch {
                guard let sandbox = item.job.userID.flatMap({ sandboxes[ExactText($0)] }) else { continue }
                scene.facts[item.job.userKey]?.sandbox = sandbox.state
                scene.facts[item.job.userKey]?.sandboxEnds = sandbox.end
            }
        }
        return scene
    }
}
