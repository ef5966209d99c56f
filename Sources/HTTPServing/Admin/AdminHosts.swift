import HTTPTypes
import Hummingbird
import Logging

/// Under which names the admin address is reached.
///
/// A foreign page can make its own host name resolve to this address (DNS rebinding), and would then read the answers.
/// The browser still sends that name as the host, so requests under unknown names are refused; an IP address is no such
/// name.
struct AdminHosts: Sendable {
    private let names: Set<String>

    init(names: [String]) { self.names = Set((names + ["localhost"]).map { $0.lowercased() }) }

    /// Whether requests to a name or an address, with or without a port, are answered.
    func contains(_ authority: String) -> Bool {
        var host = Substring(authority.lowercased())
        if host.hasPrefix("[") {
            guard let end = host.firstIndex(of: "]") else { return false }
            return host[host.index(after: host.startIndex)..<end].utf8.allSatisfy {
                $0 == UInt8(ascii: ":") || $0 == UInt8(ascii: ".") || Character(UnicodeScalar($0)).isHexDigit
            }
        }
        if let colon = host.lastIndex(of: ":") {
            guard host[host.index(after: colon)...].utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
                return false
            }
            host = host[..<colon]
        }
        return names.contains(String(host)) || Self.isAddress(host)
    }

    /// Four numbers; a name never ends with one (RFC 1123 leaves top-level domains to letters).
    private static func isAddress(_ host: Substring) -> Bool {
        let parts = host.split(separator: ".", omittingEmptySubsequences: false)
        return parts.count == 4 && parts.allSatisfy { UInt8($0) != nil && !$0.hasPrefix("+") }
    }
}

/// Refuses requests to other hosts.
struct AdminHostCheck: RouterMiddleware {
    let hosts: AdminHosts
    let security: SecurityLog
    let logger: Logger

    @concurrent func handle(
        _ request: Request,
        context: AdminContext,
        next: @concurrent (Request, AdminContext) async throws -> Response
    ) async throws -> Response {
        var response: Response
        if let authority = request.head.authority, hosts.contains(authority) {
            response = try await next(request, context)
        } else {
            security.refused("admin", "unknown_host", logger)
            let reason = "This host is not known here. A proxy's name belongs into ADMIN_NAMES.\n"
            response = .plainText(reason, .misdirectedRequest)
        }
        // Pages of the console have a policy of their own.
        if response.headers[.xContentTypeOptions] == nil { response.headers.refuseRendering() }
        return response
    }
}

extension HTTPFields {
    /// Has browsers show an answer neither as anything but what it says it is, nor within a page.
    package mutating func refuseRendering() {
        self[.xContentTypeOptions] = "nosniff"
        if let policy = HTTPField.Name("Content-Security-Policy") {
            self[policy] = "default-src 'none'; frame-ancestors 'none'"
        }
    }
}
