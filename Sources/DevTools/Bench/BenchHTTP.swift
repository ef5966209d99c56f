import Composition
import Crypto
import Foundation
import Logging
import NIOCore
import Postgres
import TextFormats

/// How long users wait for a restore over HTTP, and how fast stores' events are kept, with a server and worker in one
/// process of its own.
struct BenchHTTP {
    private static let perSecond = 500
    private static let storeMs = 50
    private static let eventsPerSecond = 3000
    /// Restores a second while events come in.
    private static let besidePerSecond = 50
    /// Users that events are about: a store's burst is about the same ones again and again.
    private static let eventUsers = 2000
    /// Streams and long polls that are open at once.
    private static let idleStreams = 2000
    /// Reported ids of other users' purchases, and as many of none.
    private static let reportedIDs = 1000
    static let webhookSecret = "bench-webhook-secret-0123456789"

    /// Jobs of 90 days before: what a history costs is not seen in empty tables.
    private static let pastJobs = 300_000

    /// Restores before anything is measured: plans, connections and keys are those of a process that has run for a while.
    private static let warmUp = 600

    let database: BenchDatabase
    let runtime: Runtime
    /// How long each of the two is kept up.
    let seconds: Int

    func measure() async throws -> [BenchMeasurement] {
        let users = Self.perSecond * seconds
        let beside = Self.besidePerSecond * seconds
        try await SampleHistory.load(Self.pastJobs, into: database.pool)
        for (prefix, count) in [
            ("app-", users), ("beside-", 2 * beside), ("warm-", Self.warmUp), ("event-", Self.eventUsers),
            ("owner-", Self.reportedIDs), ("reporting-", 2 * Self.reportedIDs),
        ] { try await database.load(count, prefix: prefix, queued: false) }
        try await database.settle()
        let store = try SimulatorProcess(
            prefixes: ["app-": users, "beside-": 2 * beside, "event-": Self.eventUsers, "warm-": Self.warmUp],
            purchases: Dictionary(
                uniqueKeysWithValues: (1...Self.reportedIDs).map { (Self.reported($0, isKnown: true), "owner-\($0)") }
            ),
            latencyMs: Self.storeMs
        )
        defer { store.stop() }
        let revenueCat = BenchProcess.revenueCat(try await store.port(), perMinute: 0, logLevel: "info")
        return try await BenchTokens.with(runtime) { tokens in
            let settings = tokens.serving.merging(revenueCat) { $1 }
            let measured = try await BenchProcess.running("run", database, runtime, settings) { server in
                try await BenchAPIClient.with(port: try await server.port(), logger: runtime.logger) { client in
                    try await measure(users, beside, client, tokens)
                }
            }
            return try await measured + idle(tokens)
        }
    }

    /// What open streams and polls cost a process that has nothing to send them, and how fast it ends with them.
    private func idle(_ tokens: BenchTokens) async throws -> [BenchMeasurement] {
        let users = (1...Self.idleStreams).map { "stream-\($0)" }
        try await database.load(users.count, prefix: "stream-", queued: false)
        return try await BenchProcess.running("serve", database, runtime, tokens.serving) { server in
            let port = try await server.port()
            let most = users.count + 50
            return try await BenchAPIClient.with(port: port, connections: most, logger: runtime.logger) { client in
                var jobs: [(id: String, token: String)] = []
                for token in try await tokens.sign(users) { jobs.append((try await client.accept(token), token)) }
                return try await client.waiting(for: jobs) {
                    try await Task.sleep(for: .seconds(6))
                    let memory = try server.peakMemory()
                    let asked = ContinuousClock.now
                    await server.stop()
                    let took = (ContinuousClock.now - asked).milliseconds / 1000
                    return [
                        BenchMeasurement("memory_2000_streams", memory, "MiB", below: 150),
                        BenchMeasurement("stop_with_2000_streams", took, "s", below: 10),
                    ]
                }
            }
        }
    }

    private func measure(
        _ users: Int,
        _ beside: Int,
        _ client: BenchAPIClient,
        _ keys: BenchTokens
    ) async throws -> [BenchMeasurement] {
        let tokens = try await keys.sign((1...users).map { "app-\($0)" })
        let warm = try await keys.sign((1...Self.warmUp).map { "warm-\($0)" })
        _ = try await client.steadily(Self.warmUp, perSecond: 200) { try await client.restore(warm[$0]) }
        let answers = try await client.steadily(users, perSecond: Self.perSecond) {
            try await client.restore(tokens[$0])
        }
        let besideTokens = try await keys.sign((1...2 * beside).map { "beside-\($0)" })
        let alone = try await client.steadily(beside, perSecond: Self.besidePerSecond) {
            try await client.restore(besideTokens[$0])
        }
        let reporting = try await reporting(client, keys)
        let events = Self.eventsPerSecond * seconds
        // Signed before they are sent: it is not the sender who is measured.
        let posts = (0..<events).map(Self.post)
        async let kept = client.steadily(events, perSecond: Self.eventsPerSecond) { try await client.event(posts[$0]) }
        let together = try await client.steadily(beside, perSecond: Self.besidePerSecond) {
            try await client.restore(besideTokens[beside + $0])
        }
        let times = try await kept
        let stored = try await database.number(
            "SELECT count(*) FROM entitlement_sync.inbox AS i WHERE i.event_id LIKE 'bench-%'"
        )
        guard stored == Int64(events) else {
            throw CommandFailure(.software, "\(stored) of \(events) events were kept")
        }
        return [
            BenchMeasurement("http_restore_p50_at_500/s", answers.percentile(50), "ms"),
            BenchMeasurement(
                "http_restore_p99_at_500/s",
                answers.percentile(99),
                "ms",
                below: Double(Self.storeMs + 25)
            ),
            BenchMeasurement("events_kept", Double(events) / Double(seconds), "events/s"),
            BenchMeasurement("event_p50", times.percentile(50), "ms"),
            BenchMeasurement("event_p99", times.percentile(99), "ms", below: 50),
            BenchMeasurement("restore_p50_alone", alone.percentile(50), "ms"),
            BenchMeasurement(
                "restore_p50_beside_events",
                together.percentile(50),
                "ms",
                below: 2 * alone.percentile(50)
            ),
            BenchMeasurement(
                "restore_p99_beside_events",
                together.percentile(99),
                "ms",
                below: 2 * alone.percentile(99)
            ),
        ] + reporting
    }

    /// How long it takes to answer a reported id with nothing to restore.
    private func reporting(_ client: BenchAPIClient, _ keys: BenchTokens) async throws -> [BenchMeasurement] {
        let tokens = try await keys.sign((1...2 * Self.reportedIDs).map { "reporting-\($0)" })
        @Sendable func report(_ index: Int, isKnown: Bool) async throws {
            let value = Self.reported(index + 1, isKnown: isKnown)
            try await client.restore(
                tokens[2 * index + (isKnown ? 0 : 1)],
                showing: #"{"proofs":[{"store":"app_store","kind":"transaction_id","value":"\#(value)"}]}"#,
                expecting: "nothing_to_restore"
            )
        }
        async let others = client.steadily(Self.reportedIDs, perSecond: 25) { try await report($0, isKnown: true) }
        let unknown = try await client.steadily(Self.reportedIDs, perSecond: 25) {
            try await report($0, isKnown: false)
        }
        let known = try await others
        return [
            BenchMeasurement("reported_id_known_p50", known.percentile(50), "ms"),
            BenchMeasurement("reported_id_unknown_p50", unknown.percentile(50), "ms"),
            // Three standard deviations: what chance alone gives once in 400 runs.
            BenchMeasurement("reported_ids_differ", abs(rankSum(known, unknown)), "sigma", below: 3),
        ]
    }

    /// The id of another user's purchase, or of none.
    private static func reported(_ number: Int, isKnown: Bool) -> String {
        "\(20_000_009_000_000 + number)" + (isKnown ? "0" : "5")
    }

    private static func post(_ index: Int) -> ByteBuffer {
        let now = Date().timeIntervalSince1970
        let body = Array(
            """
            {"api_version":"1.0","event":{"id":"bench-\(index)","type":"RENEWAL","event_timestamp_ms":\(Int64(now * 1000)),\
            "app_user_id":"event-\(index % eventUsers + 1)","environment":"PRODUCTION","entitlement_ids":["premium"],\
            "aliases":["event-\(index % eventUsers + 1)"],"product_id":"premium_monthly","store":"APP_STORE"}}
            """.utf8
        )
        let seconds = Int64(now)
        let code = HMAC<SHA256>.authenticationCode(
            for: Array("\(seconds).".utf8) + body,
            using: SymmetricKey(data: Data(webhookSecret.utf8))
        )
        let headers = [
            "Content-Type: application/json", "X-RevenueCat-Webhook-Signature: t=\(seconds),v1=" + Hex.encode(code),
        ]
        return BenchAPIClient.request("POST", "/v1/webhooks/revenuecat", headers, body)
    }
}
