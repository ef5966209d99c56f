import Entitlements
import TextFormats

/// The custom claims of an account at Firebase: an object in which two members are ours, `entitlements` and `until`.
struct CustomClaims {
    /// The longest text of claims that Firebase takes, in characters.
    static let longest = 1_000

    /// Members that are others', as they stand.
    private var others: [String] = []
    /// What our two members say; `nil`: nothing, or not what we write.
    private var access: AccessClaims?
    /// Whether either of them is there.
    private(set) var hasOurs = false

    /// Reads the text that an account has; `nil` stands for an account without claims.
    init(_ text: String?) throws(JSONFault) {
        guard let text, !text.isEmpty else { return }
        var reader = try JSONReader(Array(text.utf8))
        guard try reader.token() == UInt8(ascii: "{") else { throw .wrongType }
        try reader.descend()
        var entitlements: [String]?
        var until: Int64?
        var isFirst = true
        while try reader.hasNext(before: UInt8(ascii: "}"), isFirst: isFirst) {
            isFirst = false
            let start = reader.position
            let (range, isEscaped) = try reader.scanKey()
            let name = isEscaped ? try reader.unescape(range, limit: text.utf8.count) : Array(reader.bytes[range])
            let value = reader
            try reader.skipValue()
            switch String(decoding: name, as: UTF8.self) {
            case "entitlements":
                hasOurs = true
                entitlements = Self.names(value)
            case "until":
                hasOurs = true
                until = Self.seconds(value)
            default: others.append(String(decoding: reader.bytes[start..<reader.position], as: UTF8.self))
            }
        }
        try reader.finish()
        if let entitlements, let until { access = AccessClaims(entitlements: entitlements, until: until) }
    }

    /// Whether they say this already; those without our members say that there is no access.
    func say(_ wanted: AccessClaims) -> Bool {
        guard hasOurs else { return wanted == .none }
        // By bytes, as rules compare them.
        return access?.until == wanted.until
            && access?.entitlements.map(ExactText.init) == wanted.entitlements.map(ExactText.init)
    }

    /// The same claims with ours replaced.
    func text(saying wanted: AccessClaims) -> String {
        let names = wanted.entitlements.map(JSONText.quoted).joined(separator: ",")
        let ours = [#""entitlements":[\#(names)]"#, #""until":\#(wanted.until)"#]
        return "{\((others + ours).joined(separator: ","))}"
    }

    private static func names(_ value: JSONReader) -> [String]? {
        var reader = value
        var names: [String] = []
        do throws(JSONFault) {
            try reader.readArray { reader throws(JSONFault) in names.append(try reader.readString()) }
        } catch { return nil }
        return names
    }

    private static func seconds(_ value: JSONReader) -> Int64? {
        var reader = value
        do throws(JSONFault) { return try reader.readInteger() } catch { return nil }
    }
}

/// What the claims say of a user's access.
struct AccessClaims: Hashable, Sendable {
    /// The team's names for what the user has, sorted.
    var entitlements: [String]
    /// Until when that holds, in seconds since 1970; 0: there is no access.
    var until: Int64

    static let none = AccessClaims(entitlements: [], until: 0)
}
