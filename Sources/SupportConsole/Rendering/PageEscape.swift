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
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": escaped += "&amp;".utf8
            case "<": escaped += "&lt;".utf8
            case ">": escaped += "&gt;".utf8
            case "\"": escaped += "&quot;".utf8
            case "'": escaped += "&#39;".utf8
            case "`": escaped += "&#96;".utf8
            case "\t", "\n", "\r": escaped.append(UInt8(scalar.value))
            // Other signs of control have no place in a page, nor have those that turn the direction of what others wrote.
            case "\u{0}"..<" ", "\u{7F}"..."\u{9F}", "\u{61C}", "\u{200E}", "\u{200F}", "\u{2028}"..."\u{202E}",
                "\u{2066}"..."\u{2069}":
                escaped += "\u{FFFD}".utf8
            default: escaped += UTF8.encode(scalar).map(Array.init) ?? []
            }
        }
        return String(decoding: escaped, as: UTF8.self)
    }
}
