import Mustache

/// Makes text harmless in a page and in an attribute.
///
/// Sign by sign: the library's own goes by what people see as one character, and lets a quotation mark pass that has an
/// accent above it, which browsers read as the attribute's end.
struct PageEscape: MustacheContentType {
    /// What templates call it in their first line.
    static let name = "PAGE"

    func escapeText(_ text: String) -> String {
        var escaped: [UInt8] = []
        escaped.reserveCapacity(text.utf8.count)
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "&"): escaped += "&amp;".utf8
            case UInt8(ascii: "<"): escaped += "&lt;".utf8
            case UInt8(ascii: ">"): escaped += "&gt;".utf8
            case UInt8(ascii: "\""): escaped += "&quot;".utf8
            case UInt8(ascii: "'"): escaped += "&#39;".utf8
            case UInt8(ascii: "`"): escaped += "&#96;".utf8
            // Other signs of control have no place in a page.
            case 0..<9, 11, 12, 14..<32: escaped += "\u{FFFD}".utf8
            default: escaped.append(byte)
            }
        }
        return String(decoding: escaped, as: UTF8.self)
    }
}
