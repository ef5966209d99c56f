/// Writes JSON straight into bytes; the common answers are far too frequent for a general encoder.
struct JSONBytes {
    private(set) var bytes: [UInt8] = []
    private var needsComma = false

    init(capacity: Int = 2048) {
        bytes.reserveCapacity(capacity)
    }

    // MARK: Structure

    mutating func beginObject() {
        separate()
        bytes.append(UInt8(ascii: "{"))
        needsComma = false
    }

    mutating func endObject() {
        bytes.append(UInt8(ascii: "}"))
        needsComma = true
    }

    mutating func beginArray() {
        separate()
        bytes.append(UInt8(ascii: "["))
        needsComma = false
    }

    mutating func endArray() {
        bytes.append(UInt8(ascii: "]"))
        needsComma = true
    }

    /// Writes `"name":`; the name must need no escaping.
    mutating func key(_ name: StaticString) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        bytes.append(literal: name)
        bytes.append(literal: "\":")
        needsComma = false
    }

    /// Writes a key that is not known beforehand.
    mutating func key(_ name: String) {
        value(name)
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    // MARK: Values

    mutating func value(_ text: String) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        bytes.append(escaping: text)
        bytes.append(UInt8(ascii: "\""))
        needsComma = true
    }

    mutating func value(_ text: String?) {
        if let text { value(text) } else { null() }
    }

    mutating func value(_ number: Int64) {
        separate()
        bytes.append(decimal: number)
        needsComma = true
    }

    mutating func value(_ number: Int64?) {
        if let number { value(number) } else { null() }
    }

    mutating func value(_ number: Int) {
        value(Int64(number))
    }

    mutating func value(_ flag: Bool) {
        separate()
        bytes.append(literal: flag ? "true" : "false")
        needsComma = true
    }

    mutating func null() {
        separate()
        bytes.append(literal: "null")
        needsComma = true
    }

    /// Writes JSON that is already finished.
    mutating func raw(_ json: String) {
        separate()
        bytes.append(text: json)
        needsComma = true
    }

    /// Writes a text that is a literal and needs no escaping.
    mutating func literal(_ text: StaticString) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        bytes.append(literal: text)
        bytes.append(UInt8(ascii: "\""))
        needsComma = true
    }

    private mutating func separate() {
        if needsComma { bytes.append(UInt8(ascii: ",")) }
    }
}

// Appending to an array is several times cheaper here than to a `ByteBuffer`, whose storage is checked on each access.
extension [UInt8] {
    /// Appends a literal.
    mutating func append(literal: StaticString) {
        literal.withUTF8Buffer { append(contentsOf: $0) }
    }

    /// Appends a text as it is.
    mutating func append(text: String) {
        var text = text
        text.withUTF8 { append(contentsOf: $0) }
    }

    /// Appends a text as the inside of a JSON string.
    mutating func append(escaping text: String) {
        var text = text
        text.withUTF8 { source in
            for byte in source where byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") {
                appendEscaped(source)
                return
            }
            append(contentsOf: source)
        }
    }

    /// Appends a number in decimal.
    mutating func append(decimal number: Int64) {
        if number < 0 { append(UInt8(ascii: "-")) }
        var rest = number.magnitude
        // Twenty digits hold every 64-bit number.
        var digits: InlineArray<20, UInt8> = .init(repeating: 0)
        var start = 20
        repeat {
            start -= 1
            digits[start] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10)
            rest /= 10
        } while rest > 0
        for index in start..<20 { append(digits[index]) }
    }

    private mutating func appendEscaped(_ source: UnsafeBufferPointer<UInt8>) {
        for byte in source {
            switch byte {
            case UInt8(ascii: "\""): append(literal: "\\\"")
            case UInt8(ascii: "\\"): append(literal: "\\\\")
            case 0..<0x20:
                let digits = String(byte, radix: 16)
                append(text: "\\u" + String(repeating: "0", count: 4 - digits.utf8.count) + digits)
            default: append(byte)
            }
        }
    }
}
