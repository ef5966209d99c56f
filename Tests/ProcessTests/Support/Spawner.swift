import Dispatch
import Foundation
import Glibc
import Synchronization

/// Starts processes that die with this one, however it goes.
///
/// The kernel tells a child of the death of the thread that started it, so one thread that never ends starts them all.
final class Spawner: Sendable {
    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    static let shared = Spawner()

    private let work = Mutex<[@Sendable () -> Void]>([])
    private let waiting = DispatchSemaphore(value: 0)

    private init() {
        Thread.detachNewThread { [self] in
            while true {
                waiting.wait()
                let next = work.withLock { $0.removeFirst() }
                next()
            }
        }
    }

    /// Starts a program.
    ///
    /// - Returns: its process number.
    /// - Throws: `Failure` when it does not start.
    func start(_ arguments: [String], environment: [String: String], out: String, err: String) async throws -> pid_t {
        try await withCheckedThrowingContinuation { continuation in
            work.withLock { work in
                work.append {
                    continuation.resume(
                        with: Result { try Self.spawn(arguments, environment: environment, out: out, err: err) }
                    )
                }
            }
            waiting.signal()
        }
    }

    private static func spawn(
        _ arguments: [String],
        environment: [String: String],
        out: String,
        err: String
    ) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, 1, out, O_WRONLY | O_CREAT | O_APPEND, 0o600)
        posix_spawn_file_actions_addopen(&actions, 2, err, O_WRONLY | O_CREAT | O_APPEND, 0o600)
        // Nothing else that this process has open, such as a lock on a build directory, may live on in it.
        // One that is closed meanwhile does no harm.
        let open = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
        for descriptor in open.compactMap({ Int32($0) }) where descriptor > 2 {
            posix_spawn_file_actions_addclose(&actions, descriptor)
        }

        // A shell that starts tests in the background has them ignore SIGINT, and children inherit that.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        for signal in [SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGHUP] { sigaddset(&signals, signal) }
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK))

        let all = ["/usr/bin/setpriv", "--pdeathsig", "KILL", "--"] + arguments
        var argumentPointers = all.map { strdup($0) } + [nil]
        var environmentPointers = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for pointer in argumentPointers + environmentPointers { free(pointer) } }
        var pid: pid_t = 0
        let failure = posix_spawn(&pid, all[0], &actions, &attributes, &argumentPointers, &environmentPointers)
        guard failure == 0 else { throw Failure(description: "\(arguments[0]) does not start: error \(failure)") }
        return pid
    }
}
