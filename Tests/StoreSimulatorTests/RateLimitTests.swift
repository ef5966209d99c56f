import HTTPTypes
import Testing

@testable import StoreSimulator

@Suite("Rate limits")
struct RateLimitTests {
    private static let scenario = "{project: p1, rate_limit_per_minute: 3, customers: [{id: u}]}"

    @Test("Answers carry usage and limit; the request beyond it is told how long to wait")
    func limit() async throws {
        try await Probe.run(Self.scenario) { probe in
            // Ten seconds into a minute: fifty remain.
            let minute = (probe.nowMs / 60_000 + 1) * 60_000
            probe.simulator.simulation.withState { $0.clock.set(minute + 10_000) }
            for usage in 1...3 {
                let answer = try await probe.get("customers/u")
                #expect(answer.status == 200)
                #expect(answer.header(.usage) == "\(usage)")
                #expect(answer.header(.limit) == "3")
                #expect(answer.headers[.retryAfter] == nil)
            }
            let refused = try await probe.get("customers/u/subscriptions")
            #expect(refused.status == 429)
            #expect(refused.headers[.retryAfter] == "50")
            #expect(refused.header(.usage) == "4")
            #expect(refused.header(.limit) == "3")
            let json = try refused.json
            #expect(json["type"]?.text == "rate_limit_error")
            #expect(json["retryable"]?.flag == true)
            #expect(json["backoff_ms"]?.integer == 50_000)

            probe.simulator.shiftClock(byMilliseconds: 50_000)
            #expect(try await probe.get("customers/u").status == 200)
        }
    }

    @Test("A missing customer costs as much as any other")
    func missingCounts() async throws {
        try await Probe.run(Self.scenario) { probe in
            for _ in 1...3 { _ = try await probe.get("customers/nobody") }
            #expect(try await probe.get("customers/u").status == 429)
        }
    }

    @Test("Each key has a budget of its own; a refused key spends nothing")
    func perKey() async throws {
        try await Probe.run(Self.scenario) { probe in
            for _ in 1...4 { _ = try await probe.get("customers/u", authorization: "Bearer sk_one") }
            #expect(try await probe.get("customers/u", authorization: "Bearer sk_one").status == 429)
            #expect(try await probe.get("customers/u", authorization: "Bearer sk_two").status == 200)
            #expect(try await probe.get("customers/u", authorization: nil).header(.usage) == nil)
        }
    }

    @Test("The catalogue has a budget of its own")
    func domains() async throws {
        let yaml = "{project: p1, rate_limit_per_minute: 3, project_rate_limit_per_minute: 1, customers: [{id: u}]}"
        try await Probe.run(yaml) { probe in
            let catalogue = try await probe.get("entitlements")
            #expect(catalogue.header(.limit) == "1")
            #expect(try await probe.get("entitlements").status == 429)
            #expect(try await probe.get("customers/u").header(.usage) == "1")
        }
    }

    @Test("Zero means no limit and no limit headers")
    func unlimited() async throws {
        try await Probe.run("{project: p1, rate_limit_per_minute: 0, customers: [{id: u}]}") { probe in
            let answer = try await probe.get("customers/u")
            #expect(answer.status == 200)
            #expect(answer.header(.usage) == nil)
            #expect(answer.header(.limit) == nil)
        }
    }

    @Test("Retry-After can be in milliseconds, as it once was")
    func milliseconds() async throws {
        let yaml = "{project: p1, rate_limit_per_minute: 1, retry_after_unit: milliseconds, customers: [{id: u}]}"
        try await Probe.run(yaml) { probe in
            _ = try await probe.get("customers/u")
            let refused = try await probe.get("customers/u")
            let wait = try #require(refused.headers[.retryAfter].flatMap { Int64($0) })
            #expect(try refused.json["backoff_ms"]?.integer == wait)
        }
    }
}
