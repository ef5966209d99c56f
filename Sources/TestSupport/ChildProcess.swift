package import Glibc

/// Runs programs for tests; blocking, so not for the cooperative pool.
package enum ChildProcess {
    package struct Failure: Error, CustomStringConvertible {
        package var description: String

        package init(description: String) { self.description = description }
    }

    /// Runs a program to its end.
    ///
    /// - Parameters:
    ///   - arguments: the program's path, then its arguments.
    ///   - log: the file that output is appended to.
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

    /// Starts a program and leaves it alone.
    ///
    /// - Parameters:
    ///   - arguments: the program's path, then its arguments.
    ///   - input: the descriptor that becomes its standard input; nil gives it none.
    ///   - output: the file that output is appended to.
    /// - Returns: the process's number.
    /// - Throws: `Failure` when the program cannot start.
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
        // This may be a thread that hears no signals; a shell that hears of no child's end waits for ever.
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

    /// Finds a program in `PATH`, then in further directories.
    package static func find(_ name: String, also directories: [String] = []) -> String? {
        let path = getenv("PATH").map { String(cString: $0) } ?? ""
        let all = path.split(separator: ":").map(String.init) + directories
        return all.map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
    }
}
