package import NIOCore

/// Proxies before the API that are trusted to name the client's address.
///
/// Any other sender of `X-Forwarded-For` could name any address.
package struct TrustedProxies: Sendable {
    package struct Fault: Error, Hashable {
        package var entry: String
    }

    private struct Network: Sendable {
        var bytes: [UInt8]
        var bits: Int

        func contains(_ address: [UInt8]) -> Bool {
            guard address.count == bytes.count else { return false }
            let (whole, rest) = (bits / 8, bits % 8)
            guard address.prefix(whole).elementsEqual(bytes.prefix(whole)) else { return false }
            return rest == 0 || (address[whole] ^ bytes[whole]) >> (8 - rest) == 0
        }
    }

    /// The hops of one request that are read.
    private static let mostHops = 20

    private var networks: [Network] = []

    package init() {}

    /// Reads addresses and networks such as `10.0.0.0/8, ::1`.
    package init(_ list: String) throws(Fault) {
        for part in list.split(separator: ",") {
            let entry = part.filter { $0 != " " }
            let sides = entry.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
            guard let text = sides.first, let bytes = Self.bytes(String(text)) else { throw Fault(entry: entry) }
            var bits = bytes.count * 8
            if sides.count == 2 {
                guard let given = Int(sides[1]), (0...bits).contains(given) else { throw Fault(entry: entry) }
                bits = given
            }
            networks.append(Network(bytes: bytes, bits: bits))
        }
    }

    /// What a request is counted under: the address of the last hop that is no proxy of ours.
    ///
    /// Of IPv6 it is the network, because a host has as many addresses as it wants. `forwarded`: the value of
    /// `X-Forwarded-For`.
    package func client(_ peer: SocketAddress?, forwarded: String?) -> String {
        guard let peer, let address = peer.ipAddress, var client = Self.bytes(address) else { return "unknown" }
        if let forwarded, !networks.isEmpty {
            for hop in forwarded.split(separator: ",").suffix(Self.mostHops).reversed() {
                guard isTrusted(client), let earlier = Self.bytes(Self.host(hop)) else { break }
                client = earlier
            }
        }
        return client.prefix(client.count == 16 ? 8 : 4).map { String($0, radix: 16) }.joined(separator: ":")
    }

    /// A hop without its port, which some proxies write: `192.0.2.1:443`, `[2001:db8::1]:443`.
    private static func host(_ hop: Substring) -> String {
        let text = hop.filter { $0 != " " }
        if text.hasPrefix("[") { return String(text.dropFirst().prefix { $0 != "]" }) }
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        return parts.count == 2 ? String(parts[0]) : text
    }

    /// Whether the other end of a connection is one of them.
    func contains(_ peer: SocketAddress?) -> Bool {
        guard !networks.isEmpty, let address = peer?.ipAddress.flatMap(Self.bytes) else { return false }
        return isTrusted(address)
    }

    private func isTrusted(_ address: [UInt8]) -> Bool { networks.contains { $0.contains(address) } }

    /// Four bytes or sixteen; an IPv4 address within IPv6 is itself.
    private static func bytes(_ text: String) -> [UInt8]? {
        guard let address = try? SocketAddress(ipAddress: text, port: 0) else { return nil }
        // Before the address stand family and port, and for IPv6 the flow.
        let bytes = address.withSockAddr { start, size in
            let all = UnsafeRawBufferPointer(start: start, count: size)
            return Array(size >= 24 ? all[8..<24] : all[4..<8])
        }
        guard bytes.count == 16, bytes.prefix(10).allSatisfy({ $0 == 0 }), bytes[10] == 0xFF, bytes[11] == 0xFF else {
            return bytes
        }
        return Array(bytes[12...])
    }
}
