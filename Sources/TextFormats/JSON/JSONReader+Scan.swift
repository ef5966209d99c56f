extension JSONReader {
    /// Skips white space and returns the next byte without consuming it.
    @inlinable
    public mutating func token() throws(JSONFault) -> UInt8 {
        skipWhitespace()
        guard position < bytes.count else { throw .truncated }
        return bytes[position]
    }

    @inlinable
    public mutating func skipWhitespace() {
        while position < bytes.count {
            switch bytes[position] {
            case 0x20, 0x0A, 0x0D, 0x09: position += 1
            default: return
            }
        }
    }

    /// Checks and passes over one value of any kind, as strictly as if it were read.
    public mutating func skipValue() throws(JSONFault) { try skip(isRead: true) }

    /// Passes over one value of any kind that is not read.
    ///
    /// Only its form counts: devices cut texts in the middle of an emoji, and a number may be as large as it likes.
    public mutating func passOver() throws(JSONFault) { try skip(isRead: false) }

    private mutating func skip(isRead: Bool) throws(JSONFault) {
        // One bit a level, set for objects: the limit on depth is far below 64.
        var objects: UInt64 = 0
        var level = 0
        repeat {
            switch try token() {
            case UInt8(ascii: "{"):
                try push(&level)
                objects |= 1 << UInt64(level)
                if try token() != UInt8(ascii: "}") {
                    _ = try scanKey(isRead: isRead)
                    continue
                }
                position += 1
                level -= 1
            case UInt8(ascii: "["):
                try push(&level)
                objects &= ~(1 << UInt64(level))
                if try token() != UInt8(ascii: "]") { continue }
                position += 1
                level -= 1
            case UInt8(ascii: "\""): _ = try scanString(isRead: isRead)
            case UInt8(ascii: "t"): try scanLiteral("true")
            case UInt8(ascii: "f"): try scanLiteral("false")
            case UInt8(ascii: "n"): try scanLiteral("null")
            default: _ = try scanNumber(isRead: isRead)
            }
            try closeOrStep(&level, objects, isRead: isRead)
        } while level > 0
    }

    private mutating func push(_ level: inout Int) throws(JSONFault) {
        guard depth + level < Self.maximumDepth else { throw .tooDeep }
        level += 1
        position += 1
    }

    /// After a value: leaves every container that ends here, then steps over a comma (and a key) to the next value.
    private mutating func closeOrStep(_ level: inout Int, _ objects: UInt64, isRead: Bool) throws(JSONFault) {
        while level > 0 {
            let isObject = objects & (1 << UInt64(level)) != 0
            switch try token() {
            case UInt8(ascii: ","):
                position += 1
                if isObject { _ = try scanKey(isRead: isRead) }
                return
            case UInt8(ascii: "}") where isObject, UInt8(ascii: "]") where !isObject:
                position += 1
                level -= 1
            default:
                throw .syntax
            }
        }
    }

    /// Passes over a member's name and its colon.
    public mutating func scanKey(isRead: Bool = false) throws(JSONFault) -> (range: Range<Int>, isEscaped: Bool) {
        guard try token() == UInt8(ascii: "\"") else { throw .syntax }
        let key = try scanString(isRead: isRead)
        guard try token() == UInt8(ascii: ":") else { throw .syntax }
        position += 1
        return key
    }

    public mutating func scanLiteral(_ literal: StaticString) throws(JSONFault) {
        let count = literal.utf8CodeUnitCount
        guard position + count <= bytes.count else { throw .truncated }
        for offset in 0..<count where bytes[position + offset] != literal.utf8Start[offset] { throw .syntax }
        position += count
    }

    /// Passes over a number; one that is not read may have any size.
    ///
    /// `outOfRange` for numbers that might be beyond a double, so that no reader of the text disagrees.
    public mutating func scanNumber(isRead: Bool = true) throws(JSONFault) -> (range: Range<Int>, isInteger: Bool) {
        let start = position
        if try peek() == UInt8(ascii: "-") { position += 1 }
        // No leading zeros: after a zero the whole part is over.
        if try peek() == UInt8(ascii: "0") { position += 1 } else { try scanDigits() }
        var isInteger = true
        if position < bytes.count, bytes[position] == UInt8(ascii: ".") {
            isInteger = false
            position += 1
            try scanDigits()
        }
        var magnitude = position - start
        if position < bytes.count, bytes[position] | 0x20 == UInt8(ascii: "e") {
            isInteger = false
            position += 1
            let sign = try peek()
            if sign == UInt8(ascii: "+") || sign == UInt8(ascii: "-") { position += 1 }
            let digits = position
            try scanDigits()
            let exponent = bytes[digits..<position].reduce(0) { min($0 * 10 + Int($1 - UInt8(ascii: "0")), 1_000) }
            magnitude += exponent
        }
        guard !isRead || magnitude <= Self.maximumMagnitude else { throw .outOfRange }
        return (start..<position, isInteger)
    }

    /// Passes over one digit or more.
    private mutating func scanDigits() throws(JSONFault) {
        guard try peek().isDigit else { throw .syntax }
        while position < bytes.count, bytes[position].isDigit { position += 1 }
    }

    private func peek() throws(JSONFault) -> UInt8 {
        guard position < bytes.count else { throw .truncated }
        return bytes[position]
    }
}
