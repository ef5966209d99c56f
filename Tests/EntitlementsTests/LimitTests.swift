@testable import Entitlements
import TestSupport
import Testing

/// What may happen to a decision after it was made: holds, the brake's allowance, and what the assets did.
struct LimitTests {
    private static let askedAt = Instant(microseconds: 1_790_000_000_000_000)

    private static func decision(_ random: inout SeededGenerator) -> Decision {
        let action = random.pick(Action.none, .grant, .demote, .demote, .demote)
        let outcome: Outcome =
            switch action {
            case .none: random.pick(.unchanged, .deferred, .notEligible, .nothingToRestore)
            case .grant: random.pick(.promoted, .restored, .alreadySubscriber, .unchanged)
            case .demote: random.pick(.demoted, .unchanged, .nothingToRestore)
            }
        let verdict = Verdict(
            rule: random.pick(.storeAccess, .storeEnded, .absenceConfirmed, .noAccess),
            action: action,
            outcome: outcome,
            messageKey: random.oneIn(2) ? .nothing : nil,
            absence: random.pick(.keep, .clear, .begin(askedAt)),
            wasAnnounced: random.oneIn(4),
            explanation: "The store says so."
        )
        return Decision(
            verdict: verdict,
            nextCheck: random.oneIn(2) ? ScheduledCheck(at: askedAt + .seconds(60)) : nil,
            askedAt: askedAt
        )
    }

    private static func batch(_ seed: Int) -> (decisions: [Decision], holds: [Int: RunLimit], allowance: Int) {
        var random = SeededGenerator(seed: UInt64(seed))
        let decisions = (0..<random.below(30)).map { _ in decision(&random) }
        var holds: [Int: RunLimit] = [:]
        for place in decisions.indices where random.oneIn(3) {
            holds[place] = random.oneIn(2) ? .approved : .held(run: Int64(random.below(3)))
        }
        return (decisions, holds, random.below(8))
    }

    @Test(arguments: 0..<500)
    func `A limit holds demotions and changes nothing else`(seed: Int) {
        let (decisions, holds, allowance) = Self.batch(seed)
        let limited = limit(decisions, holds: holds, allowance: allowance)
        #expect(limited.count == decisions.count)
        for (place, (before, after)) in zip(decisions, limited).enumerated() {
            guard before.countsTowardBrake else {
                #expect(after == before, "only demotions that count toward the brake are limited")
                continue
            }
            switch holds[place] {
            case .held:
                #expect(after.verdict.rule == .proposed)
                Self.expectHeld(after, before)
            case .approved: #expect(after.verdict == before.verdict && after.isApproved && !after.countsTowardBrake)
            case nil:
                if after.verdict.action == .demote {
                    #expect(after == before)
                } else {
                    #expect(after.verdict.rule == .brake)
                    Self.expectHeld(after, before)
                }
            }
        }
        // The first ones have the allowance.
        let open = decisions.indices.filter { decisions[$0].countsTowardBrake && holds[$0] == nil }
        #expect(open.filter { limited[$0].countsTowardBrake } == Array(open.prefix(allowance)))
    }

    private static func expectHeld(_ after: Decision, _ before: Decision) {
        #expect(after.verdict.action == .none && after.verdict.outcome == .deferred && after.verdict.absence == .keep)
        #expect(after.verdict.explanation.hasPrefix(before.verdict.explanation), "what the stores said stays")
        #expect(after.verdict.tickets == before.verdict.tickets && after.askedAt == before.askedAt)
        #expect(after.nextCheck == ScheduledCheck(at: before.askedAt + .seconds(86_400)), "it comes up again")
        #expect(!after.countsTowardBrake, "a held demotion is none")
    }

    @Test(arguments: 0..<200)
    func `A limit that is applied again changes nothing more`(seed: Int) {
        let (decisions, holds, allowance) = Self.batch(seed)
        let once = limit(decisions, holds: holds, allowance: allowance)
        #expect(limit(once, holds: holds, allowance: allowance) == once)
    }

    @Test(arguments: 0..<200)
    func `Without an allowance only runs hold, and a larger one holds less`(seed: Int) {
        let (decisions, holds, allowance) = Self.batch(seed)
        let open = limit(decisions, holds: holds, allowance: nil)
        #expect(!open.contains { $0.verdict.rule == .brake })
        let few = limit(decisions, holds: holds, allowance: allowance).count(where: \.countsTowardBrake)
        #expect(few <= limit(decisions, holds: holds, allowance: allowance + 1).count(where: \.countsTowardBrake))
        #expect(few <= open.count(where: \.countsTowardBrake))
    }

    @Test(arguments: 0..<500)
    func `Assets refine the outcome of a restore that grants access, and of nothing else`(seed: Int) {
        var random = SeededGenerator(seed: UInt64(seed))
        let verdict = Self.decision(&random).verdict
        let (changed, isPending) = (random.below(3), random.oneIn(2))
        for kind in JobKind.allCases {
            let final = finalize(verdict, of: kind, assetsChanged: changed, isPending: isPending)
            #expect(finalize(final, of: kind, assetsChanged: changed, isPending: isPending) == final)
            guard kind == .restore, verdict.action == .grant else {
                #expect(final == verdict)
                continue
            }
            var same = final
            (same.outcome, same.messageKey) = (verdict.outcome, verdict.messageKey)
            #expect(same == verdict, "outcome and message alone")
            let isRestored = verdict.outcome == .restored || changed > 0 || isPending
            #expect(final.outcome == (isRestored ? .restored : verdict.outcome))
            #expect(
                final.messageKey == (isRestored ? isPending ? .restoredAssetsPending : .restored : verdict.messageKey)
            )
        }
    }

    @Test(arguments: 0..<200)
    func `What is only observed begins no absence for a demotion`(seed: Int) {
        var random = SeededGenerator(seed: UInt64(seed))
        let verdict = Self.decision(&random).verdict
        #expect(verdict.observedAbsence == (verdict.action == .demote ? .keep : verdict.absence))
    }
}
