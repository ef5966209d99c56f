/// A base URL taken apart, without a slash at its end.
struct BaseURL: Hashable, Sendable {
    var scheme: String
    var authority: String
    /// Empty, or begins with a slash.
    var path: String

    enum Fault: Error, Sendable {
        /// Not of the form `https://host[:port][/path]`.
        case malformed
        /// Plain http to a host other than loopback.
        case insecure
    }

    /// Takes a URL apart.
    ///
    /// - Parameters:
    ///   - text: such as `https://api.revenuecat.com/v2`; plain http is taken for loopback hosts only.
    ///   - last: a segment that the path has to end in, and that is appended where it does not.
    /// - Throws: what is wrong.
    init(_ text: String, endingIn last: String? = nil) throws(Fault) {
        // White space, user info, queries and fragments have no business here, and a URL with them is a mistake.
        let isPlain = text.utf8.allSatisfy { byte in
            (0x21...0x7E).contains(byte) && !"@?#\\\"<>^`{|}".utf8.contains(byte)
        }
        guard isPlain, let schemeEnd = text.firstRange(of: "://") else { throw .malformed }
        scheme = text[..<schemeEnd.lowerBound].lowercased()
        let rest = text[schemeEnd.upperBound...]
        let pathStart = rest.firstIndex(of: "/") ?? rest.endIndex
        authority = String(rest[..<pathStart])
        guard let host = Self.host(authority), scheme == "https" || scheme == "http" else { throw .malformed }
        guard scheme == "https" || Self.isLoopback(host) else { throw .insecure }
        var segments = rest[pathStart...].split(separator: "/")
        if let last, segments.last != last[...] { segments.append(last[...]) }
        path = segments.map { "/" + $0 }.joined()
    }

    /// The host of `host`, `host:port`, `[address]` or `[address]:port`; `nil` where it is none of them.
    private static func host(_ authority: String) -> Substring? {
        let hostEnd: String.Index
        if authority.hasPrefix("[") {
            guard let bracket = authority.firstIndex(of: "]") else { return nil }
            hostEnd = authority.index(after: bracket)
        } else {
            hostEnd = authority.firstIndex(of: ":") ?? authority.endIndex
        }
        let port = authority[hostEnd...]
        guard port.isEmpty || port.first == ":" && (1...65_535).contains(Int(port.dropFirst()) ?? 0) else { return nil }
        return hostEnd == authority.startIndex ? nil : authority[..<hostEnd]
    }

    /// The URL as it is asked.
    var text: String { scheme + "://" + authority + path }

    private static func isLoopback(_ host: Substring) -> Bool {
        if host.lowercased() == "localhost" || host == "[::1]" { return true }
        let parts = host.split(separator: ".", omittingEmptySubsequences: false)
        return parts.count == 4 && parts[0] == "127" && parts.allSatisfy { UInt8($0) != nil }
    }
}
