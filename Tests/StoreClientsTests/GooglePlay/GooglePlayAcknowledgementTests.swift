import Entitlements
@testable import StoreClients
@testable import StoreSimulator
import Testing

/// Purchases are acknowledged once and in time, by the simulator's rules.
@Suite struct GooglePlayAcknowledgementTests {
    private func acknowledgement(_ token: String, _ world: PlayWorld) async throws -> Acknowledgement {
        let observation = try #require(try await world.read(token).observations.first)
        return try #require(observation.acknowledgement)
    }

    @Test(
        "a purchase is acknowledged once; a second call is refused, and the purchase tells why",
        arguments: ["subscription", "one_time"]
    )
    func acknowledgeTwice(_ kind: String) async throws {
        let world = try PlayWorld(purchases: "token: tok, kind: \(kind), acknowledged: false")
        let work = try await acknowledgement("tok", world)
        #expect(work.kind.rawValue == kind)
        #expect(try await world.client.acknowledgementState(of: work, lane: .sweep) == .pending)
        #expect(try await world.client.acknowledge(work, lane: .sweep) == .accepted)
        #expect(try await world.client.acknowledge(work, lane: .sweep) == .refused)
        #expect(try await world.client.acknowledgementState(of: work, lane: .sweep) == .acknowledged)
        #expect(try await world.read("tok").observations.first?.acknowledgement == nil)
        #expect(world.simulator.googlePlayPurchase("tok")?.acknowledgeCalls == 2)
    }

    @Test("a purchase that is not paid is not acknowledged")
    func acknowledgePending() async throws {
        let world = try PlayWorld(purchases: "token: tok, state: pending, acknowledged: false")
        #expect(try await world.read("tok").observations.first?.acknowledgement == nil)
        let work = Acknowledgement(
            productID: "pro",
            token: "tok",
            kind: .subscription,
            deadline: Instant(microseconds: 0)
        )
        #expect(try await world.client.acknowledge(work, lane: .sweep) == .refused)
        #expect(try await world.client.acknowledgementState(of: work, lane: .sweep) == .pending)
    }

    @Test("of two callers one is told that it came too late, which is no failure")
    func acknowledgeRace() async throws {
        let world = try PlayWorld(
            purchases: "token: tok, acknowledged: false",
            rest: "faults: [{endpoint: google_play.acknowledge, times: 1, status: 409, processed: true}]\n"
        )
        let work = try await acknowledgement("tok", world)
        #expect(try await world.client.acknowledge(work, lane: .sweep) == .refused)
        #expect(try await world.client.acknowledgementState(of: work, lane: .sweep) == .acknowledged)
    }

    @Test(
        "an acknowledgement that may not have arrived is a failure, to be tried again",
        arguments: [
            ("status: 503", .unavailable), ("status: 429", .throttled), ("connection: reset_after", .unavailable),
            ("status: 401, error_type: permissionDenied", .unauthorized),
        ] as [(String, ReadFailure.Code)]
    )
    func acknowledgeFails(_ fault: String, _ code: ReadFailure.Code) async throws {
        let world = try PlayWorld(
            purchases: "token: tok, acknowledged: false",
            rest: "faults: [{endpoint: google_play.acknowledge, times: 1, \(fault)}]\n"
        )
        let work = try await acknowledgement("tok", world)
        await #expect(throws: ReadFailure(code, store: .googlePlay)) {
            try await world.client.acknowledge(work, lane: .sweep)
        }
        let again = try await world.client.acknowledge(work, lane: .sweep)
        // The one that was cut off had arrived.
        #expect(again == (fault.contains("reset") ? .refused : .accepted))
    }

    @Test("what nobody acknowledges in time is taken back")
    func takenBack() async throws {
        let world = try PlayWorld(
            purchases: "token: tok, acknowledged: false",
            rest: "  acknowledge_within: 5m\n"
        )
        let work = try await acknowledgement("tok", world)
        world.simulator.shiftClock(byMilliseconds: 300_000)
        let observation = try #require(try await world.read("tok").observations.first)
        #expect(observation.status.raw == "expired")
        #expect(observation.givesAccess == false)
        #expect(observation.acknowledgement == nil)
        #expect(try await world.client.acknowledge(work, lane: .sweep) == .refused)
        #expect(try await world.client.acknowledgementState(of: work, lane: .sweep) == .over)
    }

    @Test(
        "an acknowledgement of what is unknown or gone may yet be due",
        arguments: [("nobody", "subscription"), ("gone", "subscription"), ("nobody", "one_time")]
    )
    func acknowledgeUnknown(_ token: String, _ kind: String) async throws {
        let world = try PlayWorld(purchases: "token: gone, state: gone")
        let work = Acknowledgement(
            productID: "pro",
            token: token,
            kind: try #require(Observation.Kind(rawValue: kind)),
            deadline: Instant(microseconds: 0)
        )
        #expect(try await world.client.acknowledge(work, lane: .sweep) == .refused)
        #expect(try await world.client.acknowledgementState(of: work, lane: .sweep) == .unknown)
    }

    @Test("a purchase made in Play tells of the one before it until it is acknowledged")
    func outOfApp() async throws {
        let world = try PlayWorld(
            purchases: "token: new, acknowledged: false, out_of_app: {expired_token: old, account: acc}"
        )
        let before = try #require(try await world.read("new").observations.first)
        #expect(before.accountID == "acc")
        #expect(before.names("purchase_token") == ["new", "old"])
        _ = try await world.client.acknowledge(try #require(before.acknowledgement), lane: .sweep)
        let after = try #require(try await world.read("new").observations.first)
        #expect(after.accountID == "acc", "the acknowledgement had it kept")
        #expect(after.names("purchase_token") == ["new"])
    }
}
