import Glibc

/// The files and the process of one private server; blocking, so not for the cooperative pool.
///
/// A value without state of its own: the data directory is the state.
struct PostgresCluster: Sendable {
    /// Holds socket and logs, and what is not elsewhere; removed at the end.
    let directory: String
    /// The loopback port; also in the socket's name.
    let port: UInt16
    private let binaries: String
    /// Where the data is, in memory if possible; removed at the end.
    private let home: String
    private var data: String { "\(home)/data" }
    private var log: String { "\(directory)/server.log" }
    private var toolLog: String { "\(directory)/tools.log" }

    /// Creates a cluster that is still stopped; `settings` come beside those that make a test server fast.
    init(settings: [String: String], options: [String] = []) throws {
        binaries = try Self.findBinaries()
        let initdb = "\(binaries)/initdb"
        directory = try Files.makeTemporaryDirectory()
        home = try Files.memory.map { try Files.makeTemporaryDirectory(in: $0) } ?? directory
        port = freeLoopbackPort()
        try handOver(directory)
        try handOver(home)
        try runAsServerUser(
            [
                initdb, "--pgdata=\(data)", "--username=postgres", "--auth=trust", "--encoding=UTF8",
                "--locale=C.UTF-8", "--no-sync",
                // It may grow to gigabytes.
                "--waldir=\(directory)/wal",
            ] + options
        )
        var all = [
            "port": "\(port)", "listen_addresses": "'127.0.0.1'", "unix_socket_directories": "'\(directory)'",
            "max_connections": "600", "shared_buffers": "'256MB'", "fsync": "off", "full_page_writes": "off",
            // A test's statements run too seldom to be worth compiling.
            "jit": "off",
            // It visits each of a few hundred databases that live for seconds.
            "autovacuum": "off",
            "timezone": "'UTC'", "log_min_messages": "warning", "max_wal_size": "'4GB'",
        ]
        all.merge(settings) { $1 }
        let lines = all.sorted { $0.key < $1.key }.map { "\($0.key) = \($0.value)\n" }
        try Files.append(lines.joined(), to: "\(data)/postgresql.conf")
        // Members of this role (made by the tests that need it) must prove their password over TCP.
        let rules = "host all +password_required 127.0.0.1/32 scram-sha-256\n" + (try Files.read("\(data)/pg_hba.conf"))
        Files.remove("\(data)/pg_hba.conf")
        try Files.append(rules, to: "\(data)/pg_hba.conf")
        try handOver("\(data)/pg_hba.conf")
        try startWatchdog()
    }

    /// Creates a stopped standby that streams from a running server, under the name `standby`.
    init(standbyOf primary: PostgresCluster) throws {
        binaries = primary.binaries
        directory = try Files.makeTemporaryDirectory()
        home = directory
        port = freeLoopbackPort()
        try handOver(directory)
        try runAsServerUser([
            "\(binaries)/pg_basebackup", "--pgdata=\(data)", "--write-recovery-conf", "--checkpoint=fast", "--no-sync",
            "--dbname=host=\(primary.directory) port=\(primary.port) user=postgres application_name=standby",
        ])
        try Files.append("port = \(port)\nunix_socket_directories = '\(directory)'\n", to: "\(data)/postgresql.conf")
        try startWatchdog()
    }

    func program(_ name: String) -> String { "\(binaries)/\(name)" }

    func promote() throws { try pgctl(["promote", "--timeout=60"]) }

    func start() throws {
        do { try pgctl(["start", "--log=\(log)", "--timeout=60"]) } catch {
            // pg_ctl only names the log.
            throw ChildProcess.Failure(description: "\(error)\n\(((try? Files.read(log)) ?? "").suffix(2000))")
        }
    }

    /// Whether the server's process is there; its number stays behind when it dies.
    var isRunning: Bool {
        let first = (try? Files.read("\(data)/postmaster.pid"))?.split(separator: "\n").first
        return first.flatMap { pid_t($0) }.map { kill($0, 0) == 0 } ?? false
    }

    func stop(immediately: Bool) throws { try pgctl(["stop", "--mode=\(immediately ? "immediate" : "fast")"]) }

    private func pgctl(_ arguments: [String]) throws {
        try runAsServerUser(["\(binaries)/pg_ctl", "--pgdata=\(data)", "--wait", "--silent"] + arguments)
    }

    /// Starts a process that ends the server and removes its files when this process is gone, however it went.
    private func startWatchdog() throws {
        let script = """
            trap '' HUP INT TERM
            read -r _
            pid=$(head -n 1 '\(data)/postmaster.pid' 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null
            for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
            rm -rf '\(directory)' '\(home)'
            """
        // The write end stays open until this process ends.
        _ = try ChildProcess.startGuardian(script)
    }

    private func runAsServerUser(_ arguments: [String]) throws {
        try ChildProcess.run(ServerUser.prefix + arguments, log: toolLog)
    }

    private func handOver(_ path: String) throws {
        guard ServerUser.name != nil else { return }
        try ServerUser.own(path)
        // Tools run as that user append to a log that root may have begun.
        Files.remove(toolLog)
    }

    /// The folder of the server's programs.
    static func findBinaries() throws -> String {
        let root = "/usr/lib/postgresql"
        let versions = Files.list(root).sorted { (Int($0) ?? 0) > (Int($1) ?? 0) }
        guard let initdb = ChildProcess.find("initdb", also: versions.map { "\(root)/\($0)/bin" }) else {
            throw ChildProcess.Failure(description: "no PostgreSQL server is installed (initdb was not found)")
        }
        // What the PATH has may be a link, with only some of its siblings beside it.
        guard let real = realpath(initdb, nil) else { return String(initdb.dropLast("/initdb".count)) }
        defer { free(real) }
        return String(String(cString: real).dropLast("/initdb".count))
    }
}
