import Entitlements
import Foundation
import Postgres
import Storage
import Testing

extension HistoryTests {
    /// Made-up histories without what changes today's products and lists, decided again from their records alone.
    @Test(.timeLimit(.minutes(10)))
    func `Replayed under unchanged rules, no decision of any made-up history differs`() async throws {
        try await Lane.with { lane in
            var sums = (decisions: 0, held: 0)
            for seed in Profile.isWhole ? 0..<(Profile.isFull ? 1000 : 100) : Profile.seeds {
                let history = History(seed: seed)
                var run = Run(lane: lane, setup: history.setup)
                do {
                    try await run.begin()
                    for step in history.steps where !step.changesToday {
                        try await run.make(step)
                        try await run.compare()
                    }
                } catch let failure as Failed {
                    Issue.record("seed \(seed): \(failure.text)")
                    return
                }
                var differences: [String] = []
                let (totals, unknown) = try await Replay(pool: lane.host, settings: history.setup.decision)(
                    of: nil,
                    since: .negativeInfinity
                ) { one in
                    let then = one.then
                    differences.append("\(then.id) of \(one.userID ?? "-"): \(then.outcome) \(then.rule) -> \(one.now)")
                }
                #expect(unknown.isEmpty)
                #expect(differences == [], "seed \(seed)")
                #expect(totals.unreplayable == [:], "seed \(seed)")
                sums.decisions += totals.decisions
                sums.held += totals.held
            }
            print("replayed: \(sums.decisions) decisions, of which \(sums.held) were held back")
            #expect(!Profile.isWhole || sums.decisions > 200)
        }
    }
}

extension Step {
    /// Whether it changes what is as of today: the products, the lists, and the ends of grants.
    fileprivate var changesToday: Bool {
        switch self {
        case .map, .sandbox, .endGrant(_, revoking: false): true
        default: false
        }
    }
}
