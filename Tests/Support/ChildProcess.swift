import Dispatch
package import Glibc

/// Runs programs for tests; blocking, so not for the cooperative pool.
package enum ChildProcess {
    package struct Failure: Error, CustomStringConvertible {
        package var description: String

        package init(description: String) { self.description = description }
    }

    /// Runs a program, whose path comes first, to its end; output is appended to the file `log`.
    ///
    /// - Throws: `Failure` with the end of the log when the program cannot start or does not end with 0.
    static func run(_ arguments: [String], log: String) throws {
        let pid = try start(arguments, output: log)
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0 {
            guard errno == EINTR else { throw Failure(description: "waitpid failed: \(errno)") }
        }
        guard status == 0 else {
            let text = (try? Files.read(log)) ?? ""
            throw Failure(description: "\(arguments.joined(separator: " ")) ended with \(status)\n\(text.suffix(2000))")
        }
    }

    /// Starts a program, whose path comes first, and leaves it alone; its standard input is the descriptor `input`, or
    /// none.
    ///
    /// - Returns: the process's number.
    @discardableResult
    package static func start(_ arguments: [String], input: Int32? = nil, output: String) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if let input {
            posix_spawn_file_actions_adddup2(&actions, input, 0)
        } else {
            posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        }
        posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_APPEND, 0o666)
        posix_spawn_file_actions_adddup2(&actions, 1, 2)
        // A server lives longer than much that this process has open, such as a lock on a build directory.
        // One that is closed meanwhile does no harm.
        for descriptor in Files.list("/proc/self/fd").compactMap({ Int32($0) }) where descriptor > 2 {
            posix_spawn_file_actions_addclose(&actions, descriptor)
        }
        // This thread may block signals; a shell that gets no signal of a child's end waits for ever.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))

        var pointers = arguments.map { strdup($0) } + [nil]
        defer { for pointer in pointers { free(pointer) } }
        var pid: pid_t = 0
        let failure = posix_spawn(&pid, arguments[0], &actions, &attributes, &pointers, environ)
        guard failure == 0 else { throw Failure(description: "\(arguments[0]) does not start: error \(failure)") }
        return pid
    }

    /// Starts a shell script whose standard input ends when this process does, however it goes: then it cleans up.
    ///
    /// - Returns: the shell's number, and the end of a pipe that only this process holds open.
    static func startGuardian(
        _ script: String,
        _ arguments: [String] = [],
        output: String = "/dev/null"
    ) throws -> (guardian: pid_t, lifeline: Int32) {
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { throw Failure(description: "pipe failed: \(errno)") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        defer { close(ends[0]) }
        // In a session of its own, so that what kills the tests' process group spares the shell.
        let session = find("setsid").map { [$0] } ?? []
        let command = session + ["/bin/sh", "-c", script, "sh"] + arguments
        do { return (try start(command, input: ends[0], output: output), ends[1]) } catch {
            close(ends[1])
            throw error
        }
    }

    /// Finds a program in `PATH`, then in further directories.
    package static func find(_ name: String, also directories: [String] = []) -> String? {
        let path = getenv("PATH").map { String(cString: $0) } ?? ""
        let all = path.split(separator: ":").map(String.init) + directories
        return all.map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
    }
}

extension DispatchQueue {
    /// Does work that blocks here, away from the cooperative pool, and waits for it.
    func run<Value: Sendable>(_ work: @escaping @Sendable () throws -> Value) async throws -> Value {
        try await withCheckedThrowingContinuation { continuation in
            async { continuation.resume(with: Result { try work() }) }
        }
    }
}
