import Composition
import Dispatch
import Foundation
import NIOCore

/// The simulator as a process of its own, so that its work is not hidden in ours.
final class SimulatorProcess {
    private let process = Process()
    private let output = Pipe()
    private let scenario: URL

    /// Starts a simulator whose customers have an active subscription.
    ///
    /// - Parameters:
    ///   - prefixes: what their ids begin with, and how many there are of each.
    ///   - without: the same of customers without a purchase.
    ///   - perMinute: requests a minute that it answers; 0: any number.
    ///   - purchases: further customers by the App Store's ids of their purchases.
    ///   - latencyMs: how long each answer takes.
    /// - Throws: what the system does.
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

    /// The port it listens on, read from its first line, away from the cooperative pool.
    func port() async throws -> Int {
        if let knownPort { return knownPort }
        let handle = output.fileHandleForReading
        let line = await withCheckedContinuation { (continuation: CheckedContinuation<String, Never>) in
            DispatchQueue.global().async {
                continuation.resume(returning: String(decoding: handle.availableData, as: UTF8.self))
            }
        }
        guard let port = line.split(whereSeparator: \.isWhitespace).last.flatMap({ Int($0) }) else {
            throw CommandFailure(.software, "the simulator did not start")
        }
        knownPort = port
        return port
    }

    /// What it was asked.
    ///
    /// - Returns: the most requests within any sixty seconds, and how many it refused as too many.
    /// - Throws: what keeps it from being asked, and `DecodingError`.
    func load() async throws -> (busiest: Int, refused: Int) {
        let client = LeanHTTPClient(port: try await port(), most: 1)
        let answer: Result<LeanHTTPClient.Answer, any Error>
        do { answer = .success(try await client.send(BenchDoorClient.request("GET", "/control/requests", []))) } catch {
            answer = .failure(error)
        }
        await client.shutdown()
        let report = try JSONDecoder().decode(Report.self, from: Data(try answer.get().body.readableBytesView))
        return (report.busiestMinute, report.byStatus["429"] ?? 0)
    }

    private struct Report: Decodable {
        var busiestMinute: Int
        var byStatus: [String: Int]

        enum CodingKeys: String, CodingKey {
            case busiestMinute = "busiest_minute"
            case byStatus = "by_status"
        }
    }

    func stop() {
        process.terminate()
        process.waitUntilExit()
        try? FileManager.default.removeItem(at: scenario)
    }
}
