import Glibc

/// Scheme, host and port of a request, read so strictly that libcurl's parser cannot read it differently.
///
/// Whatever is unusual (user info, percent signs, non-ASCII names, odd spellings of addresses) is refused or counted as
/// not loopback: a host that two parsers see differently is how credentials reach a stranger.
struct Origin: Equatable {
    var scheme: Scheme
    var host: String
    var port: Int?

    enum Scheme: String {
        case https
        case http
    }

    /// Throws `.invalidRequest`; plain http is accepted for loopback hosts alone.
    init(scheme: String?, authority: String?) throws(TransportError) {
        guard let scheme = scheme.flatMap({ Scheme(rawValue: $0.lowercased()) }) else {
            throw TransportError(.invalidRequest, "the scheme is neither https nor http")
        }
        guard let authority, let (host, port) = Self.split(authority) else {
            throw TransportError(.invalidRequest, "the authority is not a plain host and port")
        }
        self.scheme = scheme
        self.host = host
        self.port = port
        guard scheme == .https || isLoopback else {
            throw TransportError(.invalidRequest, "plain http is for loopback hosts only")
        }
    }

    /// `localhost`, which libcurl answers without asking the resolver, 127.0.0.0/8 or ::1.
    var isLoopback: Bool {
        if host.lowercased() == "localhost" { return true }
        if host.hasPrefix("[") {
            var address = in6_addr()
            guard inet_pton(AF_INET6, String(host.dropFirst().dropLast()), &address) == 1 else { return false }
            return withUnsafeBytes(of: &address) { $0.last == 1 && $0.dropLast().allSatisfy { $0 == 0 } }
        }
        var address = in_addr()
        guard inet_pton(AF_INET, host, &address) == 1 else { return false }
        return UInt32(bigEndian: address.s_addr) >> 24 == 127
    }

    private static func split(_ authority: String) -> (host: String, port: Int?)? {
        let host: Substring
        let rest: Substring
        if authority.hasPrefix("[") {
            guard let end = authority.firstIndex(of: "]") else { return nil }
            host = authority[...end]
            rest = authority[authority.index(after: end)...]
            guard host.utf8.count > 2, host.utf8.dropFirst().dropLast().allSatisfy(isAddressByte) else { return nil }
        } else {
            let end = authority.firstIndex(of: ":") ?? authority.endIndex
            host = authority[..<end]
            rest = authority[end...]
            guard !host.isEmpty, host.utf8.allSatisfy(isNameByte) else { return nil }
        }
        if rest.isEmpty { return (String(host), nil) }
        let digits = rest.dropFirst().utf8
        guard rest.hasPrefix(":"), !digits.isEmpty, digits.count <= 5,
            digits.allSatisfy({ (0x30...0x39).contains($0) }),
            let port = Int(rest.dropFirst()), (1...65535).contains(port)
        else { return nil }
        return (String(host), port)
    }

    private static func isNameByte(_ byte: UInt8) -> Bool {
        switch UnicodeScalar(byte) {
        case "a"..."z", "A"..."Z", "0"..."9", "-", ".", "_": true
        default: false
        }
    }

    private static func isAddressByte(_ byte: UInt8) -> Bool {
        switch UnicodeScalar(byte) {
        case "a"..."f", "A"..."F", "0"..."9", ":", ".": true
        default: false
        }
    }
}
