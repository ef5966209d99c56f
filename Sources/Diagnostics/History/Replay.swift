package import Entitlements
import Ledger
package import Postgres
import Queue

/// Decides again what was decided, under today's rules, products and settings; asks no store and writes nothing.
package struct Replay: Sendable {
    /// A decision that would come to something else.
    package struct Difference: Sendable {
        /// `nil`: erased.
        package var userID: String?
        package var then: PastDecision
        package var now: Replayed.Now
    }

    /// How many decisions came to what.
    package struct Totals: Sendable, Hashable {
        /// A change of rule: then and now.
        package struct Pair: Sendable, Hashable {
            package var then: String
            package var now: String
        }

        package var users = 0
        /// Decisions that were made again, or could not be.
        package var decisions = 0
        package var agreeing = 0
        /// Of those that agree: demotions that a switch, the brake or a run held back.
        package var held = 0
        package var differing = 0
        package var pairs: [Pair: Int] = [:]
        package var unreplayable: [Replayed.Reason: Int] = [:]
    }

    private let pool: PostgresPool
    private let settings: DecisionSettings
    private let histories: Histories

    package init(pool: PostgresPool, settings: DecisionSettings) {
        self.pool = pool
        self.settings = settings
        histories = Histories(pool: pool)
    }

    /// Replays decisions about users.
    ///
    /// `userIDs`: whose; `nil`: of all users. `since`: every decision from then on; `nil`: the newest of each user. `hand` gets each
    /// difference, by user and then oldest first. Throws `PostgresError`, and what `hand` does.
    ///
    /// - Returns: the totals, and those of `userIDs` without any job.
    package func callAsFunction(
        of userIDs: [String]?,
        since: PostgresTimestamp?,
        _ hand: (Difference) throws -> Void
    ) async throws -> (totals: Totals, unknown: [String]) {
        let catalog = try await pool.withConnection { try await LedgerReads.catalog(on: $0) }
        var totals = Totals()
        let unknown = try await histories.each(of: userIDs, since: since) { page in
            for one in page {
                let newest = one.history.decisions.last?.id
                let replayed = one.history.replay(catalog: catalog, settings: settings) { decision in
                    since.map { Instant($0) <= decision.at } ?? (decision.id == newest)
                }
                if !replayed.isEmpty { totals.users += 1 }
                for again in replayed {
                    totals.count(again)
                    guard case .differs(let now) = again.result else { continue }
                    try hand(Difference(userID: one.userID, then: again.decision, now: now))
                }
            }
        }
        return (totals, unknown)
    }
}

extension Replay.Totals {
    fileprivate mutating func count(_ again: Replayed) {
        decisions += 1
        switch again.result {
        case .agrees:
            agreeing += 1
            if again.decision.isHeld { held += 1 }
        case .differs(let now):
            differing += 1
            pairs[Pair(then: again.decision.rule, now: now.rule), default: 0] += 1
        case .unreplayable(let reason):
            unreplayable[reason, default: 0] += 1
        }
    }
}
