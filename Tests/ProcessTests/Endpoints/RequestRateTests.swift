import Foundation
import HTTPTypes
import TestSupport
import Testing

/// Requests that come too often or too slowly.
struct RequestRateTests {
    @Test func `A user's requests are limited over all processes, and nobody else's by them`() async throws {
        let settings = ["HTTP_REQUESTS_PER_MINUTE_PER_USER": "5"]
        try await EndpointSite.with(
            scenario: AccessScene.scenario,
            users: ["ann", "ben"],
            settings: settings
        ) { endpoints in
            let both = [try await endpoints.open("serve"), try await endpoints.open("serve")]
            let ann = try await endpoints.token(#"{"sub": "ann"}"#)
            let callers = both.map { Caller(endpoint: $0, token: ann) }
            for number in 0..<5 {
                let answer = try await callers[number % 2].ask(.get, "/v1/entitlement")
                #expect(answer.status == 200, "\(number): \(answer)")
            }
            // A token of today is no way around it.
            let fresh = try await endpoints.caller("ann", at: both[1])
            for caller in callers + [fresh] {
                for (method, path) in [(HTTPRequest.Method.get, "/v1/entitlement"), (.post, "/v1/restores")] {
                    let answer = try await caller.ask(method, path)
                    #expect(answer.status == 429, "\(answer)")
                    let wait = answer["Retry-After"].flatMap { Int($0) } ?? 0
                    #expect((1...61).contains(wait), "\(wait)")
                    let problem = try answer.problem
                    #expect(problem.kind == "too-many-requests", "\(problem)")
                }
            }
            let jobs = try await endpoints.jobs()
            #expect(jobs == 0)
            for endpoint in both {
                let ben = try await endpoints.caller("ben", at: endpoint)
                let shown = try await ben.entitlement()
                #expect(shown.type == "free")
            }
            for endpoint in both { try await endpoint.close() }
        }
    }

    @Test func `An address's requests are limited over all processes, genuine webhooks and health are not counted`()
        async throws
    {
        let settings = ["HTTP_REQUESTS_PER_MINUTE_PER_ADDRESS": "6"]
        try await EndpointSite.with(
            scenario: AccessScene.scenario,
            users: ["ann", "ben"],
            settings: settings
        ) { endpoints in
            let both = [try await endpoints.open("serve"), try await endpoints.open("serve")]
            let callers = [
                try await endpoints.caller("ann", at: both[0]), try await endpoints.caller("ben", at: both[1]),
            ]
            // Whatever is asked for counts, what there is not as well.
            let paths = ["/v1/entitlement", "/v1/entitlement", "/nowhere", "/v1/entitlement", "/", "/v1/restores/x"]
            for (number, path) in paths.enumerated() {
                let answer = try await callers[number % 2].ask(.get, path)
                #expect(answer.status == (path == "/v1/entitlement" ? 200 : 404), "\(path): \(answer)")
            }
            for caller in callers {
                let answer = try await caller.ask(.get, "/v1/entitlement")
                let wait = answer["Retry-After"].flatMap { Int($0) } ?? 0
                #expect(answer.status == 429 && (1...61).contains(wait), "\(answer)")
            }
            // Stores and those who look after the process come from anywhere, and often.
            for endpoint in both {
                for _ in 0..<10 {
                    let webhook = try await endpoints.webhook("revenuecat", #"{"event": \#(AccessScene.event)}"#)
                    let kept = try await endpoint.post(webhook, to: "revenuecat")
                    #expect(kept.status == 200, "\(kept)")
                    let health = try await endpoint.ask(.get, "/health/ready")
                    #expect(health.status == 200, "\(health)")
                }
                // Who only pretends to be a store is counted.
                let forged = try await endpoints.webhook(
                    "revenuecat",
                    #"{"event": \#(AccessScene.event), "secret": "x"}"#
                )
                let refused = try await endpoint.post(forged, to: "revenuecat")
                #expect(refused.status == 429, "\(refused)")
                // Another address is another count.
                let request = RawConnection.request(
                    "GET",
                    "/v1/entitlement",
                    [("Authorization", "Bearer \(callers[0].token)"), ("Connection", "close")]
                )
                let neighbour = try await RawConnection.exchange(request, with: endpoint.port, from: 0x7F00_0002)
                #expect(neighbour.answers.map(\.status) == [200], "\(neighbour)")
            }
            for endpoint in both { try await endpoint.close() }
        }
    }

    @Test(.full)
    func `Who does not come to the end of a request is not waited for longer than half a minute`() async throws {
        try await EndpointSite.serving { _, endpoint, ann in
            let line = Array("GET /hea".utf8)
            let head = Array(RawConnection.request("GET", "/health/live").dropLast(2)) + Array("X-Slow: ".utf8)
            let body = ann.tap([("Content-Length", "1000")])
            let starts = [[], line, head, body]
            let took = try await withThrowingTaskGroup(of: Double.self) { group in
                for start in starts {
                    for drips in [false, true] {
                        group.addTask {
                            try await onThread {
                                let began = ContinuousClock.now
                                let connection = try RawConnection(to: endpoint.port)
                                connection.send(start)
                                while ContinuousClock.now - began < .seconds(60) {
                                    if case .end = connection.receive(within: .seconds(1)) { break }
                                    // A byte a second never makes a connection idle.
                                    if drips { connection.send([UInt8(ascii: "a")]) }
                                }
                                return (ContinuousClock.now - began) / .seconds(1)
                            }
                        }
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(took.count == 8 && took.allSatisfy { (20...40).contains($0) }, "\(took)")
        }
    }
}
