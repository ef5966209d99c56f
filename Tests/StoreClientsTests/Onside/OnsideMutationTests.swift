import Entitlements
import Foundation
@testable import SignedTokens
@testable import StoreClients
import StoreSimulator
import TestSupport
import Testing

/// Altered histories: none is taken, and none brings anything down.
@Suite struct OnsideMutationTests {
    /// One order: the shorter the text, the more of what can be done to it is done.
    private static let scenario = """
        onside: {orders: [{order: \(OnsideBench.order), account: \(OnsideBench.account), expires: +20d}]}
        """

    @Test(arguments: [UInt64(1), 2, 3, 4])
    func `whatever is done to a signed history, nothing but the genuine one is taken`(seed: UInt64) async throws {
        let bench = try OnsideBench(Self.scenario)
        let client = try bench.client()
        let text = try bench.simulator.onsideHistory(account: OnsideBench.account)
        #expect(await refusal(text, client) == nil)
        for forgery in Mutations.forgeries(of: text, seed: seed) {
            try #require(await refusal(forgery, client) != nil, "\(forgery)")
        }
    }

    @Test(arguments: [UInt64(5), 6, 7, 8])
    func `whatever a payload says, it is read or refused`(seed: UInt64) async throws {
        let text = try OnsideBench(Self.scenario).simulator.onsideHistory(account: OnsideBench.account)
        let genuine = try CompactJWS(text).payload
        var random = SeededGenerator(seed: seed)
        var readable = 0
        for _ in 0..<Mutations.count / 4 {
            guard let history = try? OnsideHistory(payload: Mutations.alter(genuine, Mutations.json, &random)) else {
                continue
            }
            readable += 1
            for line in OnsideLine.lines(of: history.transactions, OnsideBench.query()) { _ = line.observation }
        }
        // Otherwise the test would prove nothing.
        #expect(readable > Mutations.count / 80)
    }
}
