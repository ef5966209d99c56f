/// Writes JSON straight into bytes; the common answers are far too frequent for a general encoder.
struct JSONBytes {
    private(set) var bytes: [UInt8] = []
    private var needsComma = false

    init() {
        bytes.reserveCapacity(2048)
    }

    /// The bytes of one object.
    static func object(_ body: (inout JSONBytes) throws -> Void) rethrows -> [UInt8] {
        var json = JSONBytes()
        try json.object(body)
        return json.bytes
    }

    // MARK: Values

    mutating func object(_ body: (inout JSONBytes) throws -> Void) rethrows {
        separate()
        bytes.append(UInt8(ascii: "{"))
        needsComma = false
        try body(&self)
        bytes.append(UInt8(ascii: "}"))
        needsComma = true
    }

    mutating func value(_ text: String) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        bytes.append(escaping: text)
        bytes.append(UInt8(ascii: "\""))
        needsComma = true
    }

    mutating func value(_ number: Int64) {
        separate()
        bytes.append(decimal: number)
        needsComma = true
    }

    /// Writes JSON that is already finished.
    mutating func raw(_ json: String) {
        separate()
        bytes.append(text: json)
        needsComma = true
    }

    // MARK: Members

    /// Writes a key that is not known beforehand.
    mutating func key(_ name: String) {
        value(name)
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    /// Writes `"name":`; the name must need no escaping.
    private mutating func key(_ name: StaticString) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        bytes.append(literal: name)
        bytes.append(literal: "\":")
        needsComma = false
    }

    /// Writes an object without members.
    mutating func object(_ name: StaticString) {
        member(name, raw: "{}")
    }

    mutating func object(_ name: StaticString, _ body: (inout JSONBytes) throws -> Void) rethrows {
        key(name)
        try object(body)
    }

    mutating func array(_ name: StaticString, _ body: (inout JSONBytes) throws -> Void) rethrows {
        key(name)
        bytes.append(UInt8(ascii: "["))
        try body(&self)
        bytes.append(UInt8(ascii: "]"))
        needsComma = true
    }

    mutating func array(_ name: StaticString, _ texts: [String]) {
        array(name) { json in
            for text in texts { json.value(text) }
        }
    }

    /// Writes a member whose value the closure writes.
    mutating func member(_ name: StaticString, _ value: (inout JSONBytes) throws -> Void) rethrows {
        key(name)
        try value(&self)
    }

    mutating func member(_ name: StaticString, _ text: String?) {
        guard let text else { return null(name) }
        key(name)
        value(text)
    }

    mutating func member(_ name: StaticString, _ number: Int64?) {
        guard let number else { return null(name) }
        key(name)
        value(number)
    }

    mutating func member(_ name: StaticString, _ number: Int) {
        key(name)
        value(Int64(number))
    }

    mutating func member(_ name: StaticString, _ flag: Bool) {
        key(name)
        bytes.append(literal: flag ? "true" : "false")
        needsComma = true
    }

    /// Writes a text that is a literal and needs no escaping.
    mutating func member(_ name: StaticString, literal text: StaticString) {
        key(name)
        bytes.append(UInt8(ascii: "\""))
        bytes.append(literal: text)
        bytes.append(UInt8(ascii: "\""))
        needsComma = true
    }

    mutating func member(_ name: StaticString, raw json: String) {
        key(name)
        raw(json)
    }

    mutating func null(_ name: StaticString) {
        key(name)
        bytes.append(literal: "null")
        needsComma = true
    }

    /// Writes a member where it has a value.
    mutating func optional(_ name: StaticString, _ text: String?) {
        if let text { member(name, text) }
    }

    /// Writes a member where it has a value.
    mutating func optional(_ name: StaticString, _ number: Int64?) {
        if let number { member(name, number) }
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
