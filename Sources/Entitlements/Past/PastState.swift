/// How a user stood at a moment, as far as was known then.
package struct PastState: Hashable, Sendable {
    /// A purchase as the readings showed it.
    package struct Held: Hashable, Sendable {
        package enum Owner: String, Sendable {
            case thisUser = "this_user"
            case anotherUser = "another_user"
            case noUser = "no_user"
        }

        package var owner: Owner
        package var purchase: Purchase
        package var productID: String?
    }

    /// What cannot be said, and why.
    package enum Unknown: Hashable, Sendable {
        /// No decision was made by then; the type that the next one found, if there is one.
        case undecided(next: PastDecision?)
        case changedByOthers(after: Instant, before: Instant, to: UserType)
        /// Purchases of the user whose readings are not on record for them.
        case unreadPurchases(Int)
        /// The oldest part of a long history was left out.
        case cut
        /// Decisions that rest on readings of which none is on record.
        case readingsMissing(Int)
        /// Since when sandbox purchases count.
        case sandboxSince
        case jobsForgotten
    }

    package var at: Instant
    /// By the last decision.
    package var type: UserType?
    package var verdict: PastDecision?
    /// When the newest reading known by then began.
    package var readAt: Instant?
    /// Since when full readings found no access and no word of a store.
    package var absentSince: Instant?
    /// The user's own first, then by store.
    package var purchases: [Held]
    package var grants: [PastGrant]
    package var unknowns: [Unknown]
}

extension UserHistory {
    /// Rebuilds how the user stood: what was known at a moment, and what cannot be said.
    package func state(at moment: Instant) -> PastState {
        var missing = 0
        let ledger = walk(until: moment) { step, _ in
            if let decision = step.decision, decision.restsOnReadings, step.items.isEmpty { missing += 1 }
        }
        let next = decisions.first { $0.at > moment }
        var unknowns: [PastState.Unknown] = []
        if let last = ledger.last {
            if let left = last.typeLeft, let found = next?.typeBefore, let next, found != left {
                unknowns.append(.changedByOthers(after: last.at, before: next.at, to: found))
            }
        } else {
            unknowns.append(.undecided(next: next))
        }
        let unread = unread(in: ledger, at: moment)
        if unread > 0 { unknowns.append(.unreadPurchases(unread)) }
        // Where the oldest are left out, their readings are as well.
        if missing > 0, !isCut { unknowns.append(.readingsMissing(missing)) }
        if sandboxUntil != nil, ledger.rows.values.contains(where: { $0.purchase.isSandbox }) {
            unknowns.append(.sandboxSince)
        }
        if isCut { unknowns.append(.cut) }
        return PastState(
            at: moment,
            type: ledger.last?.typeLeft,
            verdict: ledger.last,
            readAt: ledger.readAt,
            absentSince: ledger.absentSince,
            purchases: held(ledger, at: moment),
            grants: grants.filter { $0.isInForce(at: moment) },
            unknowns: unknowns
        )
    }

    private func held(_ ledger: PastLedger, at moment: Instant) -> [PastState.Held] {
        let lines = Dictionary(lineages.map { ($0.id, $0) }) { first, _ in first }
        return ledger.rows.values.map { row in
            let purchase = row.purchase
            // Whose another's is may be known by the ledger alone.
            let later = lines[purchase.id].flatMap { $0.ownerSince <= moment ? $0.ownerKey : nil }
            let owner = purchase.ownerKey ?? later
            return PastState.Held(
                owner: owner == userKey ? .thisUser : owner == nil ? .noUser : .anotherUser,
                purchase: purchase,
                productID: row.productID
            )
        }
        .sorted { left, right in
            let isOwn = (left.owner == .thisUser, right.owner == .thisUser)
            let (one, other) = (left.purchase, right.purchase)
            return isOwn.0 != isOwn.1 ? isOwn.0 : (one.store, one.id) < (other.store, other.id)
        }
    }
}

extension PastDecision {
    var restsOnReadings: Bool {
        switch knownRule {
        case .accountGone, .notEligible, .grantAccess: false
        default: true
        }
    }
}
