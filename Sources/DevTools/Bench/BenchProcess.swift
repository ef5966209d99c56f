import Composition
import Configuring
import Dispatch
import Foundation

/// This program as a process of its own, in the bench's database.
struct BenchProcess {
    private let process: Process
    private let log: FileHandle

    /// Runs a command as long as a body does, which has to read the log; `settings` come before the bench's own
    /// variables.
    static func running<Value>(
        _ command: String,
        _ database: BenchDatabase,
        _ runtime: Runtime,
        _ settings: [String: String],
        _ body: (BenchProcess) async throws -> Value
    ) async throws -> Value {
        let (process, log) = (Process(), Pipe())
        var environment = ProcessInfo.processInfo.environment
        environment["DATABASE_URL"] = url(runtime.config.database.url?.reveal(), in: database.name)
        environment["DATABASE_URL_FILE"] = nil
        environment["DATABASE_DIRECT_URL"] = nil
        process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
        process.arguments = [command]
        process.environment = environment.merging(settings) { $1 }
        process.standardError = log
        try process.run()
        let running = BenchProcess(process: process, log: log.fileHandleForReading)
        return try await cleaningUp({ await running.stop() }) {
            try await body(running)
        }
    }

    /// The variables of a worker whose only store is RevenueCat.
    static func revenueCat(_ port: Int, perMinute: Int, logLevel: String = "warning") -> [String: String] {
        [
            "REVENUECAT_API_KEY": "sk_bench", "REVENUECAT_PROJECT_ID": "projbench",
            "REVENUECAT_BASE_URL": "http://127.0.0.1:\(port)/v2", "REVENUECAT_REQUESTS_PER_MINUTE": "\(perMinute)",
            // A background check that happens to be due would promote a user before the restore that is measured.
            "BACKGROUND_CHECK_DAYS": "0", "LOG_LEVEL": logLevel,
        ]
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

    /// Reads the log until a line holds a text; what follows is read and thrown away.
    ///
    /// - Returns: the line; `nil` where the log ends before.
    func line(containing text: String) async -> String? {
        let found: String? = await awayFromPool { [log] in
            var said = ""
            while true {
                let data = log.availableData
                guard !data.isEmpty else { return nil }
                said += String(decoding: data, as: UTF8.self)
                let lines = said.split(separator: "\n", omittingEmptySubsequences: false).dropLast()
                if let line = lines.first(where: { $0.contains(text) }) { return String(line) }
            }
        }
        discardLog()
        return found
    }

    func discardLog() { log.readabilityHandler = { _ = $0.availableData } }

    /// Where it serves the API, as its log says.
    func port() async throws -> Int {
        let line = await line(containing: "serving the API listen.port=")
        guard let port = line?.split(separator: "=").last.flatMap({ Int($0) }) else {
            throw CommandFailure(.software, "the server did not start")
        }
        return port
    }

    /// The highest resident size so far, in MiB.
    func peakMemory() throws -> Double {
        let status = try String(contentsOfFile: "/proc/\(process.processIdentifier)/status", encoding: .utf8)
        let peak = status.split(whereSeparator: \.isNewline).first { $0.hasPrefix("VmHWM:") }
        let kib = peak?.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Double($0) }
        guard let kib else { throw CommandFailure(.software, "the process's memory could not be read") }
        return kib / 1024
    }

    /// Asks it to end, and waits for that.
    func stop() async {
        if process.isRunning { process.terminate() }
        await awayFromPool { [process] in process.waitUntilExit() }
    }
}

/// Does work that blocks, away from the cooperative pool.
func awayFromPool<Value: Sendable>(_ work: @escaping @Sendable () -> Value) async -> Value {
    await withCheckedContinuation { done in
        DispatchQueue.global().async { done.resume(returning: work()) }
    }
}
