import HTTPTypes
import Testing

@testable import StoreSimulator

@Suite("Faults")
struct FaultTests {
    private static func scenario(_ faults: String) -> String {
        """
        project: p1
        customers: [{id: u, aliases: [u2], state: active}, {id: v, state: active}]
        faults: \(faults)
        """
    }

    struct Status: Sendable, CustomTestStringConvertible {
        var status: Int
        var type: String
        var retryable: Bool
        var backoffMs: Int64?
        var testDescription: String { "\(status)" }
    }

    @Test(
        "A status fault answers with the error object of that status",
        arguments: [
            Status(status: 401, type: "authentication_error", retryable: false),
            Status(status: 403, type: "authorization_error", retryable: false),
            Status(status: 422, type: "store_error", retryable: true, backoffMs: 1000),
            Status(status: 423, type: "resource_locked_error", retryable: true, backoffMs: 1000),
            Status(status: 429, type: "rate_limit_error", retryable: true, backoffMs: 2000),
            Status(status: 500, type: "server_error", retryable: true),
            Status(status: 503, type: "server_error", retryable: true),
        ]
    )
    func status(_ row: Status) async throws {
        try await Probe.run(Self.scenario("[{status: \(row.status)}]")) { probe in
            let answer = try await probe.get("customers/u")
            #expect(answer.status == row.status)
            let json = try answer.json
            #expect(json["type"]?.text == row.type)
            #expect(json["retryable"]?.flag == row.retryable)
            #expect(json["backoff_ms"]?.integer == row.backoffMs)
            #expect(answer.headers[.retryAfter] == (row.status == 429 ? "2" : nil))
        }
    }

    @Test("Type, wait and retryability can be chosen")
    func chosenError() async throws {
        let faults = "[{status: 422, error_type: brand_new_error, retryable: true, backoff: 3s}]"
        try await Probe.run(Self.scenario(faults)) { probe in
            let json = try await probe.get("customers/u").json
            #expect(json["type"]?.text == "brand_new_error")
            #expect(json["backoff_ms"]?.integer == 3000)
        }
    }

    @Test(
        "skip, times and every choose which requests are hit",
        arguments: [
            ("times: 2", [503, 503, 200, 200, 200, 200]),
            ("skip: 2", [200, 200, 503, 503, 503, 503]),
            ("skip: 1, times: 2", [200, 503, 503, 200, 200, 200]),
            ("every: 2", [503, 200, 503, 200, 503, 200]),
            ("every: 3, times: 1, skip: 1", [200, 503, 200, 200, 200, 200]),
        ]
    )
    func selection(fields: String, expected: [Int]) async throws {
        try await Probe.run(Self.scenario("[{status: 503, \(fields)}]")) { probe in
            var statuses: [Int] = []
            for _ in expected { statuses.append(try await probe.get("customers/u").status) }
            #expect(statuses == expected)
        }
    }

    @Test(
        "A rule applies to its customer by any id, its endpoint and its method",
        arguments: [
            ("customer: u", "customers/u", 503), ("customer: u", "customers/u2", 503),
            ("customer: u2", "customers/u", 503), ("customer: u", "customers/v", 200),
            ("endpoint: subscriptions", "customers/u/subscriptions", 503),
            ("endpoint: subscriptions", "customers/u/purchases", 200),
            ("method: POST", "customers/u", 200), ("method: GET", "customers/u", 503),
        ]
    )
    func matching(fields: String, path: String, status: Int) async throws {
        try await Probe.run(Self.scenario("[{status: 503, \(fields)}]")) { probe async throws in
            #expect(try await probe.get(path).status == status)
        }
    }

    @Test("Each field comes from the first matching rule that sets it")
    func union() throws {
        var first = FaultRule(customer: "u")
        first.status = 503
        first.retryable = false
        var second = FaultRule()
        second.latency = Span(milliseconds: 50)
        second.status = 429
        second.backoff = Span(milliseconds: 9000)
        var book = FaultBook([second, first])
        let struck = book.strike(endpoint: "customer", method: "GET", ids: ["u"])
        let effect = try #require(struck)
        #expect(effect.delay == 50...50)
        #expect(effect.status == 429)
        #expect(effect.backoffMs == 9000)
        // The fields that shape an error stay with the rule whose status won.
        #expect(effect.retryable == nil)
        book = FaultBook([first, second])
        let struckAgain = book.strike(endpoint: "customer", method: "GET", ids: ["u"])
        let other = try #require(struckAgain)
        #expect(other.status == 503)
        #expect(other.backoffMs == nil)
        #expect(other.delay == 50...50)
    }

    @Test("A web page comes with 200 or with an error status")
    func html() async throws {
        for status in [200, 502] {
            try await Probe.run(Self.scenario("[{body: html\(status == 502 ? ", status: 502" : "")}]")) { probe in
                let answer = try await probe.get("customers/u")
                #expect(answer.status == status)
                #expect(answer.headers[.contentType] == "text/html; charset=utf-8")
                #expect(answer.text.hasPrefix("<!DOCTYPE html>"))
            }
        }
    }

    @Test("A broken body has a matching length", arguments: ["empty", "truncated", "deep, size: 5000"])
    func bodies(fault: String) async throws {
        try await Probe.run(Self.scenario("[{body: \(fault)}]")) { probe in
            let answer = try await probe.get("customers/u/subscriptions")
            #expect(answer.status == 200)
            #expect(answer.headers[.contentLength] == "\(answer.text.utf8.count)")
            switch fault {
            case "empty": #expect(answer.text.isEmpty)
            case "truncated":
                #expect(answer.text.hasPrefix(#"{"object":"list""#))
                #expect(throws: DecodingError.self) { try JSON(answer.text) }
            default: #expect(answer.text == String(repeating: "[", count: 5000) + String(repeating: "]", count: 5000))
            }
        }
    }

    @Test("A request answered by a fault is not carried out, unless the rule says so", arguments: [false, true])
    func processed(carriesOut: Bool) async throws {
        let faults = "[{endpoint: create_customer, status: 500, times: 1, processed: \(carriesOut)}]"
        try await Probe.run(Self.scenario(faults)) { probe async throws in
            #expect(try await probe.post("customers", #"{"id":"new"}"#).status == 500)
            #expect(try await probe.get("customers/new").status == (carriesOut ? 200 : 404))
        }
    }

    @Test("The Date header can be skewed")
    func dateSkew() async throws {
        try await Probe.run(Self.scenario("[{customer: u, date_skew: -45s}]")) { probe async throws in
            // Thu, 01 Jan 2026 00:00:00 GMT
            probe.simulator.simulation.withState { $0.clock.set(1_767_225_600_000) }
            #expect(try await probe.get("customers/v").headers[.date] == "Thu, 01 Jan 2026 00:00:00 GMT")
            #expect(try await probe.get("customers/u").headers[.date] == "Wed, 31 Dec 2025 23:59:15 GMT")
        }
    }

    @Test("Latency is drawn from its range")
    func latency() throws {
        var scenario = try Scenario(yaml: Self.scenario("[{latency: 10ms, latency_max: 30ms}]"))
        scenario.project = "p1"
        let simulation = try Simulation(scenario)
        let request = StoreRequest(method: "GET", target: "/v2/projects/p1/customers/u", authorization: "Bearer sk_x")
        let delays = (0..<300).map { _ in simulation.answer(request).delayMs }
        #expect(delays.allSatisfy { (10...30).contains($0) })
        #expect(Set(delays).count > 10)
    }
}
