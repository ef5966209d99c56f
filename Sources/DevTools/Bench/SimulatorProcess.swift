import Composition
import Foundation
import NIOCore
import StoreSimulator

/// The simulator as a process of its own, so that its work is not hidden in ours.
final class SimulatorProcess {
    private let process = Process()
    private let output = Pipe()
    private let scenario: URL

    /// Starts a simulator whose customers have an active subscription, or are `without`: by what their ids begin with,
    /// how many.
    ///
    /// `purchases` are further customers by the App Store's ids of their purchases; `perMinute` 0: any number of
    /// requests.
    init(
        prefixes: [String: Int],
        without: [String: Int] = [:],
        perMinute: Int = 0,
        purchases: [String: String] = [:],
        latencyMs: Int = 0
    ) throws {
        scenario = FileManager.default.temporaryDirectory.appendingPathComponent(
            "entitlement-sync-\(UUID().uuidString).yaml"
        )
        let customers = [(prefixes, "active"), (without, "none")].flatMap { (counts, state) in
            counts.sorted { $0.key < $1.key }.map {
                "  - {id: \"\($0.key){n}\", from: 1, count: \($0.value), state: \(state)}\n"
            }
        }
        let owners = purchases.sorted { $0.key < $1.key }.map {
            "  - {id: \"\($0.value)\", subscriptions: [{state: active, store_subscription_identifier: \"\($0.key)\"}]}\n"
        }
        let text =
            "project: projbench\nrate_limit_per_minute: \(perMinute)\ngenerate:\n" + customers.joined()
            + (owners.isEmpty ? "" : "customers:\n" + owners.joined())
            + (latencyMs > 0 ? "faults: [{latency: \(latencyMs)ms}]\n" : "")
        try text.write(to: scenario, atomically: true, encoding: .utf8)
        process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
        process.arguments = ["simulate", "--port", "0", "--scenario", scenario.path]
        process.standardOutput = output
        try process.run()
    }

    private var knownPort: Int?

    /// The port it listens on, read from its first line.
    func port() async throws -> Int {
        if let knownPort { return knownPort }
        let handle = output.fileHandleForReading
        let line = await awayFromPool { String(decoding: handle.availableData, as: UTF8.self) }
        guard let port = line.split(whereSeparator: \.isWhitespace).last.flatMap({ Int($0) }) else {
            throw CommandFailure(.software, "the simulator did not start")
        }
        knownPort = port
        return port
    }

    /// The most requests within any sixty seconds, and how many it refused as too many.
    func load() async throws -> (busiest: Int, refused: Int) {
        struct Report: Decodable {
            var busiestMinute: Int
            var byStatus: [String: Int]
        }
        let client = LeanHTTPClient(port: try await port(), most: 1)
        let answer = try await cleaningUp({ await client.shutdown() }) {
            try await client.send(BenchAPIClient.request("GET", "/control/requests", []))
        }
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        let report = try decoder.decode(Report.self, from: Data(answer.body.readableBytesView))
        return (report.busiestMinute, report.byStatus["429"] ?? 0)
    }

    func stop() {
        process.terminate()
        process.waitUntilExit()
        try? FileManager.default.removeItem(at: scenario)
    }
}

/// A simulator in this process that signs users' ID tokens, and serves the keys to check them with.
struct BenchTokens {
    private let simulator: StoreSimulator
    private let port: Int

    /// Serves the keys as long as a body runs.
    static func with<Value>(_ runtime: Runtime, _ body: (BenchTokens) async throws -> Value) async throws -> Value {
        let simulator = try StoreSimulator(scenario: Scenario(yaml: "project: projbench\n"), logger: runtime.logger)
        let (ports, announce) = AsyncStream.makeStream(of: Int.self)
        return try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await simulator.run { announce.yield($0) } }
            defer { group.cancelAll() }
            let port = await ports.first { _ in true } ?? 0
            return try await body(BenchTokens(simulator: simulator, port: port))
        }
    }

    /// How a process serves the API to users with these tokens.
    var serving: [String: String] {
        [
            "FIREBASE_PROJECT_ID": "demo-project",
            "FIREBASE_KEYS_URL": "http://127.0.0.1:\(port)/google-keys/firebase", "HTTP_PORT": "0", "ADMIN_PORT": "0",
            "HTTP_REQUESTS_PER_MINUTE_PER_ADDRESS": "0", "HTTP_MAX_CONNECTIONS_PER_ADDRESS": "10000",
            "REVENUECAT_WEBHOOK_SECRET": BenchHTTP.webhookSecret, "LOG_LEVEL": "info",
        ]
    }

    /// Signs tokens, in several tasks; to be done before anything is measured.
    func sign(_ users: [String], hours: Int64 = 1) async throws -> [String] {
        let lanes = 4
        let expiry = Int64(Date().timeIntervalSince1970) + hours * 3600
        return try await withThrowingTaskGroup(of: [(Int, String)].self) { group in
            for lane in 0..<lanes {
                group.addTask {
                    try stride(from: lane, to: users.count, by: lanes).map { index in
                        var request = FirebaseTokenRequest(subject: users[index])
                        request.expiresAt = expiry
                        return (index, try simulator.firebaseToken(request))
                    }
                }
            }
            var tokens = [String](repeating: "", count: users.count)
            for try await signed in group { for (index, token) in signed { tokens[index] = token } }
            return tokens
        }
    }
}
