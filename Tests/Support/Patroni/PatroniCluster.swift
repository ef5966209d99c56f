import Dispatch
import Glibc
import Postgres
import Testing

/// Three PostgreSQL servers under Patroni, and three members of etcd, as ordinary processes on loopback.
///
/// They are configured by deploy/patroni as it is; what differs from server to server stands in the environment.
package final class PatroniCluster: Sendable {
    private static let queue = DispatchQueue(label: "test.patroni", attributes: .concurrent)
    private static let configuration = Files.packageFolder + "/deploy/patroni"
    private static let password = "test"

    private let isSynchronous: Bool
    private let directory: String
    private let etcd: [Daemon]
    private let etcdPorts: [UInt16]
    private let members: [PatroniMember]
    /// Cuts servers off where this process may filter packets; else their relays do.
    private let filter: PacketFilter?
    package var losesPackets: Bool { filter != nil }

    /// Whether the programs are there; servers run as the system's user postgres, so only root may start them.
    package static var isAvailable: Bool {
        getuid() == 0 && ServerUser.name == "postgres"
            && ["patroni", "patronictl", "etcd"].allSatisfy { find($0) != nil }
    }

    private static func find(_ name: String) -> String? { ChildProcess.find(name, also: ["/usr/bin"]) }
    static func program(_ name: String) -> String { find(name) ?? name }

    /// The variables of an example in deploy/patroni with values; throws where it has others than those.
    static func variables(_ example: String, _ values: [String: String]) throws -> [String: String] {
        let text = try Files.read("\(configuration)/\(example).env.example")
        let names = Set(
            text.split(separator: "\n").filter { !$0.hasPrefix("#") }.map { String($0.prefix { $0 != "=" }) }
        )
        guard names == Set(values.keys) else {
            let others = names.symmetricDifference(values.keys).sorted().joined(separator: ", ")
            throw ChildProcess.Failure(description: "\(example).env.example and the tests differ in \(others)")
        }
        return values
    }

    /// Starts everything, and waits until a standby is synchronous, or until all stream where commits wait for none.
    package static func start(synchronous isSynchronous: Bool = true) async throws -> PatroniCluster {
        let cluster = try await queue.run { try PatroniCluster(synchronous: isSynchronous) }
        do {
            try await cluster.startAll()
            try await cluster.untilWhole()
            return cluster
        } catch {
            let said = cluster.members.map(\.said).joined(separator: "\n")
            await cluster.end()
            throw ChildProcess.Failure(description: "the cluster does not come up: \(error)\n\(said)")
        }
    }

    private init(synchronous isSynchronous: Bool) throws {
        self.isSynchronous = isSynchronous
        directory = try Files.makeTemporaryDirectory(in: Files.memory ?? "/tmp")
        let directory = directory
        try ServerUser.own(directory)
        var settings = try Files.read("\(Self.configuration)/patroni.yml")
        if !isSynchronous {
            for name in ["synchronous_mode", "synchronous_mode_strict"] {
                settings.replace("    \(name): true\n", with: "    \(name): false\n")
            }
        }
        try Files.append(settings, to: "\(directory)/patroni.yml")
        try ServerUser.own("\(directory)/patroni.yml")
        // Whatever becomes of this process, no server stays behind.
        _ = try ChildProcess.startGuardian(
            """
            trap '' HUP INT TERM
            read -r _
            for _ in 1 2 3; do
                for pid in $(cat '\(directory)/pids' '\(directory)'/db?/postmaster.pid 2>/dev/null | grep -x '[0-9][0-9]*'); do
                    grep -qsa '\(directory)' "/proc/$pid/cmdline" "/proc/$pid/environ" && kill -KILL "$pid"
                done
                sleep 0.2
            done
            rm -rf '\(directory)'
            \(PacketFilter.cleanUp(mark: directory))
            """
        )
        filter = PacketFilter(mark: directory, log: "\(directory)/iptables.log")
        let ports = (0..<3).map { _ in (client: freeLoopbackPort(), peer: freeLoopbackPort()) }
        etcdPorts = ports.map(\.client)
        let peers = ports.enumerated().map { "etcd\($0 + 1)=http://127.0.0.1:\($1.peer)" }.joined(separator: ",")
        etcd = try ports.enumerated().map { number, port in
            let values = [
                "ETCD_NAME": "etcd\(number + 1)", "ETCD_DATA_DIR": "\(directory)/etcd\(number + 1)",
                "ETCD_LISTEN_CLIENT_URLS": "http://127.0.0.1:\(port.client)",
                "ETCD_ADVERTISE_CLIENT_URLS": "http://127.0.0.1:\(port.client)",
                "ETCD_LISTEN_PEER_URLS": "http://127.0.0.1:\(port.peer)",
                "ETCD_INITIAL_ADVERTISE_PEER_URLS": "http://127.0.0.1:\(port.peer)",
                "ETCD_INITIAL_CLUSTER": peers, "ETCD_INITIAL_CLUSTER_TOKEN": "entitlement-sync",
                "ETCD_INITIAL_CLUSTER_STATE": "new",
            ]
            return Daemon(
                Self.program("etcd"),
                variables: try Self.variables("etcd", values),
                log: "\(directory)/etcd\(number + 1).log",
                roll: "\(directory)/pids"
            )
        }
        let secrets = ["SUPERUSER", "REPLICATION", "REWIND"].map { ("PATRONI_\($0)_PASSWORD", Self.password) }
        let binaries = try PostgresCluster.findBinaries()
        let etcdPorts = etcdPorts
        members = try (1...3).map { number in
            try PatroniMember(
                "db\(number)",
                etcd: etcdPorts,
                in: directory,
                binaries: binaries,
                values: Dictionary(uniqueKeysWithValues: secrets)
            )
        }
    }

    /// Starts etcd, and the members once etcd has agreed on its version: a Patroni that comes earlier ends.
    private func startAll() async throws {
        try await Self.queue.run { [etcd] in for daemon in etcd { try daemon.start() } }
        for port in etcdPorts {
            try await eventually("etcd does not agree on its version") {
                let said = await Self.answer(of: "http://127.0.0.1:\(port)/version", in: "\(directory)/etcd.version")
                return said.contains("\"etcdcluster\":\"3")
            }
        }
        try await Self.queue.run { [members] in for member in members { try member.start() } }
    }

    /// What an address answers, which `file` holds meanwhile; empty where nothing does.
    private static func answer(of url: String, in file: String) async -> String {
        let said = try? await queue.run {
            Files.remove(file)
            try ChildProcess.run(["/usr/bin/env", "curl", "--silent", "--max-time", "2", url], log: file)
            return try Files.read(file)
        }
        return said ?? ""
    }

    // MARK: For clients

    /// How clients reach whichever server takes writes.
    package func url(database: String = "postgres") -> String {
        let hosts = members.map { _ in "127.0.0.1" }.joined(separator: ",")
        let ports = members.map { "\($0.clientPort)" }.joined(separator: ",")
        return "host=\(hosts) port=\(ports) user=postgres password=\(Self.password) dbname=\(database)"
            + " target_session_attrs=read-write connect_timeout=2"
    }

    /// Makes a database, and waits until all servers have it: a client may try a standby first.
    package func makeDatabase(_ name: String) async throws {
        try await withConnection(url()) { connection in
            try await connection.execute(script: "CREATE DATABASE \(name)")
            try await eventually("the standbys do not follow") {
                try await connection.query(
                    "SELECT count(*) = 2 FROM pg_catalog.pg_stat_replication AS r WHERE r.replay_lsn >= pg_current_wal_lsn()"
                ).one.decode(Bool.self)
            }
        }
    }

    private func withConnection<Value>(
        _ url: String,
        _ body: (PostgresConnection) async throws -> Value
    ) async throws -> Value {
        let connection = PostgresConnection(configuration: .init(connectionString: url, connectTimeout: .seconds(2)))
        try await connection.open()
        do {
            let value = try await body(connection)
            await connection.close()
            return value
        } catch {
            await connection.close()
            throw error
        }
    }

    // MARK: What happens to it

    /// The server that takes writes now.
    package func primary() async throws -> Int {
        let port = try await withConnection(url()) {
            try await $0.query("SELECT current_setting('port')::integer").one.decode(Int32.self)
        }
        guard let place = members.firstIndex(where: { Int32($0.port) == port }) else {
            throw ChildProcess.Failure(description: "no member has the port \(port)")
        }
        return place
    }

    /// Waits until both standbys follow the primary, one of them synchronous where commits wait for one.
    package func untilWhole() async throws {
        let states = isSynchronous ? "async,sync" : "async,async"
        try await eventually("the cluster is not whole", within: .seconds(120)) {
            let found = try? await withConnection(url()) {
                try await $0.query(
                    """
                    SELECT coalesce(string_agg(r.sync_state, ',' ORDER BY r.sync_state), '')
                      FROM pg_catalog.pg_stat_replication AS r WHERE r.state = 'streaming'
                    """
                ).one.decode(String.self)
            }
            // The server knows of a synchronous standby before Patroni has it on record as the one to promote.
            if found == states, try await hasHeir() { return true }
            try await Task.sleep(for: .milliseconds(200))
            return false
        }
    }

    /// Whether Patroni has a standby on record that it would promote, where it needs one.
    private func hasHeir() async throws -> Bool {
        guard isSynchronous else { return true }
        let url = members[try await primary()].clusterURL
        return await Self.answer(of: url, in: "\(directory)/cluster").contains("\"sync_standby\"")
    }

    /// Kills a server with its Patroni.
    ///
    /// `stall`: what happens while it hands nothing on to its standbys, before it is killed; `nil`: it is killed at once.
    package func kill(_ place: Int, after stall: (() async throws -> Void)? = nil) async throws {
        let victim = members[place]
        if let stall {
            try await Self.queue.run { victim.stall() }
            try await stall()
        }
        try await Self.queue.run { victim.kill() }
    }

    /// Starts the Patroni of a server that was killed.
    package func revive(_ place: Int) async throws {
        try await Self.queue.run { [members] in try members[place].start() }
    }

    package func killEtcd(_ place: Int) async throws { try await Self.queue.run { [etcd] in etcd[place].kill() } }
    package func reviveEtcd(_ place: Int) async throws {
        try await Self.queue.run { [etcd] in try etcd[place].start() }
    }

    /// Cuts a server off from etcd, clients and standbys; nothing that is sent arrives, in either direction.
    package func cutOff(_ place: Int) async throws {
        try await Self.queue.run { [members, filter] in try members[place].cutOff(by: filter) }
    }

    package func letMeet(_ place: Int) async throws {
        try await Self.queue.run { [members, filter] in try members[place].letMeet(by: filter) }
    }

    /// Has another server take over, as before the primary's machine is updated.
    package func switchOver() async throws { try await control(["switchover", "--force"]) }

    private func control(_ words: [String]) async throws {
        let hosts = etcdPorts.map { "127.0.0.1:\($0)" }.joined(separator: ",")
        let (command, options) = (words.prefix(1), words.dropFirst())
        let arguments =
            ["/usr/bin/env", "LC_ALL=C.UTF-8", "PATRONI_ETCD3_HOSTS=\(hosts)", Self.program("patronictl")]
            + ["-c", "\(directory)/patroni.yml"] + command + ["entitlement-sync"] + options
        try await Self.queue.run { [directory] in
            try ChildProcess.run(ServerUser.prefix + arguments, log: "\(directory)/patronictl.log")
        }
    }

    /// What the members said last.
    package var said: String { members.map(\.said).joined(separator: "\n\n") }

    /// Kills everything.
    package func end() async {
        try? await Self.queue.run { [members, etcd, directory] in
            for member in members { member.end() }
            for daemon in etcd { daemon.kill() }
            Files.remove(directory)
        }
    }
}
