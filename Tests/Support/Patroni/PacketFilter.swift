/// Loses packets of ports on loopback, as a broken network does; blocking, so not for the cooperative pool.
///
/// Nothing answers then, not even the kernel: a relay that is silent still acknowledges what is sent to it, so that
/// neither end finds out by its TCP limits that the other is gone.
struct PacketFilter: Sendable {
    private let iptables: String
    private let mark: String
    private let log: String

    /// `nil` where this process may not filter packets.
    ///
    /// `mark`: stands in every rule, so that they are found again; `log`: the file for what iptables says.
    init?(mark: String, log: String) {
        guard let iptables = ChildProcess.find("iptables", also: ["/usr/sbin", "/sbin"]) else { return nil }
        self.iptables = iptables
        self.mark = mark
        self.log = log
        guard (try? run(["-S", "INPUT"])) != nil else { return nil }
    }

    /// Loses all packets to and from those ports from now on.
    func lose(_ ports: [UInt16]) throws { for rule in rules(ports) { try run(["-I", "INPUT"] + rule) } }

    /// Ends what `lose` began for the same ports.
    func pass(_ ports: [UInt16]) throws { for rule in rules(ports) { try run(["-D", "INPUT"] + rule) } }

    /// A shell command that deletes what rules with this mark are left.
    static func cleanUp(mark: String) -> String {
        "PATH=$PATH:/usr/sbin; iptables -w -S INPUT 2>/dev/null | grep -F '\(mark)' | sed 's/^-A/-D/' | xargs -r -L 1 iptables -w"
    }

    private func rules(_ ports: [UInt16]) -> [[String]] {
        ports.flatMap { port in
            ["--dport", "--sport"].map {
                ["-i", "lo", "-p", "tcp", $0, "\(port)", "-m", "comment", "--comment", mark, "-j", "DROP"]
            }
        }
    }

    private func run(_ arguments: [String]) throws { try ChildProcess.run([iptables, "-w"] + arguments, log: log) }
}
