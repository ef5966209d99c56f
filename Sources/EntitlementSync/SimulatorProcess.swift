import Dispatch
import Foundation

/// The simulator as a process of its own, so that its work is not hidden in ours.
final class SimulatorProcess {
    private let process = Process()
    private let output = Pipe()
    private let scenario: URL

    /// Starts a simulator whose customers all have an active subscription.
    ///
    /// - Parameters:
    ///   - prefixes: what their ids begin with, and how many there are of each.
    ///   - purchases: further customers by the App Store's ids of their purchases.
    ///   - latencyMs: how long each answer takes.
    /// - Throws: what the system does.
    init(prefixes: [String: Int], purchases: [String: String] = [:], latencyMs: Int = 0) throws {
        scenario = FileManager.default.temporaryDirectory.appendingPathComponent(
            "entitlement-sync-\(UUID().uuidString).yaml"
        )
        let customers = prefixes.sorted { $0.key < $1.key }.map {
            "  - {id: \"\($0.key){n}\", from: 1, count: \($0.value), state: active}\n"
        }
        let owners = purchases.sorted { $0.key < $1.key }.map {
            "  - {id: \"\($0.value)\", subscriptions: [{state: active, store_subscription_identifier: \"\($0.key)\"}]}\n"
        }
        let text =
            "project: projbench\nrate_limit_per_minute: 0\ngenerate:\n" + customers.joined()
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

    func stop() {
        process.terminate()
        process.waitUntilExit()
        try? FileManager.default.removeItem(at: scenario)
    }
}
