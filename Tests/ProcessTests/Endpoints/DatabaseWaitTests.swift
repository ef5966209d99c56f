import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// Webhooks and restores that come while the database is away, as in a failover.
struct DatabaseWaitTests {
    private static let users = (1...20).map { "user-\($0)" }
    private static let scenario = """
        generate:
          - {id: "user-{n}", count: 20, state: active}

        """
    /// One client at a proxy, who may have fewer requests under way than there are webhooks.
    private static let client = ["X-Forwarded-For": "203.0.113.7"]
    private static let settings = ["HTTP_TRUSTED_PROXIES": "127.0.0.1", "HTTP_MAX_CONNECTIONS_PER_ADDRESS": "30"]

    /// Posts, all at once: sixty events, and a restore of each user.
    private struct Crowd {
        var webhooks: [Webhook] = []
        var callers: [Caller] = []
        var endpoint: Endpoint

        init(_ endpoints: EndpointSite, at endpoint: Endpoint) async throws {
            self.endpoint = endpoint
            for number in 1...60 {
                let event = #"{"id": "event-\#(number)", "type": "RENEWAL", "app_user_id": "user-\#(number % 20 + 1)"}"#
                webhooks.append(try await endpoints.webhook("revenuecat", #"{"event": \#(event)}"#))
            }
            for user in users { callers.append(try await endpoints.caller(user, at: endpoint)) }
            // Whose tokens are genuine is known from here on.
            _ = try await callers[0].entitlement()
        }

        /// - Returns: the answers' status codes, sorted: of the webhooks, of the restores.
        func post(_ meanwhile: () async throws -> Void) async throws -> (events: [Int], restores: [Int]) {
            try await withThrowingTaskGroup(of: (isEvent: Bool, status: Int).self) { group in
                for webhook in webhooks {
                    group.addTask {
                        let headers = webhook.headers.merging(client) { $1 }
                        let answer = try await endpoint.post(
                            Webhook(headers: headers, body: webhook.body),
                            to: "revenuecat"
                        )
                        return (true, answer.status)
                    }
                }
                for caller in callers {
                    group.addTask { (false, try await caller.ask(.post, "/v1/restores", client).status) }
                }
                try await meanwhile()
                var answers: [(isEvent: Bool, status: Int)] = []
                for try await answer in group { answers.append(answer) }
                return (
                    answers.filter(\.isEvent).map(\.status).sorted(),
                    answers.filter { !$0.isEvent }.map(\.status).sorted()
                )
            }
        }
    }

    /// A server of one's own, a process before it, and what is posted to it.
    private static func with(
        _ settings: [String: String] = [:],
        _ body: @Sendable (EndpointSite, PrivatePostgres, Endpoint, Crowd) async throws -> Void
    ) async throws {
        let server = try await PrivatePostgres.start()
        try await EndpointSite.with(
            on: server,
            scenario: scenario,
            users: users,
            settings: Self.settings.merging(settings) { $1 }
        ) { endpoints in
            let endpoint = try await endpoints.open("serve")
            try await body(endpoints, server, endpoint, try await Crowd(endpoints, at: endpoint))
            try await endpoint.close()
        }
        // Most tests have stopped it already.
        try? await server.stop(immediately: true)
    }

    @Test func `They wait for it, however many of one sender, and are accepted`() async throws {
        try await Self.with { endpoints, server, endpoint, crowd in
            try await server.stop(immediately: true)
            let (events, restores) = try await crowd.post {
                try await eventually("it never says that requests wait") {
                    let health = try await endpoint.ask(.get, "/health/ready")
                    return health.status == 200 && health.text.hasSuffix("waiting for the database\n")
                }
                // Other questions are answered at once.
                let asked = try await crowd.callers[0].ask(.get, "/v1/entitlement")
                #expect(asked.status == 503, "\(asked)")
                // The server stays away meanwhile.
                try await Task.sleep(for: .seconds(2))
                try await server.start()
            }
            #expect(events == Array(repeating: 200, count: 60))
            #expect(restores == Array(repeating: 202, count: 20))
            let kept = try await endpoints.site.number("SELECT count(*) FROM entitlement_sync.inbox_log")
            #expect(kept == 60)
            let jobs = try await endpoints.site.number(
                "SELECT count(DISTINCT s.user_id) FROM entitlement_sync.job_status AS s WHERE s.kind = 'restore'"
            )
            #expect(jobs == 20)
            try await eventually("it is never ready again") {
                try await endpoint.ask(.get, "/health/ready").text.split(separator: "\n").count == 2
            }
        }
    }

    @Test func `Beyond their time they are told to come again, and with no time at once`() async throws {
        for (wait, least) in [("0", Duration.zero), ("2", .milliseconds(1900))] {
            try await Self.with(["HTTP_DATABASE_WAIT_SECONDS": wait]) { _, server, endpoint, crowd in
                try await server.stop(immediately: true)
                let began = ContinuousClock.now
                let (events, restores) = try await crowd.post {}
                #expect(ContinuousClock.now - began >= least)
                #expect(Set(events) == [503] && Set(restores) == [503])
                try await eventually("it stays ready") {
                    try await endpoint.ask(.get, "/health/ready").status == 503
                }
            }
        }
    }

    @Test func `Told to stop while they wait, it answers them and ends`() async throws {
        try await Self.with(["HTTP_DATABASE_WAIT_SECONDS": "120"]) { _, server, endpoint, crowd in
            try await server.stop(immediately: true)
            let (events, restores) = try await crowd.post {
                try await eventually("nobody waits") {
                    try await endpoint.ask(.get, "/health/ready").text.hasSuffix("waiting for the database\n")
                }
                // All have come; nothing shows that each was read as well.
                let all = crowd.webhooks.count + crowd.callers.count
                try await eventually("requests do not come") { try endpoint.connections >= all }
                try await Task.sleep(for: .seconds(3))
                let ending = try await endpoint.close()
                #expect(ending.code == 0 && ending.took < .seconds(60), "\(ending)")
            }
            #expect(Set(events) == [503] && Set(restores) == [503])
        }
    }
}
