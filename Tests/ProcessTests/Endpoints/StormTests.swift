import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing
import Transport

/// Events in heaps, over and over and out of order, to a process that dies in the middle.
struct StormTests {
    /// Users of every kind whose events come.
    private static let scenario =
        """
        generate:
          - {id: "active-{n}", count: 20, state: active}
          - {id: "lapsed-{n}", count: 15, state: expired}
          - {id: "paid-{n}", count: 10, state: active}
          - {id: "free-{n}", count: 5, state: expired}
        customers:

        """
        + (1...5).map {
            "  - {id: owner-\($0), aliases: [second-\($0)], subscriptions: "
                + "[{state: active, store_subscription_identifier: \"200000070000000\($0)\"}]}\n"
        }
        .joined()

    private static let load = """
        INSERT INTO users (id, type)
        SELECT k.name || '-' || n, k.type
          FROM (VALUES ('active', 20, 'free'), ('lapsed', 15, 'subscriber'), ('paid', 10, 'subscriber'),
                       ('free', 5, 'free'), ('owner', 5, 'free'), ('second', 5, 'free')) AS k(name, count, type),
               generate_series(1, k.count) AS n;
        INSERT INTO assets (user_id, frozen_reasons, frozen_at)
        SELECT u.id, CASE WHEN n = 2 THEN ARRAY['moderation'] WHEN u.type = 'free' THEN ARRAY['subscription_lapsed']
                          ELSE '{}' END,
               CASE WHEN n = 2 OR u.type = 'free' THEN now() END
          FROM users AS u, generate_series(1, 2) AS n ORDER BY u.id, n;
        """

    private static let types = [
        "INITIAL_PURCHASE", "RENEWAL", "CANCELLATION", "UNCANCELLATION", "BILLING_ISSUE", "EXPIRATION",
        "PRODUCT_CHANGE", "TRANSFER", "SUBSCRIPTION_EXTENDED", "A_TYPE_OF_TOMORROW",
    ]

    private static let settings = [
        "JOB_LEASE_SECONDS": "2",
        // Whom the brake holds back depends on who comes first.
        "DEMOTION_BRAKE_MINIMUM": "1000000",
    ]

    /// What has to be the same in the end.
    private struct Outcome: Equatable {
        var users: [String]
        var assets: [String]
        var tickets: [String]
        /// Each change of a type: who changes twice has been told two things.
        var changes: [String]

        init(of site: Site) async throws {
            users = try await site.texts("SELECT concat_ws(' ', u.id, u.type, u.status) FROM users AS u ORDER BY 1")
            assets = try await site.texts(
                """
                SELECT concat_ws(' ', a.id, a.user_id, a.frozen_reasons, a.frozen_at IS NOT NULL)
                  FROM assets AS a ORDER BY 1
                """
            )
            tickets = try await site.texts(
                """
                SELECT concat_ws(' ', t.user_id, t.kind, t.state, t.purchase_owner_id, t.original_id)
                  FROM entitlement_sync.ticket_status AS t ORDER BY 1
                """
            )
            changes = try await site.texts(
                """
                SELECT concat_ws(' ', d.user_id, d.type_before, d.type_after, d.assets_changed)
                  FROM entitlement_sync.decision_log AS d WHERE d.type_before <> d.type_after ORDER BY 1
                """
            )
        }
    }

    @Test func `72, 73, 75: a storm of events is kept once each, whoever dies, and ends as one that nobody disturbed`()
        async throws
    {
        let undisturbed = try await Self.outcome { endpoints, _, webhooks in
            let endpoint = try await endpoints.open()
            for (_, webhook) in webhooks {
                let answer = try await endpoint.post(webhook, to: "revenuecat")
                #expect(answer.status == 200, "\(answer)")
            }
            try await endpoint.close()
        }
        #expect(undisturbed.changes.count == 20 + 15 + 5)
        #expect(undisturbed.users.count { $0.contains(" subscriber ") } == 20 + 10 + 5)
        #expect(undisturbed.tickets.count == 5)

        let disturbed = try await Self.outcome { endpoints, port, webhooks in
            var deliveries: [Webhook] = []
            for (_, webhook) in webhooks { deliveries += [webhook, webhook, webhook] }
            var random = SeededGenerator(seed: 60)
            deliveries.shuffle(using: &random)
            let settings = ["HTTP_PORT": "\(port)"]
            let first = try await endpoints.open(settings: settings)
            let storm = Storm(deliveries, at: port, over: endpoints)
            let troubles = try await withThrowingTaskGroup(of: Int.self) { group in
                for _ in 0..<16 { group.addTask { try await storm.post() } }
                try await Self.killed(first, at: 150, of: endpoints.site)
                let second = try await endpoints.open(settings: settings)
                try await Self.killed(second, at: 350, of: endpoints.site)
                let third = try await endpoints.open(settings: settings)
                let troubles = try await group.reduce(0, +)
                try await third.close()
                return troubles
            }
            #expect(troubles > 0, "nobody noticed that the process died")
        }
        #expect(disturbed == undisturbed)
    }

    /// Kills a process in the middle of a storm.
    private static func killed(_ endpoint: Endpoint, at goal: Int64, of site: Site) async throws {
        try await site.waitUntil(
            "SELECT (count(*) >= \(goal))::integer::bigint FROM entitlement_sync.inbox_log",
            comment: "\(goal) events never came"
        )
        try await endpoint.program.kill()
        let kept = try await site.number("SELECT count(*) FROM entitlement_sync.inbox_log")
        #expect(kept < 600, "all had come before it died")
    }

    /// What becomes of a site's users once all events have come, however that went.
    private static func outcome(
        _ arrive: @Sendable (EndpointSite, Int, [(id: String, webhook: Webhook)]) async throws -> Void
    ) async throws -> Outcome {
        let found = Slot<Outcome>()
        try await EndpointSite.with(scenario: scenario, settings: settings) { endpoints in
            try await endpoints.site.execute(load)
            let events = try await Self.webhooks(endpoints)
            try await arrive(endpoints, Int(freeLoopbackPort()), events)
            let ending = try await endpoints.site.run("worker", "--until-idle")
            #expect(ending.code == 0, "\(ending)")
            let kept = try await endpoints.site.texts(
                "SELECT concat_ws(' ', l.event_id, l.source, l.state) FROM entitlement_sync.inbox_log AS l"
            )
            #expect(kept.sorted() == events.map { "\($0.id) revenuecat done" }.sorted())
            try await Record.expectSettled(endpoints.site)
            found.value = try await Outcome(of: endpoints.site)
        }
        return try #require(found.value)
    }

    /// Ten events for each user, of the last hours and not in the order in which things happen.
    private static func webhooks(_ endpoints: EndpointSite) async throws -> [(id: String, webhook: Webhook)] {
        let users = try await endpoints.site.texts("SELECT u.id FROM users AS u ORDER BY 1")
        let hoursAgo = Int(Date().timeIntervalSince1970 * 1000) - 7_200_000
        var all: [(id: String, webhook: Webhook)] = []
        for user in users {
            for (number, type) in types.enumerated() {
                let id = "event-\(user)-\(number)"
                // A reading soon after word of access would have to wait for the store to know of it.
                let at = hoursAgo + (number * 7 % 10) * 60_000
                let who =
                    type == "TRANSFER"
                    ? #""transferred_from": ["\#(user)"], "transferred_to": ["$RCAnonymousID:\#(number)"]"#
                    : "\"app_user_id\": \"\(user)\""
                let event = #"{"id": "\#(id)", "type": "\#(type)", "event_timestamp_ms": \#(at), \#(who)}"#
                let webhook = try await endpoints.webhook("revenuecat", #"{"event": \#(event)}"#)
                all.append((id, webhook))
            }
        }
        return all
    }
}

/// Deliveries that several senders work off; each is posted again until it is acknowledged.
private actor Storm {
    private var left: [Webhook]
    private let port: Int
    private let endpoints: EndpointSite

    init(_ deliveries: [Webhook], at port: Int, over endpoints: EndpointSite) {
        left = deliveries
        self.port = port
        self.endpoints = endpoints
    }

    /// Posts until nothing is left.
    ///
    /// - Returns: how many posts were not acknowledged.
    /// - Throws: when one is not, however often.
    func post() async throws -> Int {
        let deadline = ContinuousClock.now + .seconds(120)
        var troubles = 0
        while let webhook = left.popLast() {
            while try await !isAcknowledged(webhook) {
                troubles += 1
                try #require(ContinuousClock.now < deadline, "it is never acknowledged")
                // A store waits as well before it sends an event again.
                try await Task.sleep(for: .milliseconds(50))
            }
        }
        return troubles
    }

    private func isAcknowledged(_ webhook: Webhook) async throws -> Bool {
        var fields = webhook.headers
        fields["Content-Type"] = "application/json"
        let answer: HTTPAnswer
        do {
            answer = try await endpoints.transport.ask(
                .post,
                "/v1/webhooks/revenuecat",
                at: port,
                fields,
                body: webhook.body
            )
        } catch is TransportError { return false }
        // Whoever is not told 200 sends again; anything but a wait would never end.
        try #require(answer.status == 200 || answer.status == 503, "\(answer)")
        return answer.status == 200
    }
}
