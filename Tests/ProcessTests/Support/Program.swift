import Foundation
import Glibc
import Synchronization
import Testing

/// A process that a test started, its output in files; gone at the latest when nobody holds this value any more.
final class Program: Sendable {
    /// How a process ended, and all that it said.
    struct Ending: Sendable, CustomStringConvertible {
        /// The exit code; nil when a signal ended it.
        var code: Int32?
        /// The signal that ended it.
        var signal: Int32?
        var out: String
        var err: String
        var took: Duration

        var description: String {
            "code \(code.map { "\($0)" } ?? "-"), signal \(signal.map { "\($0)" } ?? "-"), \(took)\nout: \(out.suffix(1500))\nerr: \(err.suffix(3000))"
        }
    }

    struct TookTooLong: Error, CustomStringConvertible {
        var description: String
    }

    let pid: pid_t
    private let folder: URL
    private let life: Life
    private let started = ContinuousClock.now
    private let name: String

    /// Starts a program.
    ///
    /// - Parameters:
    ///   - arguments: the program's path, then its arguments.
    ///   - environment: all of its environment.
    /// - Throws: `Spawner.Failure` when it does not start.
    init(_ arguments: [String], environment: [String: String]) async throws {
        name = arguments.dropFirst().joined(separator: " ")
        folder = FileManager.default.temporaryDirectory.appendingPathComponent("process-tests-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let (out, err) = (folder.path + "/out", folder.path + "/err")
        pid = try await Spawner.shared.start(arguments, environment: environment, out: out, err: err)
        life = Life(pid: pid)
        life.watch()
    }

    deinit {
        life.signal(SIGKILL)
        try? FileManager.default.removeItem(at: folder)
    }

    /// What it has said so far.
    var out: String { read("out") }
    var err: String { read("err") }
    var isRunning: Bool { life.isRunning }

    /// The lines of its log so far; the last one may be half written, and is left out until it is whole.
    var log: [Substring] {
        let said = err
        return said.split(separator: "\n").dropLast(said.hasSuffix("\n") ? 0 : 1)
    }

    /// Waits for something that it says or does; nothing signals that, so this asks again and again while it runs.
    ///
    /// - Parameters:
    ///   - what: names it in the failure's text.
    ///   - limit: how long to wait.
    ///   - sourceLocation: where the failure is shown.
    ///   - attempt: finds it; `nil`: it is not there yet.
    /// - Returns: what was found.
    /// - Throws: what the attempt threw; a failure with the output when the program ends first, or the time is over.
    @discardableResult
    func find<Value>(
        _ what: String,
        within limit: Duration = .seconds(60),
        sourceLocation: SourceLocation = #_sourceLocation,
        _ attempt: () async throws -> Value?
    ) async throws -> Value {
        let deadline = ContinuousClock.now + limit
        while true {
            // Asked before the attempt, which then reads the last words of a program that has ended.
            let mayFollow = isRunning
            if let value = try await attempt() { return value }
            try #require(
                mayFollow && ContinuousClock.now < deadline,
                "never came: \(what)\nout: \(out.suffix(1500))\nerr: \(err.suffix(3000))",
                sourceLocation: sourceLocation
            )
            try await Task.sleep(for: .milliseconds(10))
        }
    }

    /// Waits until its log holds a text.
    func find(
        _ text: String,
        within limit: Duration = .seconds(60),
        sourceLocation: SourceLocation = #_sourceLocation
    ) async throws {
        try await find(text, within: limit, sourceLocation: sourceLocation) { err.contains(text) ? text : nil }
    }

    /// Sends a signal; a process that has ended hears nothing.
    func signal(_ number: Int32) { life.signal(number) }

    /// Tells it to stop, which has to go well.
    @discardableResult
    func stop(sourceLocation: SourceLocation = #_sourceLocation) async throws -> Ending {
        signal(SIGTERM)
        let ending = try await ending()
        #expect(ending.code == 0, "\(ending)", sourceLocation: sourceLocation)
        return ending
    }

    /// Kills it, which has to find it alive.
    @discardableResult
    func kill(sourceLocation: SourceLocation = #_sourceLocation) async throws -> Ending {
        signal(SIGKILL)
        let ending = try await ending()
        #expect(
            ending.signal == SIGKILL,
            "it had ended before it was killed: \(ending)",
            sourceLocation: sourceLocation
        )
        return ending
    }

    /// Waits until it has ended.
    ///
    /// - Throws: `TookTooLong` with what it said; it is killed then.
    func ending(within limit: Duration = .seconds(60)) async throws -> Ending {
        let isLate = await withTaskGroup(of: Bool.self) { group in
            group.addTask { [life] in
                await life.end()
                return false
            }
            group.addTask { [life] in
                guard (try? await Task.sleep(for: limit)) != nil else { return false }
                life.signal(SIGKILL)
                return true
            }
            let first = await group.next() ?? false
            group.cancelAll()
            return first
        }
        let (status, at) = await life.end()
        let hasExited = status & 0x7f == 0
        let ending = Ending(
            code: hasExited ? status >> 8 & 0xff : nil,
            signal: hasExited ? nil : status & 0x7f,
            out: out,
            err: err,
            took: at - started
        )
        guard !isLate else { throw TookTooLong(description: "\(name) has not ended after \(limit): \(ending)") }
        return ending
    }

    private func read(_ file: String) -> String {
        let data = FileManager.default.contents(atPath: folder.appendingPathComponent(file).path) ?? Data()
        return String(decoding: data, as: UTF8.self)
    }
}

/// The life of one process, until its end is known to all who wait for it.
private final class Life: Sendable {
    private struct State {
        var end: (status: Int32, at: ContinuousClock.Instant)?
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    private let pid: pid_t
    private let state = Mutex(State())

    init(pid: pid_t) { self.pid = pid }

    var isRunning: Bool { state.withLock { $0.end == nil } }

    func signal(_ number: Int32) {
        // Under the lock, so that the number is never another process's.
        state.withLock { state in
            if state.end == nil { _ = kill(pid, number) }
        }
    }

    /// Waits for the end in a thread of its own.
    func watch() {
        Thread.detachNewThread { [self] in
            var info = siginfo_t()
            while waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT) < 0, errno == EINTR {}
            let waiting = state.withLock { state in
                var status: Int32 = 0
                _ = waitpid(pid, &status, 0)
                state.end = (status, .now)
                defer { state.waiting = [] }
                return state.waiting
            }
            for continuation in waiting { continuation.resume() }
        }
    }

    @discardableResult
    func end() async -> (status: Int32, at: ContinuousClock.Instant) {
        while true {
            if let end = state.withLock({ $0.end }) { return end }
            await withCheckedContinuation { continuation in
                let hasEnded = state.withLock { state in
                    if state.end == nil { state.waiting.append(continuation) }
                    return state.end != nil
                }
                if hasEnded { continuation.resume() }
            }
        }
    }
}
