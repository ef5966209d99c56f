import Entitlements
import HTTPTypes
import Logging
@testable import StoreClients
@testable import StoreSimulator
import Testing
@testable import Transport

/// The client against the simulator, in the same process and without a socket.
struct PlayWorld {
    let simulator: StoreSimulator
    let client: GooglePlayClient

    init(_ yaml: String) throws {
        var quiet = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        quiet.logLevel = .critical
        let simulator = try StoreSimulator(scenario: Scenario(yaml: yaml), logger: quiet)
        simulator.simulation.withState { $0.clock.setFrozen(true) }
        self.simulator = simulator
        client = GooglePlayClient(
            configuration: try GooglePlayConfiguration(
                serviceAccount: StoreSimulator.googleServiceAccount,
                packageName: "com.example.app",
                baseURL: "http://127.0.0.1:1/google-play",
                oauthBaseURL: "http://127.0.0.1:1/google-oauth"
            ),
            http: HTTPClient { request, body throws(HTTPClientFailure) in
                let answer = simulator.answer(
                    method: request.method.rawValue,
                    target: request.path ?? "",
                    authorization: request.headerFields[.authorization],
                    contentType: request.headerFields[.contentType],
                    body: body ?? []
                )
                guard answer.status > 0 else { throw HTTPClientFailure(.unavailable) }
                var headers = HTTPFields()
                for (name, value) in answer.headers {
                    if let name = HTTPField.Name(name) { headers[name] = value }
                }
                return HTTPClientResponse(status: answer.status, headers: headers, body: answer.body)
            },
            gate: { _ in .open },
            logger: quiet
        )
    }

    var nowMs: Int64 { simulator.simulation.withState { $0.clock.nowMs } }

    func at(_ milliseconds: Int64) -> Instant? { Instant(milliseconds: nowMs + milliseconds) }

    func read(_ tokens: String..., known: Set<String> = []) async throws -> GooglePlayReading {
        let now = try #require(at(0))
        return await client.read(GooglePlayQuery(tokens: tokens, known: known, askedAt: now))
    }

    func count(_ template: String) -> Int { simulator.requestReport().byPath[template] ?? 0 }
    static let tokenRequests = "POST /google-oauth/token"
}

@Suite struct GooglePlaySimulatorTests {
    private static let day: Int64 = 86_400_000

    private static func scenario(_ purchases: String..., settings: String = "") -> String {
        "google_play:\n  purchases:\n" + purchases.map { "    - {\($0)}\n" }.joined() + settings
    }

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
        let world = try PlayWorld(Self.scenario("token: tok, state: \(state), account: acc"))
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
        let world = try PlayWorld(Self.scenario("token: tok, expires: 1890000000123, fraction_digits: \(digits)"))
        let end = try await world.read("tok").observations.first?.periodEndsAt
        #expect(end == Instant(milliseconds: digits == 0 ? 1_890_000_000_000 : 1_890_000_000_123))
    }

    @Test("one token serves many readings, and a revoked one is replaced once")
    func accessTokens() async throws {
        let world = try PlayWorld(Self.scenario("token: tok"))
        for _ in 0..<3 { #expect(try await world.read("tok").coverage == .full) }
        #expect(world.count(PlayWorld.tokenRequests) == 1)
        world.simulator.simulation.withState { $0.googlePlay.revokeAccessTokens() }
        #expect(try await world.read("tok").coverage == .full)
        #expect(try await world.read("tok").coverage == .full)
        #expect(world.count(PlayWorld.tokenRequests) == 2)
    }

    @Test("a token's life may be written as a text")
    func textLife() async throws {
        let world = try PlayWorld(Self.scenario("token: tok", settings: "  expires_in: text\n"))
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
        let world = try PlayWorld(Self.scenario("token: tok") + faults)
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
        let world = try PlayWorld(Self.scenario("token: tok") + faults)
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
            Self.scenario("token: a", "token: b, linked: a", "token: c, linked: b, plan: yearly, acknowledged: false")
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
        let world = try PlayWorld(Self.scenario("token: a", "token: b, linked: a, state: pending"))
        let reading = try await world.read("b")
        #expect(reading.observations.map(\.lookupID).compactMap(\.self).sorted() == ["a", "b"])
        #expect(reading.observations.first { $0.lookupID == "a" }?.givesAccess == true)
        #expect(reading.observations.first { $0.lookupID == "b" }?.status.raw == "incomplete")
    }

    @Test("50: a top-up is a new token of the same purchase, which runs on and promises no renewal")
    func topUp() async throws {
        let world = try PlayWorld(
            Self.scenario(
                "token: a, prepaid: true, expires: +2d",
                "token: b, prepaid: true, linked: a, expires: +32d, acknowledged: false"
            )
        )
        let top = try #require(try await world.read("b", known: ["a"]).observations.first)
        #expect(top.periodEndsAt == world.at(32 * Self.day))
        #expect(top.renewal == "will_not_renew")
        #expect(top.names("purchase_token") == ["a", "b"])
        #expect(top.acknowledgement?.deadline == world.at(3 * Self.day - 60_000))
        world.simulator.shiftClock(byMilliseconds: 33 * Self.day)
        #expect(try await world.read("b").observations.first?.status.raw == "expired")
    }

    @Test("56: a voided order of a running subscription changes nothing about it")
    func voidedOrder() async throws {
        let world = try PlayWorld(Self.scenario("token: tok, voided: -1h, voided_reason: 1"))
        #expect(try await world.read("tok").observations.first?.givesAccess == true)
    }

    @Test("99: a one-time purchase answers 410 as a subscription, and is found")
    func oneTime() async throws {
        let world = try PlayWorld(
            Self.scenario("token: p, kind: one_time, product: lifetime", "token: g, kind: one_time, state: gone")
        )
        let reading = try await world.read("p", "g")
        #expect(reading.coverage == .full)
        #expect(reading.observations.map(\.status.raw) == ["owned"])
        #expect(reading.observations.first?.entitlements == ["google_play:lifetime"])
    }

    // MARK: Acknowledgement

    private func acknowledgement(_ token: String, _ world: PlayWorld) async throws -> Acknowledgement {
        let observation = try #require(try await world.read(token).observations.first)
        return try #require(observation.acknowledgement)
    }

    @Test(
        "a purchase is acknowledged once; a second call is refused, and the purchase tells why",
        arguments: ["subscription", "one_time"]
    )
    func acknowledgeTwice(_ kind: String) async throws {
        let world = try PlayWorld(Self.scenario("token: tok, kind: \(kind), acknowledged: false"))
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
        let world = try PlayWorld(Self.scenario("token: tok, state: pending, acknowledged: false"))
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
            Self.scenario("token: tok, acknowledged: false")
                + "faults: [{endpoint: google_play.acknowledge, times: 1, status: 409, processed: true}]\n"
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
            Self.scenario("token: tok, acknowledged: false")
                + "faults: [{endpoint: google_play.acknowledge, times: 1, \(fault)}]\n"
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
            Self.scenario("token: tok, acknowledged: false", settings: "  acknowledge_within: 5m\n")
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
        let world = try PlayWorld(Self.scenario("token: gone, state: gone"))
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
            Self.scenario("token: new, acknowledged: false, out_of_app: {expired_token: old, account: acc}")
        )
        let before = try #require(try await world.read("new").observations.first)
        #expect(before.accountID == "acc")
        #expect(before.names("purchase_token") == ["new", "old"])
        _ = try await world.client.acknowledge(try #require(before.acknowledgement), lane: .sweep)
        let after = try #require(try await world.read("new").observations.first)
        #expect(after.accountID == "acc", "the acknowledgement had it kept")
        #expect(after.names("purchase_token") == ["new"])
    }

    // MARK: Orders and voided purchases

    @Test(
        "an order number leads to its purchase, as do those of its renewals",
        arguments: ["GPA.1-2-3-4", "GPA.1-2-3-4..3", "GPA.9"]
    )
    func order(_ id: String) async throws {
        let world = try PlayWorld(Self.scenario("token: tok, order_id: GPA.1-2-3-4, order_ids: [GPA.9]"))
        let order = try #require(try await world.client.order(id, lane: .support))
        #expect(order == GooglePlayOrder(id: id, purchaseToken: "tok", state: "PROCESSED", productIDs: ["pro"]))
    }

    @Test(
        "an order number that leads nowhere is no failure; one that cannot be is not asked for",
        arguments: ["GPA.0", "", "GPA 1", "é", ".."]
    )
    func noOrder(_ id: String) async throws {
        let world = try PlayWorld(Self.scenario("token: tok"))
        #expect(try await world.client.order(id, lane: .support) == nil)
        #expect(world.simulator.requestReport().total == (id == "GPA.0" ? 2 : 0))
        world.simulator.simulation.withState { state in
            var rule = FaultRule(endpoint: "google_play.order")
            rule.status = 503
            state.faults.add([rule])
        }
        if id == "GPA.0" {
            await #expect(throws: ReadFailure(.unavailable, store: .googlePlay)) {
                try await world.client.order(id, lane: .support)
            }
        }
    }

    @Test("voided purchases come page by page, subscriptions among them")
    func voided() async throws {
        let purchases = (0..<2_500).map {
            "token: t\($0), kind: \($0 % 2 == 0 ? "one_time" : "subscription"), voided: -\($0 + 1)m"
        }
        let text = "google_play:\n  purchases:\n" + purchases.map { "    - {\($0)}\n" }.joined()
        let world = try PlayWorld(text)
        var pages: [Int] = []
        var tokens: Set<String> = []
        try await world.client.voided(since: try #require(world.at(-20 * Self.day)), lane: .sweep) { page in
            pages.append(page.count)
            for item in page { tokens.insert(item.purchaseToken) }
        }
        #expect(pages == [1_000, 1_000, 500])
        #expect(tokens.count == 2_500)
        // A start that lies too far back is brought up to where the list begins.
        let late = try #require(world.at(-30_000))
        var count = 0
        try await world.client.voided(since: late, lane: .sweep) { count += $0.count }
        #expect(count == 0)
        try await world.client.voided(since: Instant(microseconds: 0), lane: .sweep) { count += $0.count }
        #expect(count == 2_500)
    }

    @Test("a purchase that was taken back is among the voided, with its reason")
    func voidedReason() async throws {
        let world = try PlayWorld(Self.scenario("token: tok, acknowledged: false, started: -4d, order_id: GPA.7"))
        var items: [GooglePlayVoidedPurchase] = []
        try await world.client.voided(since: try #require(world.at(-2 * Self.day)), lane: .sweep) { items += $0 }
        #expect(
            items == [
                GooglePlayVoidedPurchase(
                    purchaseToken: "tok",
                    orderID: "GPA.7",
                    voidedAt: world.at(-Self.day),
                    reason: 8,
                    source: 2
                )
            ]
        )
    }

    @Test("a voided list that fails in the middle says so")
    func voidedFails() async throws {
        let world = try PlayWorld("faults: [{endpoint: google_play.voided, status: 503}]")
        await #expect(throws: ReadFailure(.unavailable, store: .googlePlay)) {
            try await world.client.voided(since: Instant(microseconds: 0), lane: .sweep) { _ in }
        }
    }
}
