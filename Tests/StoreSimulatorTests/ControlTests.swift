import HTTPTypes
import Testing

@testable import StoreSimulator

@Suite("Control endpoint")
struct ControlTests {
    private static let scenario = """
        project: p1
        rate_limit_per_minute: 0
        customers: [{id: u, aliases: [u2], state: active}, {id: v}]
        """

    @Test("A stored customer replaces the old one and keeps its derived identifiers")
    func put() async throws {
        try await Probe.run(Self.scenario) { probe in
            let before = try #require(try await probe.get("customers/u/subscriptions").json.items.first)
            let stored = try await probe.control(.put, "/customers/u", #"{"state":"expired"}"#)
            #expect(stored.status == 200)
            let after = try #require(try await probe.get("customers/u/subscriptions").json.items.first)
            #expect(after["status"]?.text == "expired")
            #expect(after["id"] == before["id"])
            #expect(after["store_subscription_identifier"] == before["store_subscription_identifier"])
            #expect(try stored.json["subscriptions"]?[0]?["id"] == after["id"])
            // The alias went with the old description.
            #expect(try await probe.get("customers/u2").status == 404)
        }
    }

    @Test("An id may be anything a path can carry")
    func encodedID() async throws {
        try await Probe.run(Self.scenario) { probe async throws in
            #expect(try await probe.control(.put, "/customers/a%2Fb%20%C3%A9", #"{"state":"active"}"#).status == 200)
            #expect(try await probe.get("customers/a%2Fb%20%C3%A9").json["id"]?.text == "a/b é")
            #expect(try await probe.control(.delete, "/customers/a%2Fb%20%C3%A9").status == 200)
            #expect(try await probe.get("customers/a%2Fb%20%C3%A9").status == 404)
        }
    }

    @Test(
        "A control request that cannot be carried out says why",
        arguments: [
            ("PUT", "/customers/u", #"{"state":"expird"}"#, 400, "state is \"expird\"; use one of active"),
            ("PUT", "/customers/u", #"{"sate":"active"}"#, 400, "sate is no known key"),
            ("PUT", "/customers/u", #"{"id":"w"}"#, 400, "id differs from the path"),
            ("PUT", "/customers/u", "", 400, "scenario:"),
            ("PUT", "/customers/w", #"{"aliases":["v"]}"#, 409, "belongs to v"),
            ("PUT", "/customers/u2", #"{"state":"active"}"#, 409, "belongs to u"),
            ("GET", "/customers/w", "", 404, "no customer"),
            ("POST", "/faults", #"{"latency":"soon"}"#, 400, "latency is no length of time"),
            ("POST", "/faults", #"[{"status":503},{}]"#, 400, "[1] does nothing"),
            ("POST", "/clock", #"{"shift":12}"#, 400, "shift is a moment"),
            ("PATCH", "/clock", "", 405, "use GET or POST"),
            ("PUT", "/scenario", #"{"customers":[{}]}"#, 400, "customers[0].id is missing"),
            ("GET", "/elsewhere", "", 404, "no such control path"),
        ]
    )
    func refusal(method: String, path: String, body: String, status: Int, message: String) async throws {
        try await Probe.run(Self.scenario) { probe in
            let method = try #require(HTTPRequest.Method(rawValue: method))
            let answer = try await probe.control(method, path, body)
            #expect(answer.status == status)
            #expect(try answer.json["error"]?.text?.contains(message) == true, "\(answer.text)")
        }
    }

    @Test("Faults are added, listed with their use, and removed")
    func faults() async throws {
        try await Probe.run(Self.scenario) { probe in
            _ = try await probe.control(.post, "/faults", #"{"customer":"u","status":503,"times":1}"#)
            _ = try await probe.control(.post, "/faults", #"[{"customer":"v","status":500},{"latency":"1ms"}]"#)
            #expect(try await probe.get("customers/u").status == 503)
            #expect(try await probe.get("customers/u").status == 200)
            #expect(try await probe.get("customers/v").status == 500)
            let faults = try #require(try await probe.control(.get, "/faults").json["faults"])
            #expect(faults[0]?["matched"]?.integer == 2)
            #expect(faults[0]?["used"]?.integer == 1)
            #expect(faults[0]?["rule"]?["status"]?.integer == 503)
            #expect(faults[2]?["used"]?.integer == 3)
            #expect(try await probe.control(.delete, "/faults").json["faults"] == .array([]))
            #expect(try await probe.get("customers/v").status == 200)
        }
    }

    @Test("Requests are counted by path, status and customer")
    func requests() async throws {
        try await Probe.run(Self.scenario) { probe in
            for _ in 1...3 { _ = try await probe.get("customers/u/subscriptions") }
            _ = try await probe.get("customers/nobody")
            _ = try await probe.get("elsewhere")
            let path = "GET /v2/projects/{project}/customers/{customer}"
            let counts = try await probe.control(.get, "/requests?customer=u").json
            #expect(counts["total"]?.integer == 5)
            #expect(counts["by_path"]?["\(path)/subscriptions"]?.integer == 3)
            #expect(counts["by_path"]?[path]?.integer == 1)
            #expect(counts["by_path"]?["unknown"]?.integer == 1)
            #expect(counts["by_status"]?["200"]?.integer == 3)
            #expect(counts["by_status"]?["404"]?.integer == 2)
            #expect(counts["customer"]?["u"]?.integer == 3)
            #expect(counts["max_in_flight"]?.integer == 1)
            #expect(counts["busiest_minute"]?.integer == 5)
            #expect(counts["by_customer"] == nil)
            let all = try await probe.control(.get, "/requests?customers=true").json
            #expect(all["by_customer"]?["nobody"]?.integer == 1)
            _ = try await probe.control(.delete, "/requests")
            #expect(try await probe.control(.get, "/requests").json["total"]?.integer == 0)
        }
    }

    @Test("The busiest minute is any sixty seconds, not one of the clock's")
    func busiestMinute() {
        var minute = BusiestMinute()
        for _ in 1...3 { minute.count(nowMs: 59_900) }
        for _ in 1...3 { minute.count(nowMs: 60_100) }
        #expect(minute.requests == 6)
        for _ in 1...3 { minute.count(nowMs: 118_999) }
        #expect(minute.requests == 9)
        minute.count(nowMs: 119_000)
        #expect(minute.requests == 9, "the first three are a minute ago")
        for _ in 1...8 { minute.count(nowMs: 400_000) }
        #expect(minute.requests == 9)
        for _ in 1...2 { minute.count(nowMs: 10_000) }
        #expect(minute.requests == 9)
        for _ in 1...8 { minute.count(nowMs: 11_000) }
        #expect(minute.requests == 10)
    }

    @Test("Requests are kept in their order where that is asked for")
    func order() async throws {
        try await Probe.run(Self.scenario) { probe in
            _ = try await probe.get("customers/v")
            #expect(try await probe.control(.get, "/requests?log=true").json["log"] == .array([]))
            _ = try await probe.control(.delete, "/requests?log=true")
            _ = try await probe.get("customers/v/subscriptions?limit=5")
            _ = try await probe.get("customers/u")
            let log = try #require(try await probe.control(.get, "/requests?log=true").json["log"])
            #expect(log[0]?.text == "GET /v2/projects/p1/customers/v/subscriptions")
            #expect(log[1]?.text == "GET /v2/projects/p1/customers/u")
            #expect(log[2] == nil)
        }
    }

    @Test("The clock can be shifted, set, stopped and let go")
    func clock() async throws {
        try await Probe.run(Self.scenario) { probe in
            let start = probe.nowMs
            let shifted = try await probe.control(.post, "/clock", #"{"shift":"+13d"}"#).json
            #expect(shifted["now_ms"]?.integer == start + 13 * 86_400_000)
            #expect(shifted["frozen"]?.flag == true)
            let set = try await probe.control(.post, "/clock", #"{"set":1800000000000}"#).json
            #expect(set["now_ms"]?.integer == 1_800_000_000_000)
            #expect(try await probe.get("customers/u").headers[.date] == "Fri, 15 Jan 2027 08:00:00 GMT")
            let going = try await probe.control(.post, "/clock", #"{"frozen":false}"#).json
            let now = try #require(going["now_ms"]?.integer)
            #expect((1_800_000_000_000...1_800_000_060_000).contains(now))
        }
    }

    @Test("A reset brings back the scenario, its faults, its clock and zero counts")
    func reset() async throws {
        try await Probe.run("faults: [{customer: v, status: 500, times: 1}]\n" + Self.scenario) { probe in
            _ = try await probe.get("customers/v")
            _ = try await probe.control(.put, "/customers/u", #"{"state":"expired"}"#)
            _ = try await probe.control(.post, "/clock", #"{"set":1800000000000}"#)
            #expect(try await probe.control(.post, "/reset").status == 200)
            #expect(try await probe.get("customers/v").status == 500)
            let item = try #require(try await probe.get("customers/u/subscriptions").json.items.first)
            #expect(item["status"]?.text == "active")
            #expect(try await probe.control(.get, "/clock").json["shift_ms"]?.integer == 0)
            #expect(try await probe.control(.get, "/requests").json["total"]?.integer == 2)
        }
    }

    @Test("Another scenario can be loaded whole")
    func scenario() async throws {
        try await Probe.run(Self.scenario) { probe in
            let body = #"{"project":"p1","generate":[{"id":"g{n}","count":5}],"default_customer":{"state":"expired"}}"#
            #expect(try await probe.control(.put, "/scenario", body).status == 200)
            #expect(try await probe.get("customers/g5/subscriptions").json.items.count == 1)
            let other = try await probe.get("customers/anybody/subscriptions").json.items.first
            #expect(other?["status"]?.text == "expired")
            #expect(other?["customer_id"]?.text == "anybody")
        }
    }

    @Test("The guide tells every state, fault and endpoint name")
    func guide() async throws {
        try await Probe.run { probe in
            let guide = try await probe.send(.get, "/", authorization: nil).text
            let words =
                LifeState.allCases.map(\.rawValue) + RevenueCatEndpoint.allCases.map(\.rawValue)
                + FaultRule.fields.map(\.name) + Scenario.fields.map(\.name)
                + CustomerScenario.fields.map(\.name)
                + SubscriptionScenario.fields.map(\.name)
                + PurchaseScenario.fields.map(\.name)
                + GeneratedCustomers.fields.map(\.name)
                + FaultRule.BodyFault.allCases.map(\.rawValue) + FaultRule.ConnectionFault.allCases.map(\.rawValue)
            for word in words { #expect(guide.contains(word), "\(word) is missing") }
        }
    }
}
