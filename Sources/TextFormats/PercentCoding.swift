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

extension UInt8 {
    /// Whether this is a letter or a digit of ASCII.
    package var isLetterOrDigit: Bool { isDigit || (0x41...0x5A).contains(self & 0xDF) }

    /// Whether this is a digit of ASCII.
    package var isDigit: Bool { (0x30...0x39).contains(self) }

    /// Whether this is a visible character of ASCII.
    package var isVisible: Bool { (0x21...0x7E).contains(self) }
}
