/// Percent-encoding as RFC 3986 has it.
package enum PercentCoding {
    /// Encodes every byte save the unreserved ones (letters, digits, `-`, `.`, `_`, `~`).
    package static func encode(_ text: String) -> String {
        var encoded: [UInt8] = []
        encoded.reserveCapacity(text.utf8.count)
        for byte in text.utf8 {
            if byte.isLetterOrDigit || "-._~".utf8.contains(byte) {
                encoded.append(byte)
            } else {
                encoded += "%\(Hex.encode([byte]).uppercased())".utf8
            }
        }
        return String(decoding: encoded, as: UTF8.self)
    }

    /// Decodes; `+` stands for itself.
    ///
    /// - Returns: `nil` for a broken escape and for bytes that are no UTF-8.
    package static func decode(_ text: some Collection<UInt8>) -> String? {
        var decoded: [UInt8] = []
        var rest = text[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                decoded.append(byte)
                continue
            }
            guard let high = rest.popFirst().flatMap(Hex.value(of:)),
                let low = rest.popFirst().flatMap(Hex.value(of:))
            else { return nil }
            decoded.append(high << 4 | low)
        }
        return String(validating: decoded, as: UTF8.self)
    }
}

/// Bytes as two hexadecimal digits each.
package enum Hex {
    private static let digits = Array("0123456789abcdef".utf8)

    /// Writes bytes, in lower case.
    package static func encode(_ bytes: some Sequence<UInt8>) -> String {
        var text: [UInt8] = []
        for byte in bytes { text += [digits[Int(byte >> 4)], digits[Int(byte & 15)]] }
        return String(decoding: text, as: UTF8.self)
    }

    /// Reads bytes, in either case; `nil` for all else.
    package static func decode(_ digits: some Collection<UInt8>) -> [UInt8]? {
        let values = digits.compactMap(value)
        guard values.count == digits.count, values.count.isMultiple(of: 2) else { return nil }
        return stride(from: 0, to: values.count, by: 2).map { values[$0] << 4 | values[$0 + 1] }
    }

    /// What a digit stands for, in either case; `nil` for any other byte.
    package static func value(of digit: UInt8) -> UInt8? {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}

extension UInt8 {
    /// Whether this is a letter or a digit of ASCII.
    package var isLetterOrDigit: Bool { isDigit || (0x41...0x5A).contains(self & 0xDF) }

    /// Whether this is a digit of ASCII.
    package var isDigit: Bool { (0x30...0x39).contains(self) }

    /// Whether this is a visible character of ASCII.
    package var isVisible: Bool { (0x21...0x7E).contains(self) }
}
