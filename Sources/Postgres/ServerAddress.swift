import Glibc

/// One entry of a multi-host list.
struct ServerAddress: Hashable, Sendable {
    /// A name, a numeric address, or a directory with a Unix socket; nil is libpq's default.
    var host: String?
    /// A numeric address, which makes a lookup of `host` needless.
    var hostAddress: String?
    /// The port; nil is libpq's default.
    var port: String?

    /// Splits the lists of hosts, addresses and ports, as libpq does.
    ///
    /// Throws `.configuration` when their lengths differ or a port is no port. Ports are checked here because libpq's
    /// message quotes what it found, which is a piece of the password when that was not percent-encoded.
    static func list(_ parameters: ConnectParameters) throws(PostgresError) -> [ServerAddress] {
        let hosts = split(parameters.effective("host"))
        let addresses = split(parameters.effective("hostaddr"))
        let ports = split(parameters.effective("port"))
        let count = max(hosts.count, addresses.count, 1)
        guard hosts.isEmpty || addresses.isEmpty || hosts.count == addresses.count else {
            throw PostgresError(.configuration, message: "there are not as many hosts as host addresses")
        }
        guard ports.count <= 1 || ports.count == count else {
            throw PostgresError(.configuration, message: "there are not as many ports as hosts")
        }
        for case let port? in ports where !(UInt16(port).map { $0 > 0 } ?? false) {
            throw PostgresError(.configuration, message: "a port is not a number from 1 to 65535")
        }
        return (0..<count).map { index in
            ServerAddress(
                host: hosts.isEmpty ? nil : hosts[index],
                hostAddress: addresses.isEmpty ? nil : addresses[index],
                port: ports.count == 1 ? ports[0] : (ports.isEmpty ? nil : ports[index])
            )
        }
    }

    /// Whether a lookup of the host comes before a connection.
    var needsLookup: Bool {
        guard hostAddress == nil, let host else { return false }
        return !host.hasPrefix("/") && !host.hasPrefix("@")
    }

    /// Resolves the host, and blocks: one entry an address, in the resolver's order; empty when the name is unknown.
    func resolved() -> [ServerAddress] {
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        hints.ai_family = AF_UNSPEC
        var first: UnsafeMutablePointer<addrinfo>?
        guard let host, getaddrinfo(host, nil, &hints, &first) == 0 else { return [] }
        defer { freeaddrinfo(first) }
        var found: [ServerAddress] = []
        var next = first
        while let info = next {
            defer { next = info.pointee.ai_next }
            var name = [CChar](repeating: 0, count: Int(NI_MAXHOST))
            let length = socklen_t(name.count)
            guard
                getnameinfo(info.pointee.ai_addr, info.pointee.ai_addrlen, &name, length, nil, 0, NI_NUMERICHOST) == 0
            else { continue }
            let bytes = name.prefix { $0 != 0 }.map(UInt8.init(bitPattern:))
            let address = ServerAddress(host: host, hostAddress: String(decoding: bytes, as: UTF8.self), port: port)
            if !found.contains(address) { found.append(address) }
        }
        return found
    }

    /// The host for a message; without the form of one it may be a piece of a password that was not percent-encoded.
    var printableHost: String? {
        guard let host, host.utf8.count <= 100 else { return nil }
        let isHost = host.unicodeScalars.allSatisfy {
            $0.isASCII && ($0.properties.isAlphabetic || "0123456789.-_:".unicodeScalars.contains($0))
        }
        return isHost ? host : nil
    }

    private static func split(_ list: String?) -> [String?] {
        guard let list else { return [] }
        return list.split(separator: ",", omittingEmptySubsequences: false).map { $0.isEmpty ? nil : String($0) }
    }
}
