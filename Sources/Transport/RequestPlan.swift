import HTTPTypes

/// A request checked and spelled out for libcurl, made on the caller's side to keep the transport's thread lean.
struct RequestPlan: Sendable {
    var url: String
    var method: String
    var scheme: Origin.Scheme
    var headerLines: [String]
    var body: [UInt8]?

    /// Throws `.invalidRequest`, naming the part at fault but never its value.
    init(_ request: HTTPRequest, body: [UInt8]?) throws(TransportError) {
        let origin = try Origin(scheme: request.scheme, authority: request.authority)
        guard let path = request.path, Self.isSendable(path: path) else {
            throw TransportError(.invalidRequest, "the path does not start with / or holds bytes that need escaping")
        }
        method = request.method.rawValue
        switch method {
        case "CONNECT", "TRACE": throw TransportError(.invalidRequest, "the method is not supported")
        case "HEAD" where body != nil: throw TransportError(.invalidRequest, "HEAD takes no body")
        default: break
        }
        scheme = origin.scheme
        url = "\(origin.scheme.rawValue)://\(origin.host)"
        if let port = origin.port { url += ":\(port)" }
        url += path
        // POST, PUT and PATCH announce an empty body with a length of 0, as servers expect.
        self.body = body ?? (["POST", "PUT", "PATCH"].contains(method) ? [] : nil)
        headerLines = try Self.headerLines(request.headerFields, hasBody: self.body != nil)
    }

    /// Whether a repetition is harmless by the method's definition (RFC 9110, 9.2.2).
    var isIdempotent: Bool { ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"].contains(method) }

    var isHead: Bool { method == "HEAD" }

    private static func isSendable(path: String) -> Bool {
        // The fragment sign would silently end the path; all else that is printable ASCII goes out as it is.
        path.utf8.first == UInt8(ascii: "/")
            && path.utf8.allSatisfy { (0x21...0x7e).contains($0) && $0 != UInt8(ascii: "#") }
    }

    /// Header fields that describe the message's framing or route, which belong to the transport.
    private static let reservedNames: Set<String> = [
        "connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "proxy-connection", "te",
        "trailer", "transfer-encoding", "upgrade",
    ]

    private static func headerLines(_ fields: HTTPFields, hasBody: Bool) throws(TransportError) -> [String] {
        var lines: [String] = []
        lines.reserveCapacity(fields.count + 2)
        for field in fields {
            guard !reservedNames.contains(field.name.canonicalName) else {
                throw TransportError(.invalidRequest, "a header field belongs to the transport")
            }
            lines.append(try headerLine(name: field.name.rawName, value: field.value))
        }
        if hasBody {
            // libcurl would call every body a form, and hold back large ones until the server says 100.
            if !fields.contains(.contentType) { lines.append("Content-Type:") }
            lines.append("Expect:")
        }
        return lines
    }

    /// Spells one header field for libcurl, which takes a trailing semicolon for an empty value.
    ///
    /// swift-http-types replaces control characters; the check stays because a line break here would forge a field.
    static func headerLine(name: String, value: String) throws(TransportError) -> String {
        guard value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f || $0 == 0x09 }) else {
            throw TransportError(.invalidRequest, "a header value holds a control character")
        }
        return value.isEmpty ? "\(name);" : "\(name): \(value)"
    }
}
