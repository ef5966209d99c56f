import Entitlements
@testable import StoreClients
@testable import StoreSimulator
import Testing

/// What the client reads of the purchases that the simulator holds.
@Suite struct GooglePlaySimulatorTests {
    @Test(
        "every state of the simulator is read as what it is",
        arguments: [
            ("active", "active", true), ("grace", "in_grace_period", true), ("on_hold", "in_billing_retry", false),
            ("paused", "paused", false), ("canceled", "active", true), ("canceled_past", "expired", false),
            ("expired", "expired", false), ("pending", "incomplete", false), ("pending_canceled", nil, false),
            ("silent_grace", "active", true), ("unknown", "SUBSCRIPTION_STATE_NEVER_HEARD_OF", false),
            ("gone", nil, false), ("deferred", "active", true),
        ] as [(String, String?, Bool)]
    )
    func states(_ state: String, _ status: String?, _ givesAccess: Bool) async throws {
        #expect(GooglePlayPurchaseScenario.State(rawValue: state) != nil)
        let world = try PlayWorld(purchases: "token: tok, state: \(state), account: acc")
        let reading = try await world.read("tok")
        #expect(reading.coverage == .full)
        #expect(reading.observations.count == (status == nil ? 0 : 1))
        #expect(reading.observations.first?.status.raw == status)
        if status != nil {
            #expect(reading.observations.first?.givesAccess == givesAccess)
            #expect(reading.observations.first?.accountID == "acc")
        }
    }

    @Test("times are read whatever digits their fractions have", arguments: [0, 3, 6, 9])
    func fractions(_ digits: Int) async throws {
        let world = try PlayWorld(purchases: "token: tok, expires: 1890000000123, fraction_digits: \(digits)")
        let end = try await world.read("tok").observations.first?.periodEndsAt
        #expect(end == Instant(milliseconds: digits == 0 ? 1_890_000_000_000 : 1_890_000_000_123))
    }

    @Test("one token serves many readings, and a revoked one is replaced once")
    func accessTokens() async throws {
        let world = try PlayWorld(purchases: "token: tok")
        for _ in 0..<3 { #expect(try await world.read("tok").coverage == .full) }
        #expect(world.count(PlayWorld.tokenRequests) == 1)
        world.simulator.simulation.withState { $0.googlePlay.revokeAccessTokens() }
        #expect(try await world.read("tok").coverage == .full)
        #expect(try await world.read("tok").coverage == .full)
        #expect(world.count(PlayWorld.tokenRequests) == 2)
    }

    @Test("a token's life may be written as a text")
    func textLife() async throws {
        let world = try PlayWorld(purchases: "token: tok", rest: "  expires_in: text\n")
        #expect(try await world.read("tok").coverage == .full)
        #expect(try await world.read("tok").coverage == .full)
        #expect(world.count(PlayWorld.tokenRequests) == 1)
    }

    @Test(
        "a fault of the token endpoint is a failure of the reading",
        arguments: [
            ("status: 503", .unavailable), ("status: 400, error_type: invalid_grant", .unauthorized),
            ("status: 401, error_type: disabled_client", .unauthorized), ("body: html", .malformed),
            ("connection: drop_before", .unavailable),
        ] as [(String, ReadFailure.Code)]
    )
    func tokenFaults(_ fault: String, _ code: ReadFailure.Code) async throws {
        let faults = "faults: [{endpoint: google_play.oauth, times: 1, \(fault)}]\n"
        let world = try PlayWorld(purchases: "token: tok", rest: faults)
        let reading = try await world.read("tok")
        #expect(reading.failure == ReadFailure(code, store: .googlePlay))
        #expect(try await world.read("tok").coverage == .full)
    }

    @Test(
        "faults of the API are failures with their codes",
        arguments: [
            ("status: 401, error_type: permissionDenied", .unauthorized),
            ("status: 403, error_type: quotaExceeded", .throttled), ("status: 403", .unauthorized),
            ("status: 409", .unavailable), ("status: 429, backoff: 3s", .throttled),
            ("status: 502, body: html", .unavailable),
            ("body: html", .malformed), ("body: truncated", .malformed), ("body: empty", .malformed),
            ("connection: reset_after", .unavailable),
        ] as [(String, ReadFailure.Code)]
    )
    func faults(_ fault: String, _ code: ReadFailure.Code) async throws {
        let faults = "faults: [{endpoint: google_play.subscription, customer: tok, times: 1, \(fault)}]\n"
        let world = try PlayWorld(purchases: "token: tok", rest: faults)
        let reading = try await world.read("tok")
        #expect(reading.failure?.code == code)
        #expect(reading.failure?.retryAfter == (fault.contains("backoff") ? .seconds(3) : nil))
        #expect(try await world.read("tok").coverage == .full)
    }

    @Test("a package that Google does not know is our own mistake, not a user's")
    func package() async throws {
        let world = try PlayWorld("google_play: {package: com.example.other, purchases: [{token: tok}]}")
        #expect(try await world.read("tok").failure == ReadFailure(.unauthorized, store: .googlePlay))
    }

    @Test("41: an upgrade in two steps is one purchase, and the old tokens are over")
    func upgrade() async throws {
        let world = try PlayWorld(
            purchases: "token: a",
            "token: b, linked: a",
            "token: c, linked: b, plan: yearly, acknowledged: false"
        )
        let reading = try await world.read("c", "a", known: ["a"])
        #expect(reading.coverage == .full)
        #expect(reading.observations.map(\.lookupID) == ["c"])
        #expect(reading.observations.first?.names("purchase_token") == ["a", "b", "c"])
        #expect(reading.observations.first?.entitlements == ["google_play:pro:yearly"])
        let old = try #require(try await world.read("b", known: ["b"]).observations.first)
        #expect(old.status.raw == "replaced")
        #expect(old.givesAccess == false)
    }

    @Test("49: a pending upgrade and the purchase that it would replace are two")
    func pendingUpgrade() async throws {
        let world = try PlayWorld(purchases: "token: a", "token: b, linked: a, state: pending")
        let reading = try await world.read("b")
        #expect(reading.observations.map(\.lookupID).compactMap(\.self).sorted() == ["a", "b"])
        #expect(reading.observations.first { $0.lookupID == "a" }?.givesAccess == true)
        #expect(reading.observations.first { $0.lookupID == "b" }?.status.raw == "incomplete")
    }

    @Test("50: a top-up is a new token of the same purchase, which runs on and promises no renewal")
    func topUp() async throws {
        let world = try PlayWorld(
            purchases: "token: a, prepaid: true, expires: +2d",
            "token: b, prepaid: true, linked: a, expires: +32d, acknowledged: false"
        )
        let top = try #require(try await world.read("b", known: ["a"]).observations.first)
        #expect(top.periodEndsAt == world.at(32 * PlayWorld.day))
        #expect(top.renewal == "will_not_renew")
        #expect(top.names("purchase_token") == ["a", "b"])
        #expect(top.acknowledgement?.deadline == world.at(3 * PlayWorld.day - 60_000))
        world.simulator.shiftClock(byMilliseconds: 33 * PlayWorld.day)
        #expect(try await world.read("b").observations.first?.status.raw == "expired")
    }

    @Test("56: a voided order of a running subscription changes nothing about it")
    func voidedOrder() async throws {
        let world = try PlayWorld(purchases: "token: tok, voided: -1h, voided_reason: 1")
        #expect(try await world.read("tok").observations.first?.givesAccess == true)
    }

    @Test("99: a one-time purchase answers 410 as a subscription, and is found")
    func oneTime() async throws {
        let world = try PlayWorld(
            purchases: "token: p, kind: one_time, product: lifetime",
            "token: g, kind: one_time, state: gone"
        )
        let reading = try await world.read("p", "g")
        #expect(reading.coverage == .full)
        #expect(reading.observations.map(\.status.raw) == ["owned"])
        #expect(reading.observations.first?.entitlements == ["google_play:lifetime"])
    }
}
