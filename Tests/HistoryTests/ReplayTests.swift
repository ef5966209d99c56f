import Diagnostics
import Entitlements
import Foundation
import Postgres
import TestSupport
import Testing

extension HistoryTests {
    /// Made-up histories without what changes today's products and lists, decided again from their records alone.
    @Test(.timeLimit(.minutes(10)))
    func `Replayed under unchanged rules, no decision of any made-up history differs`() async throws {
        let (decisions, held) = (Sum(), Sum())
        let seeds = Seeds.isWhole ? Array(0..<(Profile.isFull ? 1000 : 25)) : Seeds.all
        try await Histories.liveThrough(seeds, where: { !$0.changesToday }) { history, lane in
            let seed = history.seed
            var differences: [String] = []
            let (totals, unknown) = try await Replay(pool: lane.host, settings: history.setup.decision)(
                of: nil,
                since: .negativeInfinity
            ) { one in
                let then = one.then
                differences.append("\(then.id) of \(one.userID ?? "-"): \(then.outcome) \(then.rule) -> \(one.now)")
            }
            #expect(unknown.isEmpty, "seed \(seed)")
            let records = differences.isEmpty ? "" : try await lane.records()
            #expect(differences == [], "seed \(seed)\n\(records)")
            #expect(totals.unreplayable == [:], "seed \(seed)")
            decisions.add(totals.decisions)
            held.add(totals.held)
        }
        print("replayed: \(decisions.value) decisions, of which \(held.value) were held back")
        #expect(!Seeds.isWhole || decisions.value * 2 > seeds.count * 5)
    }
}

extension Lane {
    /// What a replay goes by, for whoever looks for the cause of a difference.
    fileprivate func records() async throws -> String {
        try await host.query(
            """
            SELECT d.user_key || ' decision ' || d.id || ' ' || d.kind || ' ' || d.rule || ' ' || d.outcome || ' '
                   || coalesce(d.type_before, '-') || ': '
                   || coalesce((SELECT string_agg(concat_ws(' ', o.purchase_id, o.attribution, o.status, o.gives_access,
                                                            o.coverage, o.entitlements::text, o.asked_at::time), '; ' ORDER BY o.id)
                                  FROM entitlement_sync.observation AS o WHERE o.job_id = d.job_id), 'nothing read')
              FROM entitlement_sync.decision AS d
             UNION ALL
            SELECT 'row ' || concat_ws(' ', p.id, 'owner', p.owner_key, 'former', p.former_owner_key, 'merged', p.merged_into,
                                       p.status, p.observed_at::time)
              FROM entitlement_sync.purchase AS p
             ORDER BY 1
            """
        ).map { try $0.decode(String.self) }.joined(separator: "\n")
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
