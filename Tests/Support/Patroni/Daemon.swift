import Glibc
import Synchronization

/// A program that runs until it is killed, as the user of database servers; blocking, so not for the cooperative pool.
final class Daemon: Sendable {
    private let arguments: [String]
    private let log: String
    /// Lists every process that was started, to be ended when this one is gone.
    private let roll: String
    private let pid = Mutex<pid_t?>(nil)

    /// Makes one that does not run yet.
    init(_ program: String, _ arguments: [String] = [], variables: [String: String], log: String, roll: String) {
        let settings = variables.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
        self.arguments = ServerUser.prefix + ["/usr/bin/env"] + settings + [program] + arguments
        self.log = log
        self.roll = roll
    }

    func start() throws {
        try pid.withLock { pid in
            guard pid == nil else { return }
            let started = try ChildProcess.start(arguments, output: log)
            pid = started
            try Files.append("\(started)\n", to: roll)
        }
    }

    /// Kills it, and waits until it is gone.
    func kill() {
        pid.withLock { pid in
            guard let running = pid else { return }
            _ = Glibc.kill(running, SIGKILL)
            var status: Int32 = 0
            while waitpid(running, &status, 0) < 0, errno == EINTR {}
            pid = nil
        }
    }

    /// The last of what it said.
    var said: String { String(((try? Files.read(log)) ?? "").suffix(3000)) }
}
