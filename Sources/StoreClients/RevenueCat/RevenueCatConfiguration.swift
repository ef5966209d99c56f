/// Where RevenueCat is, and with which key we ask it.
package struct RevenueCatConfiguration: Sendable {
    /// The secret key of the version-2 kind, which is never described.
    package let apiKey: String
    package let projectID: String
    /// The most pages read of one list; a customer with more is never read fully.
    package let maxPages: Int
    let base: BaseURL

    /// Checks and keeps the settings.
    ///
    /// - Parameters:
    ///   - apiKey: such as `sk_…`.
    ///   - projectID: such as `proj0a1b2c3d`.
    ///   - baseURL: such as `https://api.revenuecat.com/v2`; `/v2` is appended where the path does not end in it.
    ///     Plain http is taken for loopback hosts only.
    ///   - maxPages: 1 or more; a page has up to 100 items.
    /// - Throws: every fault at once.
    package init(
        apiKey: String,
        projectID: String,
        baseURL: String = "https://api.revenuecat.com/v2",
        maxPages: Int = 50
    ) throws(RevenueCatConfigurationError) {
        var faults: [RevenueCatConfigurationError.Fault] = []
        // Whatever is not visible ASCII would be refused or cut on its way into the header.
        if apiKey.isEmpty || !apiKey.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) { faults.append(.apiKey) }
        if projectID.isEmpty || PathSegment(projectID) == nil { faults.append(.projectID) }
        if maxPages < 1 { faults.append(.maxPages) }
        var parsed: BaseURL?
        do throws(RevenueCatConfigurationError.Fault) { parsed = try BaseURL(baseURL) } catch { faults.append(error) }
        guard let base = parsed, faults.isEmpty else { throw RevenueCatConfigurationError(faults: faults) }
        self.apiKey = apiKey
        self.projectID = projectID
        self.maxPages = maxPages
        self.base = base
    }
}

extension RevenueCatConfiguration: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The settings without the key.
    package var description: String {
        "RevenueCatConfiguration(\(base.scheme)://\(base.authority)\(base.path), key redacted)"
    }
    package var debugDescription: String { description }
    /// Keeps `dump` and string interpolation of enclosing values from reaching the key.
    package var customMirror: Mirror { Mirror(self, children: ["description": description]) }
}

/// What is wrong with the settings.
package struct RevenueCatConfigurationError: Error, Hashable, Sendable, CustomStringConvertible {
    package enum Fault: String, Error, Sendable, CaseIterable {
        case apiKey = "the API key is empty or holds characters other than visible ASCII"
        case projectID = "the project id is empty or no path segment"
        case maxPages = "the page limit is below 1"
        case baseURL = "the base URL is not of the form https://host[:port][/path]"
        case insecureBaseURL = "the base URL is plain http to a host other than loopback"
    }

    package var faults: [Fault]

    package init(faults: [Fault]) { self.faults = faults }

    package var description: String { faults.map(\.rawValue).joined(separator: "; ") }
}

/// A base URL taken apart, without a slash at its end.
struct BaseURL: Hashable, Sendable {
    var scheme: String
    var authority: String
    /// Ends in `/v2`.
    var path: String

    init(_ text: String) throws(RevenueCatConfigurationError.Fault) {
        // White space, user info, queries and fragments have no business here, and a URL with them is a mistake.
        let isPlain = text.utf8.allSatisfy { byte in
            (0x21...0x7E).contains(byte) && !"@?#\\\"<>^`{|}".utf8.contains(byte)
        }
        guard isPlain, let schemeEnd = text.firstRange(of: "://") else { throw .baseURL }
        scheme = text[..<schemeEnd.lowerBound].lowercased()
        let rest = text[schemeEnd.upperBound...]
        let pathStart = rest.firstIndex(of: "/") ?? rest.endIndex
        authority = String(rest[..<pathStart])
        guard let host = Self.host(authority), scheme == "https" || scheme == "http" else { throw .baseURL }
        guard scheme == "https" || Self.isLoopback(host) else { throw .insecureBaseURL }
        var segments = rest[pathStart...].split(separator: "/")
        if segments.last != "v2" { segments.append("v2") }
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

    private static func isLoopback(_ host: Substring) -> Bool {
        if host.lowercased() == "localhost" || host == "[::1]" { return true }
        let parts = host.split(separator: ".", omittingEmptySubsequences: false)
        return parts.count == 4 && parts[0] == "127" && parts.allSatisfy { UInt8($0) != nil }
    }
}
