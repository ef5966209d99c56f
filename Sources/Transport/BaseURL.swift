/// A base URL taken apart, without a slash at its end.
package struct BaseURL: Hashable, Sendable {
    package var scheme: String
    package var authority: String
    /// Empty, or begins with a slash.
    package var path: String

    package enum Fault: Error, Sendable {
        /// Not of the form `https://host[:port][/path]`.
        case malformed
        /// Plain http to a host other than loopback.
        case insecure
    }

    /// Takes apart such as `https://api.revenuecat.com/v2`; `last` is appended where the path does not end in it.
    package init(_ text: String, endingIn last: String? = nil) throws(Fault) {
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

    /// The host of `host`, `host:port`, `[address]` or `[address]:port`.
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
    package var text: String { scheme + "://" + authority + path }

    private static func isLoopback(_ host: Substring) -> Bool {
        if host.lowercased() == "localhost" || host == "[::1]" { return true }
        let parts = host.split(separator: ".", omittingEmptySubsequences: false)
        return parts.count == 4 && parts[0] == "127" && parts.allSatisfy { UInt8($0) != nil }
    }
}

/// A set of public keys, or a receiver of webhooks; its path may have an `@`, as that of Google's keys.
package struct EndpointURL: Hashable, Sendable {
    package var base: BaseURL
    package var path: String

    package var text: String { base.text + path }

    /// Takes `https://host[:port]/path` apart; plain http is taken for loopback hosts only.
    package init(_ text: String) throws(BaseURL.Fault) {
        guard let schemeEnd = text.firstRange(of: "://"),
            let pathStart = text[schemeEnd.upperBound...].firstIndex(of: "/")
        else { throw .malformed }
        base = try BaseURL(String(text[..<pathStart]))
        path = String(text[pathStart...])
        guard path.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "#") }) else { throw .malformed }
    }
}

/// What is wrong with a store's settings: everything at once, so that mending one fault does not show the next.
package struct SettingFaults<Fault>: Error, Hashable, Sendable, CustomStringConvertible
where Fault: RawRepresentable<String> & Hashable & Sendable {
    package var faults: [Fault]

    package init(faults: [Fault]) { self.faults = faults }

    package var description: String { faults.map(\.rawValue).joined(separator: "; ") }
}

extension BaseURL {
    /// Takes a URL apart as one setting of several; nothing, and its fault noted, where there is one.
    package static func read<Noted>(
        _ text: String,
        endingIn last: String? = nil,
        malformed: Noted,
        insecure: Noted,
        _ faults: inout [Noted]
    ) -> BaseURL? {
        Fault.noting(malformed, insecure, &faults) { () throws(Fault) in try BaseURL(text, endingIn: last) }
    }
}

extension BaseURL.Fault {
    /// Makes what a setting's URL stands for; nothing, and its fault noted, where it stands for none.
    package static func noting<Value, Noted>(
        _ malformed: Noted,
        _ insecure: Noted,
        _ faults: inout [Noted],
        _ make: () throws(BaseURL.Fault) -> Value
    ) -> Value? {
        do throws(BaseURL.Fault) {
            return try make()
        } catch {
            faults.append(error == .insecure ? insecure : malformed)
            return nil
        }
    }
}
