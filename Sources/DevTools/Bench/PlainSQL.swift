import Dispatch
import Foundation
import Postgres

/// The same write set as the worker's, in plain SQL: `pgbench` calls a procedure that does 500 jobs, on one connection.
struct PlainSQL {
    /// Jobs in one transaction.
    static let batch = 500

    var configuration: PostgresConfiguration

    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    /// Where `pgbench` is: on the `PATH`, or where Debian keeps the server's own programs.
    static let program: String? = {
        let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":").map(String.init)
        let debian = (15...30).map { "/usr/lib/postgresql/\($0)/bin" }
        return (folders + debian).map { "\($0)/pgbench" }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }()

    /// Does so many jobs.
    ///
    /// - Returns: jobs a second.
    func run(jobs: Int) async throws -> Double {
        guard let program = Self.program else {
            throw Failure(description: "pgbench was not found; install PostgreSQL's server or contrib package")
        }
        let script = FileManager.default.temporaryDirectory.appendingPathComponent("bench-\(UUID().uuidString).sql")
        try Data("CALL bench_batch(\(Self.batch));\n".utf8).write(to: script)
        defer { try? FileManager.default.removeItem(at: script) }
        let process = Process()
        process.executableURL = URL(fileURLWithPath: program)
        let rounds = (jobs + Self.batch - 1) / Self.batch
        process.arguments = ["-n", "-c", "1", "-j", "1", "-t", "\(rounds)", "-f", script.path]
        var environment = ProcessInfo.processInfo.environment
        // In the environment and not among the arguments, which everybody on the machine can read.
        environment.merge(try configuration.libpqEnvironment()) { $1 }
        process.environment = environment
        let output = Pipe()
        process.standardOutput = output
        process.standardError = FileHandle.nullDevice
        let text = try await withCheckedThrowingContinuation { (done: CheckedContinuation<String, any Error>) in
            DispatchQueue.global().async {
                do {
                    try process.run()
                    let data = output.fileHandleForReading.readDataToEndOfFile()
                    process.waitUntilExit()
                    done.resume(returning: String(decoding: data, as: UTF8.self))
                } catch {
                    done.resume(throwing: error)
                }
            }
        }
        let line = text.split(separator: "\n").first { $0.hasPrefix("tps = ") }
        guard process.terminationStatus == 0,
            let rate = line?.split(separator: " ").dropFirst(2).first.flatMap({ Double($0) })
        else { throw Failure(description: "pgbench ended with status \(process.terminationStatus)") }
        return rate * Double(jobs) / Double(rounds)
    }
}
