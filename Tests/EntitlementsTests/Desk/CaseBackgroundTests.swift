@testable import Entitlements
import Foundation
import Testing

/// What is on record around a case, and how far a decision rests on it.
@Suite struct CaseBackgroundTests {
    private static func past(_ what: CasePast.What, _ outcome: String) -> CasePast {
        CasePast(about: .owner, what: what, outcome: outcome, count: 1, lastAt: noon, tickets: [4])
    }

    @Test func `What was moved is a move; what was merely claimed is none, however it ended`() {
        for verdict in CaseVerdict.allCases { #expect(!Self.past(.claimed, verdict.rawValue).isMove) }
        for state in ["transferred", "expired", "auto_resolved", "duplicate"] {
            #expect(!Self.past(.claimed, state).isMove && !Self.past(.owned, state).isMove)
        }
        for what in [CasePast.What.received, .given, .moved] {
            #expect(Self.past(what, "done").isMove && !Self.past(what, "stopped").isMove)
        }
    }

    private static func inputs(_ background: CaseBackground) -> CaseInputs {
        let claimant = CaseAccount(key: 1, id: "claimant", user: nil, createdAt: noon)
        var inputs = CaseInputs(claimant: claimant, now: noon)
        inputs.background = background
        return inputs
    }

    @Test func `What only has to be known stands beside the evidence`() throws {
        var background = CaseBackground()
        background.history = [Self.past(.received, "done")]
        background.passed = [Self.past(.claimed, "refuse"), Self.past(.claimed, "expired")]
        background.frozen = FrozenAssets(claimant: 3, owner: nil)
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
        let claim = CaseClaim(kind: "order_id", value: "GPA.1234-5678-9012-34567")
        let lookups = [CaseLookup(claim, StoreLookup(.googlePlay, .unknown))]
        let shown = try Self.object(CaseDocument(evidence, background, lookups: lookups, sources: []))
        #expect(Set(shown.keys).subtracting(hashed.keys) == ["frozen", "passed", "lookups"])
        #expect(Set(hashed.keys).isSubset(of: shown.keys))
    }

    private static func object(_ value: some Encodable) throws -> [String: Any] {
        try #require(try JSONSerialization.jsonObject(with: JSONEncoder().encode(value)) as? [String: Any])
    }
}
