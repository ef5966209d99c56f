import Entitlements
import Foundation
import Testing

/// What is on record around a case, and how far a decision rests on it.
@Suite struct CaseBackgroundTests {
    private static func past(_ what: CasePast.What, _ outcome: String) -> CasePast {
        CasePast(about: .owner, what: what, outcome: outcome, count: 1, lastAt: noon, tickets: [4])
    }

    @Test func `What people decided and what was moved is a decision; what ran out is none`() {
        for verdict in CaseVerdict.allCases { #expect(Self.past(.claimed, verdict.rawValue).isDecision) }
        #expect(Self.past(.owned, "transferred").isDecision)
        for state in ["expired", "auto_resolved", "duplicate"] { #expect(!Self.past(.claimed, state).isDecision) }
        for what in [CasePast.What.received, .given, .moved] {
            #expect(Self.past(what, "done").isDecision && !Self.past(what, "stopped").isDecision)
        }
    }

    private static func inputs(_ background: CaseBackground) -> CaseInputs {
        CaseInputs(
            claimant: CaseAccount(key: 1, id: "claimant", user: nil, createdAt: noon),
            background: background,
            now: noon
        )
    }

    @Test func `What only has to be known stands beside the evidence`() throws {
        let background = CaseBackground(
            history: [Self.past(.claimed, "refuse")],
            passed: [Self.past(.claimed, "expired")],
            frozen: FrozenAssets(claimant: 3, owner: nil)
        )
        let evidence = CaseEvidence(Self.inputs(background), DeskSettings())
        #expect(evidence.history == background.history)
        var frozen = background
        frozen.frozen.claimant = 9
        frozen.passed = []
        #expect(CaseEvidence(Self.inputs(frozen), DeskSettings()) == evidence)
        var decided = background
        decided.history = []
        #expect(CaseEvidence(Self.inputs(decided), DeskSettings()) != evidence)

        let hashed = try Self.object(evidence)
        let shown = try Self.object(CaseDocument(evidence, background))
        #expect(Set(shown.keys).subtracting(hashed.keys) == ["frozen", "passed"])
        #expect(Set(hashed.keys).isSubset(of: shown.keys))
    }

    private static func object(_ value: some Encodable) throws -> [String: Any] {
        try #require(try JSONSerialization.jsonObject(with: JSONEncoder().encode(value)) as? [String: Any])
    }
}
