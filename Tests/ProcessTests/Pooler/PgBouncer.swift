import Foundation
import Glibc
import TestSupport
import Testing

/// A PgBouncer in front of a test's server: transactions share a few sessions.
final class PgBouncer: Sendable {
    /// How many sessions with the server all clients of a database share.
    static let poolSize = 5

    let port: UInt16
    private let program: Program
    private let folder: String

    /// How to reach a database through it.
    func url(database: String) -> String { "host=127.0.0.1 port=\(port) user=postgres dbname='\(database)'" }

    /// Starts one on a free port; somebody may take the port first, so another is tried.
    ///
    /// - Parameters:
    ///   - server: the server behind it.
    ///   - resets: whether sessions are wiped after each transaction, and not only between clients.
    /// - Throws: when it is not installed, or does not start.
    init(before server: PrivatePostgres, resets: Bool) async throws {
        let binary = try #require(Self.find("pgbouncer"), "apt-get install pgbouncer")
        folder = try Self.makeFolder()
        var started: (Program, UInt16)?
        for _ in 0..<20 where started == nil {
            let port = freeLoopbackPort()
            let file = "\(folder)/pgbouncer.ini"
            try Self.configuration(port: port, server: server, resets: resets, folder: folder)
                .write(toFile: file, atomically: true, encoding: .utf8)
            try "\"postgres\" \"\"\n".write(toFile: "\(folder)/users.txt", atomically: true, encoding: .utf8)
            let program = try await Program(Self.identity + [binary, file], environment: Site.environment([:]))
            if try await Self.isServing(program) { started = (program, port) }
        }
        (program, port) = try #require(started, "no free port")
    }

    deinit { try? FileManager.default.removeItem(atPath: folder) }

    /// What it did, in its own words.
    var log: String { program.err }

    /// Waits until it listens; false when its port was taken meanwhile.
    private static func isServing(_ program: Program) async throws -> Bool {
        try await program.find("process up") {
            if program.err.contains("process up") { return true }
            return !program.isRunning && program.err.contains("Address already in use") ? false : nil
        }
    }

    /// Start-up parameters that a pooler cannot keep are refused, as by default: a client that sends one does not get in.
    private static func configuration(port: UInt16, server: PrivatePostgres, resets: Bool, folder: String) -> String {
        """
        [databases]
        * = host=127.0.0.1 port=\(server.port)
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = \(port)
        unix_socket_dir =
        auth_type = trust
        auth_file = \(folder)/users.txt
        pool_mode = transaction
        default_pool_size = \(poolSize)
        max_client_conn = 500
        server_reset_query = DISCARD ALL
        server_reset_query_always = \(resets ? 1 : 0)
        application_name_add_host = 1
        """
    }

    /// It refuses to run as root, so root lends it another user; the kernel's word to end with its parent comes last,
    /// for a change of user makes it forgotten.
    private static var identity: [String] {
        guard getuid() == 0,
            let user = ["postgres", "nobody"].first(where: { (name: String) in getpwnam(name) != nil }),
            let entry = getpwnam(user)
        else { return [] }
        return [
            "/usr/bin/setpriv", "--reuid=\(entry.pointee.pw_uid)", "--regid=\(entry.pointee.pw_gid)", "--init-groups",
            "--", "/usr/bin/setpriv", "--pdeathsig", "KILL", "--",
        ]
    }

    /// A folder that its user may read.
    private static func makeFolder() throws -> String {
        let folder = FileManager.default.temporaryDirectory.path + "/process-tests-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        guard chmod(folder, 0o755) == 0 else { throw Spawner.Failure(description: "chmod failed: \(errno)") }
        return folder
    }

    private static func find(_ name: String) -> String? {
        let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
        let folders = path.split(separator: ":").map(String.init) + ["/usr/sbin", "/usr/local/sbin"]
        return folders.map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
    }
}
