/// Identifiers in the store's form that are the same in every run.
enum Identifiers {
    /// Ten hexadecimal digits of a text's FNV-1a hash.
    static func hex(_ text: String) -> String {
        padded(String(hash(text) & 0xff_ffff_ffff, radix: 16), to: 10)
    }

    /// Thirteen decimal digits of a text's hash.
    static func digits(_ text: String) -> String {
        padded(Int64(hash(text) % 10_000_000_000_000))
    }

    /// A number with thirteen digits, or as many as asked for.
    static func padded(_ number: Int64, to width: Int = 13) -> String {
        padded("\(number)", to: width)
    }

    private static func padded(_ digits: String, to width: Int) -> String {
        String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
    }

    /// A transaction identifier in the form of a store, around thirteen to seventeen digits.
    static func transaction(store: String, digits: String) -> String {
        switch store {
        case "app_store", "mac_app_store": return "48" + digits
        case "play_store":
            let all = Array(padded(digits, to: 17))
            return "GPA.\(String(all[0..<4]))-\(String(all[4..<8]))-\(String(all[8..<12]))-\(String(all[12...]))"
        case "promotional": return "rcpromo_" + digits
        case "stripe": return "si_" + digits
        case "amazon": return "\(digits):3:11"
        default: return "txn_" + digits
        }
    }

    /// A number of a text, the same in every process (FNV-1a).
    static func fingerprint(_ text: String) -> UInt64 {
        text.utf8.reduce(14_695_981_039_346_656_037) { ($0 ^ UInt64($1)) &* 1_099_511_628_211 }
    }

    private static func hash(_ text: String) -> UInt64 {
        var hash = fingerprint(text)
        // FNV leaves the upper bits of short texts poorly mixed, and both ends of the hash are used here.
        hash = (hash ^ (hash >> 31)) &* 0x9e37_79b9_7f4a_7c15
        return hash ^ (hash >> 29)
    }
}
