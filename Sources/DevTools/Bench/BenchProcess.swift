import Composition
import Configuring
import Dispatch
import Foundation

/// This program as a process of its own, in the bench's database.
struct BenchProcess {
    private let arguments: [String]
    private let environment: [String: String]

    /// Describes a process.
    ///
    /// - Parameters:
    ///   - runtime: where the database's server is.
    ///   - database: the database on it.
    ///   - arguments: the command.
    ///   - settings: the variables that it goes by, beside those of the bench's own process.
    init(runtime: Runtime, database: String, arguments: [String], settings: [String: String]) {
        var environment = ProcessInfo.processInfo.environment
        environment["DATABASE_URL"] = Self.url(runtime.config.database.url?.reveal(), in: database)
        environment["DATABASE_URL_FILE"] = nil
        environment["DATABASE_DIRECT_URL"] = nil
        environment.merge(settings) { $1 }
        self.arguments = arguments
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

    /// Starts it.
    ///
    /// - Returns: the process, and its log, which has to be read.
    func start() throws -> (Process, FileHandle) {
        let process = Process()
        let log = Pipe()
        process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
        process.arguments = arguments
        process.environment = environment
        process.standardError = log
        try process.run()
        return (process, log.fileHandleForReading)
    }

    /// Reads a log, away from the cooperative pool, until a line holds a text; what follows is read and thrown away.
    ///
    /// - Returns: the line; `nil` where the log ends before.
    func line(of log: FileHandle, containing text: String) async -> String? {
        let found = await withCheckedContinuation { (continuation: CheckedContinuation<String?, Never>) in
            DispatchQueue.global().async {
                var said = ""
                while true {
                    let data = log.availableData
                    guard !data.isEmpty else { return continuation.resume(returning: nil) }
                    said += String(decoding: data, as: UTF8.self)
                    let lines = said.split(separator: "\n", omittingEmptySubsequences: false).dropLast()
                    guard let line = lines.first(where: { $0.contains(text) }) else { continue }
                    return continuation.resume(returning: String(line))
                }
            }
        }
        log.readabilityHandler = { _ = $0.availableData }
        return found
    }

    /// The highest resident size so far, in MiB.
    static func peakMemory(of process: Process) throws -> Double {
        let status = try String(contentsOfFile: "/proc/\(process.processIdentifier)/status", encoding: .utf8)
        let peak = status.split(whereSeparator: \.isNewline).first { $0.hasPrefix("VmHWM:") }
        let kib = peak?.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Double($0) }
        guard let kib else { throw CommandFailure(.software, "the process's memory could not be read") }
        return kib / 1024
    }

    /// Asks it to end, and waits for that.
    func stop(_ process: Process) async {
        process.terminate()
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                process.waitUntilExit()
                continuation.resume()
            }
        }
    }
}
