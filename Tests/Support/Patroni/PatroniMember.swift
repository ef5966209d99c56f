import Glibc

/// A PostgreSQL server and the Patroni that manages it; blocking, so not for the cooperative pool.
///
/// Clients and standbys reach it through a relay, and it reaches etcd through relays, so that it can be cut off.
final class PatroniMember: Sendable {
    let name: String
    /// The server's own port; clients use that of the relay.
    let port: UInt16
    private let front: Relay
    private let toEtcd: [Relay]
    private let data: String
    private let restPort: UInt16
    private let patroni: Daemon

    var clientPort: UInt16 { front.port }

    /// Makes a member that does not run yet.
    ///
    /// `values`: the values of the environment's example, by name, that all members share.
    init(_ name: String, etcd: [UInt16], in directory: String, binaries: String, values: [String: String]) throws {
        self.name = name
        port = freeLoopbackPort()
        front = Relay(to: port)
        toEtcd = etcd.map { Relay(to: $0) }
        data = "\(directory)/\(name)"
        restPort = freeLoopbackPort()
        let own = [
            "PATRONI_NAME": name,
            "PATRONI_ETCD3_HOSTS": toEtcd.map { "127.0.0.1:\($0.port)" }.joined(separator: ","),
            "PATRONI_RESTAPI_LISTEN": "127.0.0.1:\(restPort)",
            "PATRONI_RESTAPI_CONNECT_ADDRESS": "127.0.0.1:\(restPort)",
            "PATRONI_POSTGRESQL_LISTEN": "127.0.0.1:\(port)",
            "PATRONI_POSTGRESQL_CONNECT_ADDRESS": "127.0.0.1:\(front.port)",
            "PATRONI_POSTGRESQL_DATA_DIR": data, "PATRONI_POSTGRESQL_BIN_DIR": binaries,
            "PATRONI_POSTGRESQL_PGPASS": "\(data).pgpass",
        ]
        patroni = Daemon(
            PatroniCluster.program("patroni"),
            ["\(directory)/patroni.yml"],
            // Else it would learn of etcd's own addresses, and leave the relays out.
            variables: try PatroniCluster.variables("patroni", own.merging(values) { $1 }).merging(
                ["PATRONI_ETCD3_USE_PROXIES": "true"]
            ) { $1 },
            log: "\(directory)/\(name).log",
            roll: "\(directory)/pids"
        )
    }

    func start() throws { try patroni.start() }

    /// Where Patroni says who is in the cluster.
    var clusterURL: String { "http://127.0.0.1:\(restPort)/cluster" }

    /// Kills Patroni, the server and all its sessions, as a machine does that loses its power.
    func kill() {
        patroni.kill()
        guard let server else { return }
        let children = Self.processes { $0.parent == server }
        for pid in [server] + children { _ = Glibc.kill(pid, SIGKILL) }
    }

    /// Cuts it off from etcd, from clients and from its standbys: by a filter, or its relays fall silent.
    func cutOff(by filter: PacketFilter?) throws {
        if let filter { return try filter.lose(relays.map(\.port)) }
        for relay in relays { relay.turn(.silent) }
    }

    /// Ends what `cutOff` began with the same filter.
    func letMeet(by filter: PacketFilter?) throws {
        if let filter { return try filter.pass(relays.map(\.port)) }
        for relay in relays { relay.turn(.fair) }
    }

    private var relays: [Relay] { toEtcd + [front] }

    /// Has it hand nothing more on to its standbys.
    func stall() {
        guard let server else { return }
        for pid in Self.processes(where: { $0.parent == server && $0.title.contains("walsender") }) {
            _ = Glibc.kill(pid, SIGSTOP)
        }
    }

    func end() {
        kill()
        for relay in relays { relay.end() }
    }

    var said: String { patroni.said }

    /// The server's process, while it runs.
    private var server: pid_t? {
        let first = (try? Files.read("\(data)/postmaster.pid"))?.split(separator: "\n").first
        return first.flatMap { pid_t($0) }.flatMap { Glibc.kill($0, 0) == 0 ? $0 : nil }
    }

    private static func processes(where isWanted: ((parent: pid_t, title: String)) -> Bool) -> [pid_t] {
        Files.list("/proc").compactMap { pid_t($0) }.filter { pid in
            guard let status = try? Files.read("/proc/\(pid)/status"),
                let parent = status.firstMatch(of: /PPid:\s+(\d+)/).flatMap({ pid_t($0.1) }),
                let title = try? Files.read("/proc/\(pid)/cmdline")
            else { return false }
            return isWanted((parent, title))
        }
    }
}
