import Foundation
import HTTPTypes
import Synchronization
import Testing
import Transport

/// What users' apps and a store send while servers fail: each is sent until it is accepted, as they do.
///
/// What was accepted is on record here, outside of the database.
final class FailoverTraffic: Sendable {
    enum Mix: Sendable {
        /// Of twenty-four things that are sent twenty are events, three restores and one a claim.
        case everything
        /// Events alone; with each of them the store's word changes.
        case changes
    }

    /// One thing that is sent.
    enum Item: Sendable {
        /// A restore of a user who has paid.
        case restore(Int)
        /// A restore of a user whose purchase belongs to another account: it opens a ticket.
        case claim(Int)
        /// A store's event about a user.
        case event(Int)

        static func user(_ kind: String, _ number: Int) -> String { "\(kind)-\(number)" }

        var user: String {
            switch self {
            case .restore(let number): Self.user("payer", number)
            case .claim(let number): Self.user("claimant", number)
            case .event(let number): Self.user("renewed", number)
            }
        }
    }

    /// One answer.
    struct Answer: Sendable {
        var status: Int
        var began: ContinuousClock.Instant
        var ended: ContinuousClock.Instant
    }

    /// What was accepted, by the user whom it is about: a job's id, an event's id.
    private let accepted = Mutex<[String: String]>([:])
    private let answers = Mutex<[Answer]>([])

    let items: [Item]
    private let mix: Mix
    /// How many are begun a second; `nil`: as fast as possible.
    let rate: Double?

    init(_ count: Int, of mix: Mix = .everything, rate: Double?) {
        self.rate = rate
        self.mix = mix
        items = (1...count).map { number in
            switch (mix, number % 24) {
            case (.everything, 0): .claim(number)
            case (.everything, 8), (.everything, 16), (.everything, 23): .restore(number)
            default: .event(number)
            }
        }
    }

    /// The stores' customers, and the host's users.
    var scenario: String {
        let lines = items.map { item in
            let state = if case .claim = item { "none" } else { mix == .changes ? "expired" : "active" }
            return "  - {id: \(item.user), state: \(state)}\n"
        }
        return "customers:\n" + lines.joined()
    }

    var users: [String] { items.map(\.user) }
    var acceptedCount: Int { accepted.withLock { $0.count } }
    var acceptedJobs: [UUID] { accepted.withLock { $0.values.compactMap { UUID(uuidString: $0) } } }
    var acceptedEvents: [String] { accepted.withLock { $0.values.filter { $0.hasPrefix("event-") } } }
    var acceptedClaimants: [String] { accepted.withLock { $0.keys.filter { $0.hasPrefix("claimant-") } } }

    /// Sends everything, each in its time, and again until it is accepted.
    func send(to endpoint: Endpoint, of endpoints: EndpointSite) async throws {
        let began = ContinuousClock.now
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (place, item) in items.enumerated() {
                // Never too many at once, at full speed as while all of them wait.
                if place >= 1500 { try await group.next() }
                if let rate {
                    try await Task.sleep(until: began + .seconds(Double(place) / rate), clock: .continuous)
                } else if place >= 32 {
                    try await group.next()
                }
                group.addTask { try await self.send(item, to: endpoint, of: endpoints) }
            }
            try await group.waitForAll()
        }
    }

    private func send(_ item: Item, to endpoint: Endpoint, of endpoints: EndpointSite) async throws {
        let post: @Sendable () async throws -> HTTPAnswer
        var event: String?
        switch item {
        case .event(let number):
            let id = "event-\(number)"
            event = id
            let body = #"{"id": "\#(id)", "type": "RENEWAL", "app_user_id": "\#(item.user)"}"#
            if mix == .changes {
                try await endpoints.control("/control/customers/\(item.user)", #"{"state": "active"}"#, by: .put)
            }
            let webhook = try await endpoints.webhook("revenuecat", #"{"event": \#(body)}"#)
            post = { try await endpoint.post(webhook, to: "revenuecat") }
        case .restore, .claim:
            let caller = try await endpoints.caller(item.user, at: endpoint)
            var body: String?
            if case .claim = item { body = #"{"client_error": "receipt_already_in_use"}"# }
            post = { [body] in try await caller.ask(.post, "/v1/restores", body: body) }
        }
        while true {
            let began = ContinuousClock.now
            // A connection that breaks is as good as 503.
            let answer = try? await post()
            answers.withLock { $0.append(Answer(status: answer?.status ?? 0, began: began, ended: .now)) }
            if let answer, answer.status == 200 || answer.status == 202 {
                let id = try event ?? (answer.decode() as SeenRestore).id
                accepted.withLock { $0[item.user] = id }
                return
            }
            try #require(answer == nil || answer?.status == 503, "\(item): \(String(describing: answer))")
            try #require(
                endpoint.program.isRunning,
                "the process that serves has ended: \(endpoint.program.err.suffix(2000))"
            )
            try await Task.sleep(for: .milliseconds(200))
        }
    }

    /// The longest time without an answer that accepts, from an instant on.
    func pause(since instant: ContinuousClock.Instant) -> Duration {
        let times = answers.withLock { $0.filter { $0.status / 100 == 2 && $0.ended >= instant }.map(\.ended) }.sorted()
        return zip([instant] + times, times).map { $1 - $0 }.max() ?? .zero
    }

    /// Of the requests that began in the minute around an instant: how many there were, and how many were not accepted.
    func refused(around instant: ContinuousClock.Instant) -> (all: Int, refused: Int) {
        let span = instant - .seconds(30)...instant + .seconds(30)
        let begun = answers.withLock { $0.filter { span.contains($0.began) } }
        return (begun.count, begun.count { $0.status / 100 != 2 })
    }
}
