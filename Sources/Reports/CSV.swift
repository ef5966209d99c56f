/// Rows of a CSV file.
///
/// RFC 4180: every line ends with CR LF, and a field that holds a comma, a quotation mark or a line's end stands in quotation
/// marks. A text that a spreadsheet would take for a formula, for it begins with `=`, `+`, `-`, `@`, a tab or a line's
/// end, gets an apostrophe before it. The JSON has the exact text.
package enum CSV {
    /// One row, with its end.
    package static func row(_ fields: [String]) -> String { fields.map(field).joined(separator: ",") + "\r\n" }

    private static let fullWidth = Set(["\u{FF1D}", "\u{FF0B}", "\u{FF0D}", "\u{FF20}"].map { Array($0.utf8) })

    /// Goes by bytes: what people see as one character may begin with a sign that a spreadsheet reads alone.
    private static func field(_ text: String) -> String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.utf8.count + 3)
        switch text.utf8.first {
        case UInt8(ascii: "="), UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "@"), 0x09, 0x0A, 0x0D:
            bytes.append(UInt8(ascii: "'"))
        // The same signs in full width.
        case 0xEF where fullWidth.contains(Array(text.utf8.prefix(3))): bytes.append(UInt8(ascii: "'"))
        default: break
        }
        var isQuoted = false
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""):
                isQuoted = true
                bytes.append(byte)
            // Where a comma is in numbers, a semicolon or a tab parts the fields.
            case UInt8(ascii: ","), UInt8(ascii: ";"), 0x09, 0x0A, 0x0D: isQuoted = true
            default: break
            }
            bytes.append(byte)
        }
        let field = String(decoding: bytes, as: UTF8.self)
        return isQuoted ? "\"" + field + "\"" : field
    }
}
