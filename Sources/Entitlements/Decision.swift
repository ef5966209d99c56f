/// What was decided for one job of a batch.
///
/// It is made in three pure steps: `decide` finds the verdict, `limit` holds demotions that may not be written yet, and
/// `finalize` refines the outcome once it is known which assets came back. Nothing else changes a verdict.
package struct Decision: Hashable, Sendable {
    package let verdict: Verdict
    /// `nil`: what was planned before stands.
    package let nextCheck: ScheduledCheck?
    package let askedAt: Instant
    /// An operator has approved the demotions of its run, this one among them.
    package var isApproved = false

    package var countsTowardBrake: Bool { verdict.action == .demote && !verdict.wasAnnounced && !isApproved }

    /// The demotion, held by a rule for a reason, a sentence that operators read.
    private func held(by rule: Rule, _ reason: String) -> Decision {
        var verdict = verdict
        verdict.rule = rule
        verdict.action = .none
        verdict.outcome = .deferred
        verdict.absence = .keep
        verdict.explanation += " " + reason
        // Where a store may stay silent for good, nothing else would bring the user up again.
        return Decision(verdict: verdict, nextCheck: ScheduledCheck(at: askedAt + .seconds(86_400)), askedAt: askedAt)
    }

    fileprivate func limited(by hold: RunLimit?, _ allowance: inout Int?) -> Decision {
        guard countsTowardBrake else { return self }
        switch hold {
        case .held(let run):
            return held(
                by: .proposed,
                "Run \(run) writes its demotions together, once everybody was read, or none of them."
            )
        case .approved: return Decision(verdict: verdict, nextCheck: nextCheck, askedAt: askedAt, isApproved: true)
        case nil: break
        }
        guard let left = allowance else { return self }
        guard left > 0 else {
            return held(
                by: .brake,
                "More users than usual would be demoted today, so this one waits for a person (demotion brake)."
            )
        }
        allowance = left - 1
        return self
    }
}

/// How a run limits a demotion of one of its users.
package enum RunLimit: Hashable, Sendable {
    /// The run counts its demotions first, and writes them together or not at all.
    case held(run: Int64)
    /// An operator has approved the run's demotions; the brake does not count them.
    case approved
}

/// Holds the demotions of a batch that may not be written yet, of those that count toward the brake.
///
/// `holds`: what runs say of their demotions, by the decision's place. `allowance`: how many the brake allows, the first ones
/// of the batch; `nil`: it is not known yet, and holds none.
package func limit(_ decisions: [Decision], holds: [Int: RunLimit], allowance: Int?) -> [Decision] {
    var allowance = allowance
    return decisions.enumerated().map { place, decision in decision.limited(by: holds[place], &allowance) }
}

/// Refines a restore's outcome by the assets that came back, or follow in the background (`isPending`): it has restored
/// something then, whatever the user's type was.
package func finalize(_ verdict: Verdict, of kind: JobKind, assetsChanged changed: Int, isPending: Bool) -> Verdict {
    guard verdict.action == .grant, kind == .restore else { return verdict }
    var verdict = verdict
    if changed > 0 || isPending { verdict.outcome = .restored }
    if verdict.outcome == .restored { verdict.messageKey = isPending ? .restoredAssetsPending : .restored }
    return verdict
}

extension Verdict {
    /// What becomes of the note of an absence where nothing is written to the host: no user was demoted, so the next check of
    /// the same facts must have the same result.
    package var observedAbsence: AbsenceNote { action == .demote ? .keep : absence }
}
