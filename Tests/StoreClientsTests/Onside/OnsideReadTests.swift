import Entitlements
import Foundation
import HTTPTypes
import StoreSimulator
import Testing

@testable import StoreClients

/// What comes of asking Onside about orders.
@Suite struct OnsideReadTests {
    private static let foreign = "7a1b2c3d-0000-4000-8000-000000000001"
    private static let missing = "7a1b2c3d-0000-4000-8000-000000000002"

    @Test func `a line is read with one request and one for the keys`() async throws {
        let bench = try OnsideBench()
        let client = try bench.client()
        let reading = await client.read(OnsideBench.query())
        #expect(reading.coverage == .full && reading.failure == nil && reading.unknown.isEmpty)
        let observation = try #require(reading.observations.first)
        #expect(reading.observations.count == 1 && observation.status.raw == "active")
        #expect(Set(observation.identifiers.map(\.value)) == [OnsideBench.order, OnsideBench.renewal])
        #expect(reading.requests == 1 && bench.requests.count == 2)
        let request = try #require(bench.requests.first)
        #expect(request.path == "/onside/merchant-api/v1/purchases/in-app/history/\(OnsideBench.order)")
        #expect(request.method == .get && request.scheme == "http" && request.authority == "127.0.0.1:9")
        #expect(bench.requests.last?.headerFields[.authorization] == nil, "keys are public")
        _ = await client.read(OnsideBench.query([OnsideBench.renewal.uppercased()]))
        #expect(bench.keyRequests == 1 && bench.requests.last?.path?.hasSuffix(OnsideBench.renewal) == true)
    }

    @Test func `two orders of one line are one observation`() async throws {
        let reading = try await OnsideBench().read(OnsideBench.query([OnsideBench.order, OnsideBench.renewal]))
        #expect(reading.coverage == .full && reading.observations.count == 1 && reading.requests == 2)
    }

    @Test func `what is no order id is unknown without a request`() async throws {
        let bench = try OnsideBench()
        let ids = [
            "", "1", "..", OnsideBench.order + "/", OnsideBench.order.replacing("-", with: ""),
            "\(OnsideBench.order)\0",
            String(OnsideBench.order.dropLast()) + "ä", String(OnsideBench.order.dropLast()) + "g",
            "91c1f0a2-7d3e-4a55-b6c83-f2e1d0c9b8a",
        ]
        let reading = try await bench.read(OnsideBench.query(ids))
        #expect(reading.unknown == ids && reading.coverage == .full && reading.requests == 0)
        #expect(bench.requests.isEmpty)
    }

    @Test func `at most twenty orders of a client are asked, those known to exist first, and all of our own`()
        async throws
    {
        let bench = try OnsideBench()
        let ids = (10..<35).map { "7a1b2c3d-0000-4000-8000-0000000000\($0)" }
        let reading = try await bench.read(
            OnsideBench.query(ids + [OnsideBench.order], proven: [OnsideBench.order], isFromClient: true)
        )
        #expect(reading.requests == 20 && reading.observations.count == 1 && reading.coverage == .full)
        let cut = try await bench.read(OnsideBench.query(ids, proven: Set(ids), isFromClient: true))
        #expect(cut.requests == 20 && cut.failure?.code != nil, "a known order that was not asked is no answer")
        let own = try await bench.read(OnsideBench.query(ids + [OnsideBench.order]))
        #expect(own.requests == 26 && own.observations.count == 1 && own.coverage == .full)
        #expect(own.unknown == ids, "each answer stays with its question")
    }

    @Test func `another merchant's order that our records hold is no absence`() async throws {
        let bench = try OnsideBench("onside: {orders: [{order: \(Self.foreign), foreign: true}]}")
        let known = try await bench.read(OnsideBench.query([Self.foreign], proven: [Self.foreign]))
        #expect(known.coverage == .none && known.unknown == [Self.foreign], "what was paid for lasts to its end")
        #expect(known.failure == ReadFailure(.unknownToStore, store: .onside) && known.failure?.treatment == .retry)
        #expect(bench.reports.allSatisfy { $0.failure == nil && !$0.countsForBreaker }, "Onside is well")
        let shown = OnsideBench.query([Self.foreign], proven: [Self.foreign], isFromClient: true)
        #expect(try await bench.read(shown).unknown == [Self.foreign])
    }

    @Test(arguments: [true, false])
    func `111, 195: another merchant's order is unknown, and trips nothing`(isFromClient: Bool) async throws {
        let bench = try OnsideBench("onside: {orders: [{order: \(Self.foreign), foreign: true}]}")
        let query = OnsideBench.query([Self.foreign, Self.missing], isFromClient: isFromClient)
        let reading = try await bench.read(query)
        #expect(reading.coverage == .full && reading.failure == nil && reading.observations.isEmpty)
        #expect(reading.unknown == [Self.foreign, Self.missing])
        #expect(bench.reports.count == 2)
        #expect(bench.reports.allSatisfy { $0.failure == nil && !$0.countsForBreaker })
    }

    @Test func `108: where our clock is off, Onside refuses our tokens, and the report tells by how much`() async throws
    {
        let bench = try OnsideBench()
        bench.skewClock(by: 45)
        let reading = try await bench.read(OnsideBench.query(isFromClient: true))
        #expect(reading.coverage == .none && reading.failure?.code == .unauthorized)
        #expect(reading.failure?.store == .onside && reading.unknown.isEmpty)
        #expect(reading.requests == 2, "a fresh token is tried once")
        let tokens = bench.requests.compactMap { $0.headerFields[.authorization] }
        #expect(Set(tokens).count == 2)
        #expect(bench.reports.last?.failure == .unauthorized)
        let skew = try #require(bench.reports.last?.dateSkewSeconds)
        #expect((-46 ... -44).contains(skew))
        bench.skewClock(by: 0)
        #expect(try await bench.read().coverage == .full)
    }

    @Test func `a single refusal of a token is forgotten`() async throws {
        let bench = try OnsideBench()
        var rule = FaultRule(endpoint: "onside.history", times: 1)
        rule.status = 401
        bench.simulator.inject(rule)
        let reading = try await bench.read()
        #expect(reading.coverage == .full && reading.requests == 2)
        #expect(bench.reports.allSatisfy { $0.failure == nil })
    }

    @Test func `a wrong secret is a failure, and no absence`() async throws {
        let bench = try OnsideBench()
        let reading = try await bench.client(secret: "another").read(OnsideBench.query())
        #expect(reading.coverage == .none && reading.failure?.code == .unauthorized && reading.unknown.isEmpty)
    }

    @Test func `an order that is known to exist and not yet visible is asked for again`() async throws {
        let bench = try OnsideBench(
            "onside: {orders: [{order: \(OnsideBench.order), expires: +1d, visible_after_requests: 2}]}"
        )
        let proven = OnsideBench.query(proven: [OnsideBench.order.uppercased()])
        let early = try await bench.read(proven)
        #expect(early.coverage == .none && early.failure?.code == .unknownToStore)
        #expect(early.unknown == [OnsideBench.order], "what was paid for lasts to its end")
        #expect(early.failure?.treatment == .retry)
        #expect(bench.reports.allSatisfy { $0.failure == nil && !$0.countsForBreaker }, "Onside is well")
        let claimed = try await bench.read()
        #expect(claimed.coverage == .full && claimed.unknown == [OnsideBench.order])
        let visible = try await bench.read(proven)
        #expect(visible.coverage == .full && visible.observations.count == 1)
    }

    @Test(arguments: [
        (429, ReadFailure.Code.throttled), (500, .unavailable), (503, .unavailable), (408, .timeout), (204, .malformed),
        (302, .unavailable), (400, .rejected),
    ])
    func `a status that is no answer is a failure`(status: Int, code: ReadFailure.Code) async throws {
        let bench = try OnsideBench()
        var rule = FaultRule(endpoint: "onside.history")
        rule.status = status
        bench.simulator.inject(rule)
        let reading = try await bench.read()
        #expect(reading.coverage == .none && reading.failure?.code == code && reading.failure?.store == .onside)
        #expect(reading.unknown.isEmpty)
    }

    @Test func `an id that Onside calls impossible leads nowhere where a client chose it`() async throws {
        let bench = try OnsideBench()
        var rule = FaultRule(endpoint: "onside.history")
        rule.status = 422
        bench.simulator.inject(rule)
        #expect(try await bench.read(OnsideBench.query(isFromClient: true)).unknown == [OnsideBench.order])
    }

    @Test func `one order that fails leaves the others as evidence for access`() async throws {
        let bench = try OnsideBench()
        var rule = FaultRule(customer: Self.missing, endpoint: "onside.history")
        rule.status = 503
        bench.simulator.inject(rule)
        let reading = try await bench.read(OnsideBench.query([Self.missing, OnsideBench.order]))
        #expect(reading.coverage == .partial && reading.failure?.code == .unavailable)
        #expect(reading.observations.count == 1)
    }

    @Test(arguments: [FaultRule.BodyFault.html, .empty, .truncated, .deep])
    func `a body that is no signed text is malformed, with whatever status`(body: FaultRule.BodyFault) async throws {
        let bench = try OnsideBench()
        var rule = FaultRule(endpoint: "onside.history")
        rule.body = body
        bench.simulator.inject(rule)
        let reading = try await bench.read()
        #expect(reading.coverage == .none && reading.failure?.code == .malformed && reading.observations.isEmpty)
    }

    @Test(arguments: [OnsideSigning.Way.none, .hs256PublicKey, .otherKey])
    func `an answer that Onside did not sign is malformed`(way: OnsideSigning.Way) async throws {
        let bench = try OnsideBench()
        bench.simulator.signOnside(.init(with: way))
        let reading = try await bench.read()
        #expect(reading.coverage == .none && reading.failure?.code == .malformed && reading.observations.isEmpty)
        bench.simulator.signOnside(.init())
        #expect(try await bench.read().coverage == .full)
    }

    @Test func `an answer about another app is malformed, also where one transaction of it is`() async throws {
        let bench = try OnsideBench()
        #expect(try await bench.client(bundleID: "other").read(OnsideBench.query()).failure?.code == .malformed)
        var order = OnsideOrderScenario(order: OnsideBench.renewal, original: OnsideBench.order)
        order.bundle = "com.example.other"
        try bench.simulator.put(order)
        let reading = try await bench.read()
        #expect(reading.failure?.code == .malformed && reading.observations.isEmpty)
    }

    @Test func `an answer about another order is malformed`() async throws {
        let bench = try OnsideBench()
        let genuine = try bench.simulator.onsideHistory(account: OnsideBench.account)
        bench.replace(Self.missing, body: genuine, type: "application/jose")
        let reading = try await bench.read(OnsideBench.query([Self.missing]))
        #expect(reading.coverage == .none && reading.failure?.code == .malformed && reading.observations.isEmpty)
        bench.replace(OnsideBench.order, body: genuine + "\n", type: "text/plain")
        #expect(try await bench.read().coverage == .full, "what counts is the text, not what it is called")
    }

    @Test func `an answer from the future is malformed`() async throws {
        let bench = try OnsideBench()
        bench.simulator.signOnside(.init(fetched: .offset(milliseconds: 660_000)))
        #expect(try await bench.read().failure?.code == .malformed)
        bench.simulator.signOnside(.init(fetched: .offset(milliseconds: 500_000)))
        #expect(try await bench.read().coverage == .full)
    }

    @Test func `unknown words are data`() async throws {
        let bench = try OnsideBench(
            """
            onside: {orders: [{order: \(OnsideBench.order), expires: +1d, type: "SOMETHING_NEW", reason: "ÉTÉ",
              revoked: +1h, revocation_reason: "WHO_KNOWS"}]}
            """
        )
        let reading = try await bench.read()
        #expect(reading.coverage == .full && reading.observations.first?.givesAccess == true)
    }

    @Test func `a line that makes no sense is left out, and takes nothing from the others`() async throws {
        let bench = try OnsideBench(
            OnsideBench.usual + "\n    - {order: \(Self.missing), subscription: grp, account: \(OnsideBench.account)}"
        )
        let reading = try await bench.read(OnsideBench.query([OnsideBench.order, Self.missing]))
        #expect(reading.coverage == .full && reading.hasUnreadable && reading.failure == nil)
        #expect(reading.observations.map(\.lookupID) == [OnsideBench.order])
    }

    @Test func `nothing to ask for is a full reading`() async throws {
        let reading = try await OnsideBench().read(OnsideBench.query([]))
        #expect(reading.coverage == .full && reading.requests == 0)
    }
}
