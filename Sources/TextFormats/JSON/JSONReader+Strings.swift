extension JSONReader {
    /// Passes over a string whose opening quote comes next, checking its UTF-8 and its escapes.
    ///
    /// `isRead`: whether half of a surrogate pair is refused at once; where the text is built it is in any case.
    ///
    /// - Returns: where its content stands, and whether any of it is escaped.
    public mutating func scanString(isRead: Bool = false) throws(JSONFault) -> (range: Range<Int>, isEscaped: Bool) {
        let start = position + 1
        var isEscaped = false
        var index = start
        while index < bytes.count {
            let byte = bytes[index]
            // Comparisons, as a switch over ranges is slow without optimization.
            if byte == UInt8(ascii: "\"") {
                position = index + 1
                return (start..<index, isEscaped)
            } else if byte == UInt8(ascii: "\\") {
                isEscaped = true
                if isRead { _ = try escape(at: &index) } else { try passEscape(at: &index) }
            } else if byte < 0x20 {
                throw .badString
            } else if byte < 0x80 {
                index += 1
            } else {
                index += try lengthOfSequence(at: index)
            }
        }
        throw .truncated
    }

    /// Moves `index` behind the escape whose backslash stands there.
    private func passEscape(at index: inout Int) throws(JSONFault) {
        guard index + 1 < bytes.count else { throw .truncated }
        if bytes[index + 1] == UInt8(ascii: "u") {
            _ = try codeUnit(at: index)
            index += 6
        } else {
            _ = try escape(at: &index)
        }
    }

    /// Builds the bytes of a string that `scanString` passed.
    ///
    /// Half of a surrogate pair that stands alone is a `badString`: no two readers would take it for the same text.
    public func unescape(_ range: Range<Int>, limit: Int) throws(JSONFault) -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity(min(range.count, limit))
        var index = range.lowerBound
        while index < range.upperBound {
            if bytes[index] == UInt8(ascii: "\\") {
                text += UTF8.encode(try escape(at: &index)) ?? UTF8.encodedReplacementCharacter
            } else {
                text.append(bytes[index])
                index += 1
            }
            guard text.count <= limit else { throw .outOfRange }
        }
        return text
    }

    /// Reads one escape, whose backslash stands at `index`, and moves `index` behind it.
    private func escape(at index: inout Int) throws(JSONFault) -> Unicode.Scalar {
        guard index + 1 < bytes.count else { throw .truncated }
        let kind = bytes[index + 1]
        if kind == UInt8(ascii: "u") {
            let first = try codeUnit(at: index)
            index += 6
            if let scalar = Unicode.Scalar(first) { return scalar }
            // Half a pair means nothing alone, and it has no UTF-8: the other half must follow.
            guard index + 1 < bytes.count else { throw .truncated }
            guard first < 0xDC00, bytes[index] == UInt8(ascii: "\\"), bytes[index + 1] == UInt8(ascii: "u") else {
                throw .badString
            }
            let second = try codeUnit(at: index)
            index += 6
            guard (0xDC00..<0xE000).contains(second),
                let scalar = Unicode.Scalar(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
            else { throw .badString }
            return scalar
        }
        index += 2
        switch kind {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return Unicode.Scalar(kind)
        case UInt8(ascii: "b"): return "\u{08}"
        case UInt8(ascii: "f"): return "\u{0C}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        default: throw .badString
        }
    }

    /// The four hexadecimal digits of the `\u` at `index`.
    private func codeUnit(at index: Int) throws(JSONFault) -> UInt32 {
        guard index + 6 <= bytes.count else { throw .truncated }
        var value: UInt32 = 0
        for byte in bytes[index + 2..<index + 6] {
            guard let digit = Hex.value(of: byte) else { throw .badString }
            value = value << 4 | UInt32(digit)
        }
        return value
    }

    /// The length of the multi-byte UTF-8 sequence at `index`, by the table of RFC 3629 section 4.
    private func lengthOfSequence(at index: Int) throws(JSONFault) -> Int {
        let second: ClosedRange<UInt8>
        let length: Int
        switch bytes[index] {
        case 0xC2...0xDF: (second, length) = (0x80...0xBF, 2)
        case 0xE0: (second, length) = (0xA0...0xBF, 3)
        case 0xED: (second, length) = (0x80...0x9F, 3)
        case 0xE1...0xEF: (second, length) = (0x80...0xBF, 3)
        case 0xF0: (second, length) = (0x90...0xBF, 4)
        case 0xF1...0xF3: (second, length) = (0x80...0xBF, 4)
        case 0xF4: (second, length) = (0x80...0x8F, 4)
        default: throw .badString
        }
        guard index + length <= bytes.count else { throw .truncated }
        guard second.contains(bytes[index + 1]) else { throw .badString }
        for offset in 2..<max(length, 2) where bytes[index + offset] & 0xC0 != 0x80 { throw .badString }
        return length
    }
}
