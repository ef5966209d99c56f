/// Makes text from outside harmless in a log, whether a person's terminal or a parser reads it.
enum Escape {
    /// A text as it may stand between double quotes in JSON.
    struct Result {
        var bytes: [UInt8]
        /// Nothing was escaped or cut.
        var isVerbatim: Bool
    }

    private static let ellipsis: [UInt8] = Array("…".utf8)
    private static let hexDigits: [UInt8] = Array("0123456789abcdef".utf8)

    /// Escapes a text, and cuts it to `limit` bytes with an ellipsis; the bytes are always valid UTF-8.
    ///
    /// Quotes, backslashes, and every character that a terminal acts upon or hides are replaced: control characters
    /// (line ends and ANSI sequences), direction marks, line and paragraph separators. An escape is never cut in half.
    static func json(_ text: String, limit: Int) -> Result {
        var result = Result(bytes: [], isVerbatim: true)
        result.bytes.reserveCapacity(min(text.utf8.count, limit))
        for scalar in text.unicodeScalars {
            let before = result.bytes.count
            append(scalar, to: &result)
            guard result.bytes.count <= limit - ellipsis.count else {
                result.bytes.removeSubrange(before...)
                result.bytes += ellipsis
                result.isVerbatim = false
                break
            }
        }
        return result
    }

    private static func append(_ scalar: Unicode.Scalar, to result: inout Result) {
        switch scalar {
        case "\"", "\\":
            result.isVerbatim = false
            result.bytes.append(0x5C)
            result.bytes.append(UInt8(truncatingIfNeeded: scalar.value))
        case " "..."~":
            result.bytes.append(UInt8(truncatingIfNeeded: scalar.value))
        default:
            guard isHarmful(scalar) else {
                result.bytes.append(contentsOf: scalar.utf8)
                return
            }
            result.isVerbatim = false
            switch scalar {
            case "\n": result.bytes += [0x5C, 0x6E]
            case "\r": result.bytes += [0x5C, 0x72]
            case "\t": result.bytes += [0x5C, 0x74]
            default: for unit in scalar.utf16 { appendUnit(unit, to: &result.bytes) }
            }
        }
    }

    private static func appendUnit(_ unit: UInt16, to bytes: inout [UInt8]) {
        bytes += [0x5C, 0x75]
        for shift in [12, 8, 4, 0] { bytes.append(hexDigits[Int(unit >> UInt16(shift)) & 0xF]) }
    }

    private static func isHarmful(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .unassigned, .surrogate: true
        default: false
        }
    }
}
