import FoundationEssentials

/// Checks the web addresses of a configuration.
enum WebAddress {
    /// Why a text is no address we would send a request to.
    struct Fault: Error {
        let problem: String
    }

    /// Checks the base address of an API: https, or http on a loopback host.
    ///
    /// - Returns: the address without slashes at its end, so that a path can be appended.
    /// - Throws: `Fault` when it is no such address, or carries a user, a query or a fragment.
    static func base(_ text: String) throws(Fault) -> String {
        let parts = try checked(text)
        guard parts.query == nil, parts.fragment == nil else { throw Fault(problem: "has a query or a fragment") }
        var trimmed = text[...]
        while trimmed.last == "/" { trimmed.removeLast() }
        return String(trimmed)
    }

    /// Checks the address of one resource that is sent to: as a base, but with a path, and a query where there is one.
    ///
    /// - Throws: `Fault` when it is no such address, or carries a user or a fragment.
    static func receiver(_ text: String) throws(Fault) -> String {
        let parts = try checked(text)
        guard parts.fragment == nil else { throw Fault(problem: "has a fragment") }
        guard !parts.path.isEmpty else { throw Fault(problem: "has no path") }
        return text
    }

    /// Checks the origin of a page, which has to be written as browsers write it: it is compared as it is.
    ///
    /// - Throws: `Fault` when it has anything beside scheme, host and port, or a browser would write it otherwise.
    static func origin(_ text: String) throws(Fault) -> String {
        let parts = try checked(text)
        // As it is written: another form would be no browser's.
        guard let scheme = parts.scheme, let host = parts.encodedHost, text.utf8.count <= 255 else {
            throw Fault(problem: "is not a web address")
        }
        let isName = host.utf8.allSatisfy { byte in
            switch UnicodeScalar(byte) {
            case "a"..."z", "A"..."Z", "0"..."9", "-", ".", ":", "[", "]": true
            default: false
            }
        }
        guard isName else { throw Fault(problem: "has a host with characters that no host has") }
        let usual = scheme.lowercased() == "https" ? 443 : 80
        let port = parts.port.flatMap { $0 == usual ? nil : ":\($0)" } ?? ""
        let written = "\(scheme)://\(host)\(port)".lowercased()
        guard text == written else { throw Fault(problem: "a browser would write as \(written)") }
        return text
    }

    /// Checks an address that is shown to people: https, http on a loopback host, or `mailto:`.
    ///
    /// - Throws: `Fault` when it is none of these.
    static func contact(_ text: String) throws(Fault) -> String {
        let mail = "mailto:"
        guard text.lowercased().hasPrefix(mail) else {
            _ = try checked(text)
            return text
        }
        let address = text.dropFirst(mail.count).prefix { $0 != "?" }.split(
            separator: "@",
            omittingEmptySubsequences: false
        )
        guard isVisibleASCII(text), address.count == 2, address.allSatisfy({ !$0.isEmpty }) else {
            throw Fault(problem: "is not a mail address")
        }
        return text
    }

    /// Whether a host, as it stands in an address, can only mean this machine: 127.0.0.0/8, `::1`, `localhost`.
    static func isLoopback(_ host: String) -> Bool {
        if ["localhost", "::1", "[::1]"].contains(host.lowercased()) { return true }
        // Four plain decimal numbers, and nothing else: "127.0.0.1.example.com" and "127.1" are names to a resolver.
        let octets = host.split(separator: ".", omittingEmptySubsequences: false)
        return octets.count == 4 && octets[0] == "127"
            && octets.allSatisfy { $0.count <= 3 && $0.utf8.allSatisfy(isDigit) && UInt8($0) != nil }
    }

    /// Whether every character is printable ASCII other than the space.
    static func isVisibleASCII(_ text: String) -> Bool { text.utf8.allSatisfy { (0x21...0x7E).contains($0) } }

    private static func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }

    private static func checked(_ text: String) throws(Fault) -> URLComponents {
        guard isVisibleASCII(text), let parts = URLComponents(string: text, encodingInvalidCharacters: false),
            let scheme = parts.scheme?.lowercased(), let host = parts.host, !host.isEmpty
        else { throw Fault(problem: "is not a web address") }
        // A user or password in an address would end up in logs.
        guard parts.user == nil, parts.password == nil else { throw Fault(problem: "carries a user or a password") }
        if let port = parts.port, !(1...65_535).contains(port) { throw Fault(problem: "has an impossible port") }
        guard scheme == "https" || scheme == "http" && isLoopback(host) else {
            throw Fault(problem: "is not https, and its host is not a loopback host")
        }
        return parts
    }
}
