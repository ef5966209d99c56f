@testable import Entitlements
import TestSupport
import Testing

/// What stands in the way of a transfer, how many have to agree, and what the machine suggests.
@Suite struct TransferRulesTests {
    /// Sets of facts of every size, the same in each run.
    private static func manySets() -> [Set<TransferFact>] {
        var random = SeededGenerator(seed: 5)
        return (0..<20_000).map { _ in
            let size = Int.random(in: 0...8, using: &random)
            return Set(TransferFact.allCases.shuffled(using: &random).prefix(size))
        }
    }

    @Test(arguments: [TransferFact.familyShared, .refunded, .chargedBack, .sandbox, .promotional])
    func `60 148: family-shared, refunded, voided, sandbox and given purchases are moved for nobody`(fact: TransferFact)
    {
        #expect(hindrance([fact, .proofVerified, .ownerReleased]) == .forbids)
        #expect(suggest([fact, .proofVerified, .tokenNamesClaimant]).verdict == .refuse)
    }

    @Test func `147: a purchase that was moved lately is moved again by a senior alone`() {
        #expect(hindrance([.movedLately, .proofVerified]) == .needsSenior)
        #expect(suggest([.movedLately, .proofVerified, .tokenNamesClaimant]).verdict == nil)
    }

    @Test func `116: the purchase of somebody banned for good is a senior's case, and no machine's`() {
        #expect(hindrance([.ownerBanned]) == .needsSenior)
        #expect(suggest([.ownerBanned, .proofVerified, .tokenNamesClaimant]).verdict == nil)
    }

    @Test func `139: a purchase that gives no access any more closes its ticket`() {
        #expect(TransferFact.lapsed.hindrance == .closes)
        #expect(suggest([.lapsed, .proofVerified]).reason == .nothingToTransfer)
    }

    @Test func `18 and 19: the account token says whose case it is`() {
        let own = suggest([.proofVerified, .tokenNamesClaimant])
        #expect(own == Suggestion(verdict: .transfer, reason: .tokenNamesClaimant))
        let owner = suggest([.proofVerified, .tokenNamesOwner])
        #expect(owner == Suggestion(verdict: .guideToLogin, reason: .tokenNamesOwner))
        // A third account is nothing that a machine can judge.
        #expect(suggest([.proofVerified, .tokenNamesThird]) == Suggestion(verdict: nil, reason: .tokenNamesThird))
    }

    @Test func `118: a purchase whose owner was erased may take one approver, where the setting says so`() {
        let facts: Set<TransferFact> = [.ownerErased, .proofVerified]
        #expect(suggest(facts) == Suggestion(verdict: .transfer, reason: .ownerErased))
        #expect(ApprovalPolicy().needed(facts) == 2)
        #expect(ApprovalPolicy(ownerErased: 1).needed(facts) == 1)
        #expect(ApprovalPolicy(ownerErased: 1).needed(facts.union([.proofFailed])) == 2)
        // Its token names the account that is gone: nobody can be sent there.
        let named = facts.union([.tokenNamesOwner])
        #expect(suggest(named) == Suggestion(verdict: .transfer, reason: .ownerErased))
        #expect(ApprovalPolicy(ownerErased: 1).needed(named) == 1)
        #expect(ApprovalPolicy(ownerErased: 1).needed(facts.union([.tokenNamesThird])) == 2)
    }

    @Test func `150: a proof that failed raises the risk`() {
        #expect(ApprovalPolicy(ordinary: 1).needed([]) == 1)
        #expect(ApprovalPolicy(ordinary: 1).needed([.proofFailed]) == 2)
        #expect(suggest([.proofFailed, .boughtAfterClaimantJoined]).verdict == .refuse)
        #expect(suggest([.proofFailed, .proofVerified, .tokenNamesClaimant]).verdict == .transfer)
        #expect(ApprovalPolicy(ordinary: 1).needed([.proofFailed, .proofVerified, .tokenNamesClaimant]) == 2)
    }

    @Test func `Nobody is ever needed by none`() {
        for facts in Self.manySets() {
            #expect(ApprovalPolicy(ordinary: 0, ownerErased: 0, risky: 0).needed(facts) == 1)
        }
    }

    @Test func `A risk never lowers how many have to agree`() {
        let policy = ApprovalPolicy(ordinary: 2, ownerErased: 1, risky: 3)
        for facts in Self.manySets() {
            for risk in ApprovalPolicy.risks { #expect(policy.needed(facts.union([risk])) >= policy.needed(facts)) }
        }
    }

    @Test func `The machine suggests no transfer that is forbidden, and none without something that speaks for it`() {
        let speaking: Set<TransferFact> = [.proofVerified, .ownerReleased]
        var suggested = 0
        for facts in Self.manySets() where suggest(facts).verdict == .transfer {
            suggested += 1
            #expect(hindrance(facts) == .none, "\(facts)")
            #expect(!facts.isDisjoint(with: speaking), "\(facts)")
        }
        #expect(suggested > 100)
    }

    @Test func `Whatever stands in the way, or lets two be right, ends the suggestion of a transfer`() {
        let against = TransferFact.allCases.filter { $0.hindrance != .none } + [.sourcesDisagree]
        var suggested = 0
        for facts in Self.manySets() where suggest(facts).verdict == .transfer {
            suggested += 1
            for fact in against { #expect(suggest(facts.union([fact])).verdict != .transfer, "\(facts) and \(fact)") }
        }
        #expect(suggested > 100)
    }

    @Test func `Nobody is sent to an account that is gone`() {
        for facts in Self.manySets() where facts.contains(.ownerErased) {
            #expect(suggest(facts).verdict != .guideToLogin, "\(facts)")
        }
        #expect(suggest([.ownerErased, .tokenNamesOwner]) == Suggestion(verdict: nil, reason: .noProof))
        #expect(suggest([.ownerErased, .proofFailed]) == Suggestion(verdict: .refuse, reason: .proofFailed))
    }

    @Test func `The gravest of several hindrances counts`() {
        #expect(hindrance([]) == .none)
        #expect(hindrance([.proofVerified, .movedLately]) == .needsSenior)
        #expect(hindrance([.movedLately, .sandbox]) == .forbids)
        #expect(hindrance([.movedLately, .sandbox, .lapsed]) == .closes)
    }

    @Test func `Every row of the suggestions can be the first that holds`() {
        var reasons = Set(Self.manySets().map { suggest($0).reason })
        reasons.insert(suggest([]).reason)
        #expect(reasons == Set(Suggestion.Reason.allCases))
    }
}
