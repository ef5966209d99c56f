package import Entitlements
import FoundationEssentials
import Ledger
package import Postgres
import Queue

extension Apply {
    /// What became of a line of an import.
    package struct LineAnswer: Sendable {
        /// `nil`: the records were in use, or moved on, or the line is another worker's now.
        package var result: ImportResult?
        /// Another transaction has locked the user's rows: what the store said may be judged a little later.
        package var isLocked: Bool
        /// Whether the purchase means access by the store's word and the team's products; `nil`: it was not asked.
        package var givesAccess: Bool?

        package init(_ result: ImportResult?, isLocked: Bool = false, givesAccess: Bool? = nil) {
            self.result = result
            self.isLocked = isLocked
            self.givesAccess = givesAccess
        }
    }

    /// Judges lines of imports whose stores have answered, by the records as they stand.
    ///
    /// `writes`: also writes the lines that are still `planned`.
    ///
    /// Users whose purchases are written get a queued reconcile, which gives access by the rules of every other. In the same
    /// transaction `hold` locks the lines before anything is written, and says by place which are still the caller's; `keep`
    /// records the answers, in the order of the lines.
    ///
    /// - Returns: what `keep` returned; `nil`: nothing was written, for everything is paused or this process's lease is over.
    package func importLines<Kept: Sendable>(
        _ lines: [ReadJob],
        writes: Bool,
        epoch: Int32,
        hold: (PostgresConnection) async throws -> [Bool],
        keep: (PostgresConnection, [LineAnswer]) async throws -> Kept
    ) async throws -> Kept? {
        var tries = 0
        while true {
            do {
                return try await pool.withTransaction { connection in
                    guard
                        let answers = try await judge(lines, writes: writes, epoch: epoch, hold: hold, on: connection)
                    else { return nil }
                    return try await keep(connection, answers)
                }
            } catch is LedgerRace where tries < 5 {
                tries += 1
                numbers.drop()
            } catch let error as PostgresError where error.isTransactionConflict && tries < 5 {
                tries += 1
            }
        }
    }

    private func judge(
        _ lines: [ReadJob],
        writes: Bool,
        epoch: Int32,
        hold: (PostgresConnection) async throws -> [Bool],
        on connection: PostgresConnection
    ) async throws -> [LineAnswer]? {
        let ids = lines.compactMap(\.job.userID).sortedExactly
        let keys = Set(lines.map(\.job.userKey)).sorted()
        // In the order in which locks are taken everywhere: users, our rows of them, jobs, ledger.
        let (switches, users, _, facts, sandboxes, named) = try await connection.send(
            LedgerReads.switches(epoch: epoch),
            LedgerReads.lockUsers(ids),
            PostgresRequest(SessionSettings.plansByKey),
            LedgerReads.facts(keys),
            LedgerReads.sandboxes(ids),
            LedgerReads.named(by: identifiers(in: lines))
        )
        guard switches.isAlive else { return nil }
        guard !writes || !switches.isPaused || settings.decision.mode == .observe else { return nil }
        let held = try await hold(connection)
        // Locked by another transaction, or gone.
        let unmet = ids.filter { users[ExactText($0)] == nil }
        let known = try await LedgerReads.spellings(unmet, on: connection)
        let gone = Set(unmet.map(ExactText.init)).subtracting(known.keys)
        var enqueued = Set(keys)
        if writes {
            let met = zip(lines, held).filter { line, isHeld in
                isHeld && line.job.userID.map { users[ExactText($0)] != nil } ?? false
            }
            let keys = Set(met.map(\.0.job.userKey)).sorted()
            enqueued = Set(
                try await connection.query("SELECT e.user_key FROM entitlement_sync.enqueue_free(\(keys)) AS e")
                    .map { try $0.decode(Int64.self) }
            )
        }
        var holders: [PurchaseIdentifierKey: Purchase] = [:]
        if !named.isEmpty {
            holders = try await connection.send(LedgerReads.holders(named))
        }
        var plan = BatchPlan(
            decision: settings.decision,
            retry: settings.retry,
            acknowledges: false,
            catalog: switches.catalog,
            jitter: { 0 }
        )
        let answers = zip(lines, held).map { line, isHeld -> LineAnswer in
            let key = line.job.userKey
            guard isHeld else { return LineAnswer(nil) }
            if let id = line.job.userID, gone.contains(ExactText(id)) { return LineAnswer(.unknownUser) }
            // Locked by another transaction, or spelled otherwise since.
            guard let user = line.job.userID.flatMap({ users[ExactText($0)] }), var known = facts[key],
                enqueued.contains(key)
            else { return LineAnswer(nil, isLocked: true) }
            if let sandbox = sandboxes[ExactText(user.id)] { known.sandbox = sandbox.state }
            let result = plan.add(imported: line, user: user, facts: known, holders: holders, writes: writes)
            let givesAccess = line.reading.observations.contains {
                $0.accessState == .access && switches.catalog.mapping(of: $0.entitlements) == .access
            }
            return LineAnswer(result, givesAccess: givesAccess)
        }
        guard writes, !plan.observed.isEmpty else { return answers }
        let fresh = try await numberNew(&plan, on: connection)
        try await connection.send(ledgerWrites(plan, fresh: fresh))
        return answers
    }
}
