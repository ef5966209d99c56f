/// Percent-encoding of path segments and query values (RFC 3986).
enum PercentCoding {
    /// Decodes one segment; nil when an escape is malformed or the bytes are no UTF-8.
    ///
    /// In query values, but not in paths, `+` means a space.
    static func decode(_ text: Substring, plusIsSpace: Bool = false) -> String? {
        var text = text
        let needsWork = text.withUTF8 { bytes in
            bytes.contains(UInt8(ascii: "%")) || (plusIsSpace && bytes.contains(UInt8(ascii: "+")))
        }
        guard needsWork else { return String(text) }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.utf8.count)
        var iterator = text.utf8.makeIterator()
        while let byte = iterator.next() {
            if byte == UInt8(ascii: "%") {
                guard let high = iterator.next().flatMap(hexValue), let low = iterator.next().flatMap(hexValue) else {
                    return nil
                }
                bytes.append(high << 4 | low)
            } else {
                bytes.append(plusIsSpace && byte == UInt8(ascii: "+") ? UInt8(ascii: " ") : byte)
            }
        }
        return String(validating: bytes, as: UTF8.self)
    }

    /// Encodes every byte that is not unreserved: `$RCAnonymousID:a` becomes `%24RCAnonymousID%3Aa`.
    static func encode(_ text: String) -> String {
        var text = text
        guard !text.withUTF8({ $0.allSatisfy(isUnreserved) }) else { return text }
        func digit(_ value: UInt8) -> String { String(value, radix: 16, uppercase: true) }
        return text.utf8.map { byte in
            isUnreserved(byte) ? String(UnicodeScalar(byte)) : "%" + digit(byte >> 4) + digit(byte & 15)
        }.joined()
    }

    /// The decoded value of a query key; nil when it is absent or malformed.
    static func value(of key: String, in query: Substring) -> String? {
        for pair in query.split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.first.flatMap({ decode($0, plusIsSpace: true) }) == key {
                return parts.count > 1 ? decode(parts[1], plusIsSpace: true) : ""
            }
        }
        return nil
    }

    private static func isUnreserved(_ byte: UInt8) -> Bool { byte.isAlphanumeric || "-._~".utf8.contains(byte) }

    private static func hexValue(_ byte: UInt8) -> UInt8? {
        Character(UnicodeScalar(byte)).hexDigitValue.map { UInt8($0) }
    }
}

extension UInt8 {
    /// Whether the byte is an ASCII letter or digit.
    var isAlphanumeric: Bool {
        switch self {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: false
        }
    }
}
