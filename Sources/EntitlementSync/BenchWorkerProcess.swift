import Bench
import Configuring
import Dispatch
import Foundation

/// A worker as a process of its own, in the bench's database.
struct BenchWorkerProcess {
    private let environment: [String: String]

    /// `storePort`: where the simulator listens.
    init(runtime: Runtime, database: String, storePort: Int) {
        var environment = ProcessInfo.processInfo.environment
        environment["DATABASE_URL"] = Self.url(runtime.config.database.url?.reveal(), in: database)
        environment["DATABASE_URL_FILE"] = nil
        environment["DATABASE_DIRECT_URL"] = nil
        environment["REVENUECAT_API_KEY"] = "sk_bench"
        environment["REVENUECAT_PROJECT_ID"] = "projbench"
        environment["REVENUECAT_BASE_URL"] = "http://127.0.0.1:\(storePort)/v2"
        environment["REVENUECAT_REQUESTS_PER_MINUTE"] = "600"
        environment["LOG_LEVEL"] = "info"
        self.environment = environment
    }

    /// The same server, another database; of several settings of a name libpq takes the last.
    private static func url(_ url: String?, in database: String) -> String {
        guard let url else { return "dbname='\(database)'" }
        guard url.hasPrefix("postgres"), var parts = URLComponents(string: url) else {
            return url + " dbname='\(database)'"
        }
        parts.path = "/" + database
        return parts.string ?? url
    }

    /// The time from the start of the process to its lease, in milliseconds; the best of five.
    func startUp() async throws -> Double {
        var best = Double.infinity
        for _ in 0..<5 {
            let started = ContinuousClock.now
            let (process, log) = try start()
            let ready = await line(of: log, containing: "working")
            let elapsed = (ContinuousClock.now - started).milliseconds
            await stop(process)
            guard ready else { throw CommandFailure(.software, "the worker did not start") }
            best = min(best, elapsed)
        }
        return best
    }

    /// The highest resident size of a worker that has run for a while, in MiB.
    func memory(after time: Duration) async throws -> Double {
        let (process, log) = try start()
        log.readabilityHandler = { _ = $0.availableData }
        try await Task.sleep(for: time)
        let status = try String(contentsOfFile: "/proc/\(process.processIdentifier)/status", encoding: .utf8)
        await stop(process)
        let peak = status.split(whereSeparator: \.isNewline).first { $0.hasPrefix("VmHWM:") }
        let kib = peak?.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Double($0) }
        guard let kib else { throw CommandFailure(.software, "the worker's memory could not be read") }
        return kib / 1024
    }

    private func start() throws -> (Process, FileHandle) {
        let process = Process()
        let log = Pipe()
        process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
        process.arguments = ["worker"]
        process.environment = environment
        process.standardError = log
        try process.run()
        return (process, log.fileHandleForReading)
    }

    /// Reads a log, away from the cooperative pool, until a line holds a word or the log ends.
    private func line(of log: FileHandle, containing word: String) async -> Bool {
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                var text = ""
                while true {
                    let data = log.availableData
                    guard !data.isEmpty else { return continuation.resume(returning: false) }
                    text += String(decoding: data, as: UTF8.self)
                    guard !text.contains(word) else { return continuation.resume(returning: true) }
                }
            }
        }
    }

    private func stop(_ process: Process) async {
        process.terminate()
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                process.waitUntilExit()
                continuation.resume()
            }
        }
    }
}
