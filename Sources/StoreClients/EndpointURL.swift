/// One resource that is asked for: a set of public keys, or whoever wants to be told of changes.
///
/// Google's keys have an `@` in their path, which no base URL of a store has.
struct EndpointURL: Hashable, Sendable {
    var base: BaseURL
    var path: String

    /// The URL as it is asked.
    var text: String { base.text + path }

    /// Takes a URL apart.
    ///
    /// - Parameter text: `https://host[:port]/path`; plain http is taken for loopback hosts only.
    /// - Throws: what is wrong.
    init(_ text: String) throws(BaseURL.Fault) {
        guard let schemeEnd = text.firstRange(of: "://"),
            let pathStart = text[schemeEnd.upperBound...].firstIndex(of: "/")
        else { throw .malformed }
        base = try BaseURL(String(text[..<pathStart]))
        path = String(text[pathStart...])
        guard path.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "#") }) else { throw .malformed }
    }
}
