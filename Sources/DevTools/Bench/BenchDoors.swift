import Composition
import Crypto
import Foundation
import Logging
import NIOCore
import Postgres
import StoreSimulator
import Synchronization

/// How long people wait for a restore over HTTP, and how fast stores' events are kept, with a server and worker in one
/// process of its own.
struct BenchDoors {
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
    private static let typedIDs = 1000
    private static let secret = "bench-webhook-secret-0123456789"

    /// Jobs of 90 days before: what a history costs is not seen in empty tables.
    private static let pastJobs = 300_000

    /// Restores before anything is measured: plans, connections and keys are those of a process that has run for a while.
    private static let warmUp = 600

    let database: BenchDatabase
    let runtime: Runtime
    /// How long each of the two is kept up.
    let seconds: Int

    /// Measures both.
    func measure() async throws -> [BenchMeasurement] {
        let users = Self.perSecond * seconds
        let beside = Self.besidePerSecond * seconds
        try await SampleHistory.load(Self.pastJobs, into: database.pool)
        try await database.load(users, prefix: "door-", queued: false)
        try await database.load(2 * beside, prefix: "beside-", queued: false)
        try await database.load(Self.typedIDs, prefix: "owner-", queued: false)
        try await database.load(2 * Self.typedIDs, prefix: "typing-", queued: false)
        try await database.load(Self.warmUp, prefix: "warm-", queued: false)
        try await database.load(Self.eventUsers, prefix: "event-", queued: false)
        try await database.settle()
        let store = try SimulatorProcess(
            prefixes: ["door-": users, "beside-": 2 * beside, "event-": Self.eventUsers, "warm-": Self.warmUp],
            purchases: Dictionary(
                uniqueKeysWithValues: (1...Self.typedIDs).map { (Self.typed($0, isThere: true), "owner-\($0)") }
            ),
            latencyMs: Self.storeMs
        )
        defer { store.stop() }
        let storePort = try await store.port()
        let keys = try StoreSimulator(scenario: try Scenario(yaml: "project: projbench\n"), logger: runtime.logger)
        let (ports, announce) = AsyncStream.makeStream(of: Int.self)
        return try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await keys.run { announce.yield($0) } }
            var keysPort = 0
            for await port in ports {
                keysPort = port
                break
            }
            let server = BenchProcess(
                runtime: runtime,
                database: database.name,
                arguments: ["run"],
                settings: Self.serving(keysPort).merging([
                    "REVENUECAT_API_KEY": "sk_bench", "REVENUECAT_PROJECT_ID": "projbench",
                    "REVENUECAT_BASE_URL": "http://127.0.0.1:\(storePort)/v2", "REVENUECAT_REQUESTS_PER_MINUTE": "0",
                ]) { $1 }
            )
            let (process, log) = try server.start()
            let result: Result<[BenchMeasurement], any Error>
            do {
                guard let port = await Self.port(of: server, log) else {
                    throw CommandFailure(.software, "the server did not start")
                }
                result = .success(try await measure(users, beside, port, keys))
            } catch { result = .failure(error) }
            await server.stop(process)
            let streams: Result<[BenchMeasurement], any Error>
            do { streams = .success(try await idle(keysPort, keys)) } catch { streams = .failure(error) }
            group.cancelAll()
            return try result.get() + streams.get()
        }
    }

    /// What open streams and polls cost a process that has nothing to tell them, and how fast it ends with them.
    private func idle(_ keysPort: Int, _ keys: StoreSimulator) async throws -> [BenchMeasurement] {
        let users = (1...Self.idleStreams).map { "stream-\($0)" }
        try await database.load(users.count, prefix: "stream-", queued: false)
        let server = BenchProcess(
            runtime: runtime,
            database: database.name,
            arguments: ["serve"],
            settings: Self.serving(keysPort)
        )
        let (process, log) = try server.start()
        guard let port = await Self.port(of: server, log) else {
            throw CommandFailure(.software, "the server did not start")
        }
        let client = BenchDoorClient(port: port, connections: users.count + 50, logger: runtime.logger)
        let result: Result<[BenchMeasurement], any Error>
        do {
            let tokens = try await tokens(users, keys)
            var jobs: [String] = []
            for token in tokens { jobs.append(try await client.accept(token)) }
            result = .success(
                try await client.waiting(for: zip(jobs, tokens).map { ($0, $1) }) {
                    try await Task.sleep(for: .seconds(6))
                    let memory = try BenchProcess.peakMemory(of: process)
                    let asked = ContinuousClock.now
                    await server.stop(process)
                    let took = (ContinuousClock.now - asked).milliseconds / 1000
                    return [
                        BenchMeasurement(name: "memory_2000_streams", value: memory, unit: "MiB", below: 150),
                        BenchMeasurement(name: "stop_with_2000_streams", value: took, unit: "s", below: 10),
                    ]
                }
            )
        } catch {
            await server.stop(process)
            result = .failure(error)
        }
        await client.shutdown()
        return try result.get()
    }

    static func port(of server: BenchProcess, _ log: FileHandle) async -> Int? {
        await server.line(of: log, containing: "serving the API listen.port=")
            .flatMap { $0.split(separator: "=").last }.flatMap { Int($0) }
    }

    /// How a process serves the API.
    static func serving(_ keysPort: Int) -> [String: String] {
        [
            "FIREBASE_PROJECT_ID": "demo-project",
            "FIREBASE_KEYS_URL": "http://127.0.0.1:\(keysPort)/google-keys/firebase", "HTTP_PORT": "0",
            "ADMIN_PORT": "0",
            "HTTP_REQUESTS_PER_MINUTE_PER_ADDRESS": "0", "HTTP_MAX_CONNECTIONS_PER_ADDRESS": "10000",
            "REVENUECAT_WEBHOOK_SECRET": secret, "LOG_LEVEL": "info",
        ]
    }

    private func measure(_ users: Int, _ beside: Int, _ port: Int, _ keys: StoreSimulator) async throws
        -> [BenchMeasurement]
    {
        let client = BenchDoorClient(port: port, logger: runtime.logger)
        do {
            let tokens = try await tokens((1...users).map { "door-\($0)" }, keys)
            let warm = try await self.tokens((1...Self.warmUp).map { "warm-\($0)" }, keys)
            _ = try await client.steadily(Self.warmUp, perSecond: 200) { try await client.restore(warm[$0]) }
            let answers = try await client.steadily(users, perSecond: Self.perSecond) {
                try await client.restore(tokens[$0])
            }
            let besideTokens = try await self.tokens((1...2 * beside).map { "beside-\($0)" }, keys)
            let alone = try await client.steadily(beside, perSecond: Self.besidePerSecond) {
                try await client.restore(besideTokens[$0])
            }
            let typing = try await typing(client, keys)
            let events = Self.eventsPerSecond * seconds
            // Signed before they are sent: it is not the sender who is measured.
            let posts = (0..<events).map(Self.post)
            async let kept = client.steadily(events, perSecond: Self.eventsPerSecond) {
                try await client.event(posts[$0])
            }
            let together = try await client.steadily(beside, perSecond: Self.besidePerSecond) {
                try await client.restore(besideTokens[beside + $0])
            }
            let times = try await kept
            let stored = try await database.pool.query(
                "SELECT count(*) FROM entitlement_sync.inbox AS i WHERE i.event_id LIKE 'bench-%'"
            )
            .first?.decode(Int64.self, at: 0)
            guard stored == Int64(events) else {
                throw CommandFailure(.software, "\(stored ?? 0) of \(events) events were kept")
            }
            await client.shutdown()
            let bound = Double(Self.storeMs + 25)
            return [
                BenchMeasurement(name: "http_restore_p50_at_500/s", value: answers.percentile(50), unit: "ms"),
                BenchMeasurement(
                    name: "http_restore_p99_at_500/s",
                    value: answers.percentile(99),
                    unit: "ms",
                    below: bound
                ),
                BenchMeasurement(name: "events_kept", value: Double(events) / Double(seconds), unit: "events/s"),
                BenchMeasurement(name: "event_p50", value: times.percentile(50), unit: "ms"),
                BenchMeasurement(name: "event_p99", value: times.percentile(99), unit: "ms", below: 50),
                BenchMeasurement(name: "restore_p50_alone", value: alone.percentile(50), unit: "ms"),
                BenchMeasurement(
                    name: "restore_p50_beside_events",
                    value: together.percentile(50),
                    unit: "ms",
                    below: 2 * alone.percentile(50)
                ),
                BenchMeasurement(
                    name: "restore_p99_beside_events",
                    value: together.percentile(99),
                    unit: "ms",
                    below: 2 * alone.percentile(99)
                ),
            ] + typing
        } catch {
            await client.shutdown()
            throw error
        }
    }

    /// How long it takes to answer a reported id with nothing to restore.
    private func typing(_ client: BenchDoorClient, _ keys: StoreSimulator) async throws -> [BenchMeasurement] {
        let tokens = try await tokens((1...2 * Self.typedIDs).map { "typing-\($0)" }, keys)
        @Sendable func type(_ index: Int, isThere: Bool) async throws {
            let value = Self.typed(index + 1, isThere: isThere)
            try await client.restore(
                tokens[2 * index + (isThere ? 0 : 1)],
                showing: #"{"proofs":[{"store":"app_store","kind":"transaction_id","value":"\#(value)"}]}"#,
                expecting: "nothing_to_restore"
            )
        }
        async let there = client.steadily(Self.typedIDs, perSecond: 25) { try await type($0, isThere: true) }
        let nobodys = try await client.steadily(Self.typedIDs, perSecond: 25) { try await type($0, isThere: false) }
        let somebodys = try await there
        return [
            BenchMeasurement(name: "typed_id_of_somebody_p50", value: somebodys.percentile(50), unit: "ms"),
            BenchMeasurement(name: "typed_id_of_nobody_p50", value: nobodys.percentile(50), unit: "ms"),
            // Three standard deviations: what chance alone gives once in 400 runs.
            BenchMeasurement(
                name: "typed_ids_told_apart",
                value: abs(rankSum(somebodys, nobodys)),
                unit: "sigma",
                below: 3
            ),
        ]
    }

    private static func typed(_ number: Int, isThere: Bool) -> String {
        "\(20_000_009_000_000 + number)" + (isThere ? "0" : "5")
    }

    /// Signed by as many tasks as there are cores, before anything is measured.
    private func tokens(_ users: [String], _ keys: StoreSimulator) async throws -> [String] {
        let lanes = 4
        let expiry = Int64(Date().timeIntervalSince1970) + 3600
        return try await withThrowingTaskGroup(of: [(Int, String)].self) { group in
            for lane in 0..<lanes {
                group.addTask {
                    try stride(from: lane, to: users.count, by: lanes).map { index in
                        var request = FirebaseTokenRequest(subject: users[index])
                        request.expiresAt = expiry
                        return (index, try keys.firebaseToken(request))
                    }
                }
            }
            var tokens = [String](repeating: "", count: users.count)
            for try await signed in group { for (index, token) in signed { tokens[index] = token } }
            return tokens
        }
    }

    private static func hex(_ bytes: some Sequence<UInt8>) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
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
            using: SymmetricKey(data: Data(secret.utf8))
        )
        let headers = [
            "Content-Type: application/json", "X-RevenueCat-Webhook-Signature: t=\(seconds),v1=" + hex(code),
        ]
        return BenchDoorClient.request("POST", "/v1/webhooks/revenuecat", headers, body)
    }
}
