package import FoundationEssentials

/// A decided job on its way into the records, and what its write came to.
package struct DecidedJob {
    package let job: ClaimedJob
    package let user: User?
    package let facts: UserFacts?
    package let coverage: Coverage
    /// The user has, or had, a purchase that says why they have the type they have.
    package let isExplained: Bool
    package let decision: Decision
    package var assetsChanged = 0
    package var assetsPending = false
    package var assetCursor: String?
    package var ticketID: Int64?
    /// What the records would say of it; see `Confirmation`.
    package var fingerprint: UUID?
    /// How the set of what gives the user access changes; `nil`: it stays as it is on record.
    package var entitlements: EntitlementChange?
    /// Where it confirms a decision, and is none of its own.
    package var confirmation: JobEnd.Confirmation?

    package var askedAt: Instant { decision.askedAt }
    package var countsTowardBrake: Bool { decision.countsTowardBrake }

    /// The decision's verdict, refined by what the assets did.
    package var verdict: Verdict {
        finalize(decision.verdict, of: job.kind, assetsChanged: assetsChanged, isPending: assetsPending)
    }

    /// The same with another decision, before anything is written.
    package func with(_ decision: Decision) -> DecidedJob {
        DecidedJob(job: job, user: user, facts: facts, coverage: coverage, isExplained: isExplained, decision: decision)
    }

    /// The type that this decision settles, or that an earlier one did where this one leaves open whether the type is right.
    package func decidedType(isObserving: Bool) -> UserType? {
        guard !isObserving, let user, user.status.isEligible else { return nil }
        return decision.verdict.action.type ?? (user.type == .free ? .free : facts?.decidedType)
    }

    /// What gives the user access once this is written; `nil`: what gave it before, as no store has said that it is over.
    package var held: [HeldEntitlement]? {
        if decision.verdict.action == .grant { return decision.verdict.entitlements }
        guard let user, user.status.isEligible, (newType ?? user.type) == .subscriber else { return [] }
        return nil
    }

    package var newType: UserType? {
        guard let user, let type = decision.verdict.action.type, type != user.type else { return nil }
        return type
    }
}
