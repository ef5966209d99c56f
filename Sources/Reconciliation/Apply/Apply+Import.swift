package import Entitlements
import FoundationEssentials
import Ledger
package import Postgres
import Queue

extension Apply {
    /// What became of a line of an import.
    package struct LineAnswer: Sendable {
        /// `nil`: the records were in use, or moved on; the line is asked again.
        package var result: ImportResult?
        /// Whether the purchase means access by the store's word and the team's products; `nil`: it was not asked.
        package var givesAccess: Bool?

        package init(_ result: ImportResult?, givesAccess: Bool? = nil) {
            self.result = result
            self.givesAccess = givesAccess
        }
    }

    /// Judges lines of imports whose stores have answered, by the records as they stand; `writes`: and writes those that hold.
    ///
    /// Users whose purchases are written get a queued reconcile, which gives access by the rules of every other. `keep` records the
    /// answers, in the order of the lines, in the same transaction.
    ///
    /// - Returns: `false`: nothing was written, for everything is paused or this process's lease is over.
    package func importLines(
        _ lines: [ReadJob],
        writes: Bool,
        epoch: Int32,
        keep: (PostgresConnection, [LineAnswer]) async throws -> Void
    ) async throws -> Bool {
        var tries = 0
        while true {
            do {
                return try await pool.withTransaction { connection in
                    guard let answers = try await judge(lines, writes: writes, epoch: epoch, on: connection) else {
                        return false
                    }
                    try await keep(connection, answers)
                    return true
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
        on connection: PostgresConnection
    ) async throws -> [LineAnswer]? {
        let ids = lines.compactMap(\.job.userID).sortedExactly
        let keys = Set(lines.map(\.job.userKey)).sorted()
        // In the order in which locks are taken everywhere: users, our rows of them, jobs, ledger.
        var (switches, users, _, facts, sandboxes, named) = try await connection.send(
            LedgerReads.switches(epoch: epoch),
            LedgerReads.lockUsers(ids),
            PostgresRequest(SessionSettings.plansByKey),
            LedgerReads.facts(keys),
            LedgerReads.sandboxes(ids),
            LedgerReads.named(by: identifiers(in: lines))
        )
        guard switches.isAlive else { return nil }
        guard !writes || !switches.isPaused || settings.decision.mode == .observe else { return nil }
        var enqueued = Set(keys)
        if writes {
            enqueued = Set(
                try await connection.query("SELECT e.user_key FROM entitlement_sync.enqueue_free(\(keys)) AS e")
                    .map { try $0.decode(Int64.self) }
            )
        }
        var holders: [PurchaseIdentifierKey: Purchase] = [:]
        if !named.isEmpty {
            holders = try await connection.send(LedgerReads.holders(named))
            named = [:]
        }
        var plan = BatchPlan(
            decision: settings.decision,
            retry: settings.retry,
            acknowledges: false,
            catalog: switches.catalog,
            jitter: { 0 }
        )
        let answers = lines.map { line -> LineAnswer in
            let key = line.job.userKey
            // Locked by another transaction, gone, or spelled otherwise since.
            guard let user = line.job.userID.flatMap({ users[ExactText($0)] }), var known = facts[key],
                enqueued.contains(key)
            else { return LineAnswer(nil) }
            if let sandbox = sandboxes[ExactText(user.id)] { known.sandbox = sandbox.state }
            var result = plan.add(imported: line, user: user, facts: known, holders: holders)
            if result == .imported, !writes { result = .planned }
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
