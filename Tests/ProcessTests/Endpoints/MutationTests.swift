import Foundation
import HTTPTypes
import TestSupport
import Testing

/// Requests that were altered on the way, by accident or by somebody who tries.
struct MutationTests {
    private static let scenario = """
        customers: [{id: ann, state: active}]
        app_store:
          customers:
            - id: apple-ann
              transactions: [{original: "2000000700000001", product: premium_monthly, state: active, expires: +20d}]
        google_play:
          purchases: [{token: tok-ann, state: active}]

        """

    /// Altered requests of each test: two thousand, and a hundred thousand in the long profile.
    private static let count = Profile.isFull ? 100_000 : 2_000
    /// Connections at once, each with requests of its own.
    private static let lanes = 4

    @Test func `Altered requests of people and stores that are who they say never fail on our side`() async throws {
        try await EndpointSite.with(scenario: Self.scenario, users: ["ann"]) { endpoints in
            let endpoint = try await endpoints.open("serve")
            let ann = try await endpoints.caller("ann", at: endpoint)
            let asked = try await ann.restore()
            let token = [("Authorization", "Bearer \(ann.token)"), ("Accept-Language", "de-AT, en;q=0.3")]
            let shown = try endpoints.showing(transaction: "2000000700000001")
            var seeds = [
                RawConnection.request("POST", "/v1/restores", token, body: Array(shown.utf8)),
                RawConnection.request("POST", "/v1/restores", token + [("Idempotency-Key", "k-1")], body: Self.wish),
                RawConnection.request("GET", asked.path + "?wait=0", token),
                RawConnection.request("GET", "/v1/entitlement", token), RawConnection.request("GET", "/health/live"),
            ]
            for (store, request) in Self.events {
                let webhook = try await endpoints.webhook(store, request)
                seeds.append(Self.request(webhook, to: store))
            }
            for seed in seeds {
                let outcome = try await RawConnection.exchange(seed, with: endpoint.port, endsSending: true)
                let statuses = outcome.answers.map(\.status)
                #expect(statuses == [200] || statuses == [202], "they are right as they are: \(outcome)")
            }
            let tally = try await Self.send(seeds, to: endpoint)
            // Some alterations do no harm, and a few that do are found.
            #expect(tally.count(200...202) > 0 && tally.count(400...400) > 0 && tally.count(401...401) > 0, "\(tally)")
            try await Self.expectAlive(endpoint, ann)
        }
    }

    @Test func `Altered requests of people and stores that are not who they say change nothing`() async throws {
        try await EndpointSite.with(scenario: Self.scenario, users: ["ann"]) { endpoints in
            let endpoint = try await endpoints.open("serve")
            let ann = try await endpoints.caller("ann", at: endpoint)
            // No alteration makes a signature: these are of others, of yesterday, or of nobody.
            let yesterday = Int(Date().timeIntervalSince1970) - 86_400
            var seeds = [RawConnection.request("POST", "/v1/restores", body: Self.wish)]
            let wrong = [
                #"{"sub": "ann", "project": "other-project"}"#, #"{"sub": "ann", "alg": "none"}"#,
                #"{"sub": "ann", "alg": "HS256"}"#,
                #"{"sub": "ann", "iat": \#(yesterday), "exp": \#(yesterday + 3600)}"#,
            ]
            for claims in wrong {
                let written = try await endpoints.token(claims)
                let token = [("Authorization", "Bearer \(written)")]
                seeds.append(RawConnection.request("POST", "/v1/restores", token, body: Self.wish))
                seeds.append(RawConnection.request("GET", "/v1/entitlement", token))
            }
            let event = #"{"event": {"type": "RENEWAL", "app_user_id": "ann"}, "secret": "other-secret"}"#
            let forged = try await endpoints.webhook("revenuecat", event)
            seeds.append(Self.request(forged, to: "revenuecat"))
            var renewal = try await endpoints.webhook("app-store", Self.events[1].request)
            let other = try await endpoints.webhook("app-store", Self.events[1].request)
            // The signature is that of another notification.
            let parts = renewal.body.split(separator: ".").prefix(2) + other.body.split(separator: ".").suffix(1)
            renewal.body = parts.joined(separator: ".")
            seeds.append(Self.request(renewal, to: "app-store"))
            var push = try await endpoints.webhook("google-play", Self.events[2].request)
            let foreign = try await endpoints.pushToken(#"{"audience": "https://example.org/hook"}"#)
            push.headers["Authorization"] = "Bearer \(foreign)"
            seeds.append(Self.request(push, to: "google-play"))
            for seed in seeds {
                let outcome = try await RawConnection.exchange(seed, with: endpoint.port, endsSending: true)
                #expect(outcome.answers.map(\.status) == [401], "they are refused as they are: \(outcome)")
            }
            let before = try await endpoints.site.content()
            let tally = try await Self.send(seeds, to: endpoint)
            #expect(tally.count(200...202) == 0 && tally.count(401...401) > Self.count / 10, "\(tally)")
            let isSame = try await endpoints.site.content() == before
            #expect(isSame, "something was written")
            try await Self.expectAlive(endpoint, ann)
            let isChanged = try await endpoints.site.content() != before
            #expect(isChanged, "what is written would have been seen")
        }
    }

    // MARK: Seeds

    private static let wish = Array(
        #"{"proofs": [{"store": "app_store", "kind": "order_id", "value": "MT1"}], "client_error": "é"}"#.utf8
    )

    /// What each store says, for the simulator's control endpoint.
    private static let events = [
        (store: "revenuecat", request: #"{"event": {"type": "RENEWAL", "app_user_id": "ann", "aliases": ["a"]}}"#),
        (store: "app-store", request: #"{"type": "DID_RENEW", "transaction": "2000000700000001"}"#),
        (store: "google-play", request: #"{"subscription": {"notificationType": 4, "purchaseToken": "tok-ann"}}"#),
    ]

    private static func request(_ webhook: Webhook, to store: String) -> [UInt8] {
        let fields = webhook.headers.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        return RawConnection.request("POST", "/v1/webhooks/\(store)", fields, body: Array(webhook.body.utf8))
    }

    // MARK: Sending

    /// How altered requests were answered.
    private struct Tally: Sendable, CustomStringConvertible {
        /// Answers by status.
        var statuses: [Int: Int] = [:]
        /// Requests that the connection was closed upon without an answer.
        var closed = 0
        /// Requests that were answered as none may be.
        var complaints: [String] = []

        var description: String { "\(statuses.sorted { $0.key < $1.key }), \(closed) closed" }

        func count(_ range: ClosedRange<Int>) -> Int {
            statuses.reduce(0) { range.contains($1.key) ? $0 + $1.value : $0 }
        }

        mutating func add(_ other: Tally) {
            statuses.merge(other.statuses) { $0 + $1 }
            closed += other.closed
            complaints += other.complaints
        }
    }

    /// Sends altered requests, and expects that none of them is answered by a failure of ours, or never.
    private static func send(_ seeds: [[UInt8]], to endpoint: Endpoint) async throws -> Tally {
        let port = endpoint.port
        let tally = try await withThrowingTaskGroup(of: Tally.self) { group in
            for lane in 0..<lanes {
                group.addTask { try await onThread { try Self.send(seeds, Self.count / Self.lanes, lane, to: port) } }
            }
            return try await group.reduce(into: Tally()) { $0.add($1) }
        }
        #expect(tally.complaints == [])
        #expect(tally.statuses.values.reduce(0, +) + tally.closed >= count, "\(tally)")
        #expect(endpoint.program.isRunning)
        return tally
    }

    private static func send(_ seeds: [[UInt8]], _ count: Int, _ lane: Int, to port: Int) throws -> Tally {
        var random = SeededGenerator(seed: UInt64(lane))
        var tally = Tally()
        var connection: RawConnection?
        for number in 0..<count {
            let bytes = Mutation.alter(seeds[random.below(seeds.count)], &random)
            let open = try connection ?? RawConnection(to: port)
            let (statuses, isOpen) = answer(of: open, to: bytes)
            connection = isOpen ? open : nil
            for status in statuses ?? [] { tally.statuses[status, default: 0] += 1 }
            if statuses == [] { tally.closed += 1 }
            // Seeds hold keys of this run: the bytes alone tell what was sent.
            if statuses?.allSatisfy({ (200...499).contains($0) }) != true {
                let sent = Data(bytes).base64EncodedString()
                tally.complaints.append("\(lane).\(number): \(statuses.map { "\($0)" } ?? "no end"): \(sent)")
            }
        }
        return tally
    }

    /// Sends a request and reads its answers.
    ///
    /// Where none comes at once the server may wait for the rest: it is told that there is none.
    ///
    /// - Returns: their statuses, `nil` where the server neither answers nor closes; and whether the connection can be
    ///   used again.
    private static func answer(of connection: RawConnection, to bytes: [UInt8]) -> (statuses: [Int]?, isOpen: Bool) {
        connection.send(bytes)
        var came: [UInt8] = []
        var isAlone = false
        while true {
            switch connection.receive(within: isAlone ? .seconds(20) : .milliseconds(50)) {
            case .bytes(let more): came += more
            case .nothing:
                guard !isAlone else { return (nil, false) }
                isAlone = true
                connection.endSending()
                continue
            case .end: return (RawAnswer.all(in: came, hasEnded: true).answers.map(\.status), false)
            }
            let (answers, isAll) = RawAnswer.all(in: came, hasEnded: false)
            if !isAlone, isAll, let last = answers.last {
                return (answers.map(\.status), last.headers["connection"] != "close")
            }
        }
    }

    private static func expectAlive(_ endpoint: Endpoint, _ ann: Caller) async throws {
        let end = try await ann.ask(.post, "/v1/restores")
        #expect(end.status == 202, "\(end)")
        let failures = try endpoint.log.filter { $0["level"] == "error" || $0["level"] == "critical" }
        #expect(failures == [])
        try await endpoint.close()
    }
}
