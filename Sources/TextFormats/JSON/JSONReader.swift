/// Reads a JSON text (RFC 8259) in one pass, building only what the caller asks for.
///
/// Values that the caller does not read are checked and skipped without being built, so a body costs one scan whatever
/// it holds. Nothing recurses without bound: depth and size have limits. A fault leaves the reader where it stopped; a
/// caller that wants to go on past a bad value keeps a copy of the reader from before it and skips with that.
///
/// Generic functions are public and inlinable, so that the compiler specializes them for the fields of other modules:
/// with `package` access it does not, and reading a store's answer takes a third longer.
public struct JSONReader {
    /// The deepest nesting of containers that is read.
    public static let maximumDepth = 32
    /// The largest text that is read, in bytes.
    public static let maximumBytes = 4 << 20
    /// The longest string that is built, in bytes of UTF-8.
    ///
    /// What we keep goes into indexes of PostgreSQL, whose entries hold up to 2,704 bytes.
    public static let maximumStringBytes = 2_000
    /// The most digits and powers of ten of a number, together; a double holds a little more.
    public static let maximumMagnitude = 300

    public let bytes: [UInt8]
    public var position = 0
    public var depth = 0

    /// Begins at the first byte.
    ///
    /// - Throws: `tooLarge`.
    public init(_ bytes: [UInt8]) throws(JSONFault) {
        guard bytes.count <= Self.maximumBytes else { throw .tooLarge }
        self.bytes = bytes
    }

    /// Reads a text that is one object; members without a field are skipped.
    @inlinable
    public static func readObject<Field>(
        in bytes: [UInt8],
        _ fields: JSONFields<Field>,
        _ read: (inout JSONReader, Field) throws(JSONFault) -> Void
    ) throws(JSONFault) {
        var reader = try JSONReader(bytes)
        try reader.readObject(fields, read)
        try reader.finish()
    }

    /// Reads an object; `read` reads the value of one member, completely, and members without a field are skipped.
    ///
    /// `wrongType` where the value is no object, `duplicate`, what `read` throws, faults of the text.
    @inlinable
    public mutating func readObject<Field>(
        _ fields: JSONFields<Field>,
        _ read: (inout JSONReader, Field) throws(JSONFault) -> Void
    ) throws(JSONFault) {
        guard try token() == UInt8(ascii: "{") else { throw .wrongType }
        try descend()
        var seen: UInt64 = 0
        var isFirst = true
        while try hasNext(before: UInt8(ascii: "}"), isFirst: isFirst) {
            isFirst = false
            let key = try scanKey()
            let match = key.isEscaped ? find(escaped: key.range, fields) : fields.find(bytes, key.range)
            guard let (index, field) = match else {
                try passOver()
                continue
            }
            let bit: UInt64 = 1 << UInt64(index)
            guard seen & bit == 0 else { throw .duplicate }
            seen |= bit
            try read(&self, field)
        }
        depth -= 1
    }

    /// Reads an array; `read` reads one element, completely.
    ///
    /// `wrongType` where the value is no array, what `read` throws, faults of the text.
    @inlinable
    public mutating func readArray(_ read: (inout JSONReader) throws(JSONFault) -> Void) throws(JSONFault) {
        guard try token() == UInt8(ascii: "[") else { throw .wrongType }
        try descend()
        var isFirst = true
        while try hasNext(before: UInt8(ascii: "]"), isFirst: isFirst) {
            isFirst = false
            try read(&self)
        }
        depth -= 1
    }

    /// Reads a string of at most `limit` bytes of UTF-8, without NUL, which PostgreSQL's `text` cannot hold.
    ///
    /// After `wrongType` and `outOfRange` the reader stands behind the string where its end is known.
    public mutating func readString(upTo limit: Int = maximumStringBytes) throws(JSONFault) -> String {
        guard try token() == UInt8(ascii: "\"") else { throw .wrongType }
        let (range, isEscaped) = try scanString()
        guard isEscaped else {
            guard range.count <= limit else { throw .outOfRange }
            return String(decoding: bytes[range], as: UTF8.self)
        }
        let decoded = try unescape(range, limit: limit)
        guard !decoded.contains(0) else { throw .outOfRange }
        return String(decoding: decoded, as: UTF8.self)
    }

    /// Reads a string or `null`.
    public mutating func readOptionalString() throws(JSONFault) -> String? {
        try readNull() ? nil : try readString()
    }

    /// Reads a whole number, written without fraction and exponent.
    public mutating func readInteger() throws(JSONFault) -> Int64 {
        let first = try token()
        guard first == UInt8(ascii: "-") || first.isDigit else { throw .wrongType }
        let (range, isInteger) = try scanNumber()
        guard isInteger else { throw .wrongType }
        let isNegative = first == UInt8(ascii: "-")
        var value: Int64 = 0
        for byte in bytes[range.dropFirst(isNegative ? 1 : 0)] {
            let (shifted, overflows) = value.multipliedReportingOverflow(by: 10)
            let digit = Int64(byte - UInt8(ascii: "0"))
            let (sum, overflowsToo) = shifted.addingReportingOverflow(isNegative ? -digit : digit)
            guard !overflows, !overflowsToo else { throw .outOfRange }
            value = sum
        }
        return value
    }

    /// Reads a whole number or `null`.
    public mutating func readOptionalInteger() throws(JSONFault) -> Int64? {
        try readNull() ? nil : try readInteger()
    }

    /// Reads `true` or `false`.
    public mutating func readBool() throws(JSONFault) -> Bool {
        switch try token() {
        case UInt8(ascii: "t"):
            try scanLiteral("true")
            return true
        case UInt8(ascii: "f"):
            try scanLiteral("false")
            return false
        default:
            throw .wrongType
        }
    }

    /// Consumes `null` if it comes next.
    public mutating func readNull() throws(JSONFault) -> Bool {
        guard try token() == UInt8(ascii: "n") else { return false }
        try scanLiteral("null")
        return true
    }

    /// Makes sure that nothing but white space follows.
    public mutating func finish() throws(JSONFault) {
        skipWhitespace()
        guard position == bytes.count else { throw .syntax }
    }

    @inlinable
    public mutating func descend() throws(JSONFault) {
        guard depth < Self.maximumDepth else { throw .tooDeep }
        depth += 1
        position += 1
    }

    /// Steps to the next member or element.
    ///
    /// - Returns: `false` once `end` is consumed.
    @inlinable
    public mutating func hasNext(before end: UInt8, isFirst: Bool) throws(JSONFault) -> Bool {
        let byte = try token()
        if byte == end {
            position += 1
            return false
        }
        if isFirst { return true }
        guard byte == UInt8(ascii: ",") else { throw .syntax }
        position += 1
        // A comma promises another value; without this the end would be taken for a value's first byte.
        guard try token() != end else { throw .syntax }
        return true
    }

    @inlinable
    func find<Field>(escaped range: Range<Int>, _ fields: JSONFields<Field>) -> (index: Int, field: Field)? {
        // A name that is no text is none of ours.
        guard let key = try? unescape(range, limit: Self.maximumBytes) else { return nil }
        return fields.find(key, 0..<key.count)
    }
}

/// Why a JSON text, or a value in it, was refused, as a clause for people; without any text of the body.
public enum JSONFault: String, Error, Sendable {
    /// The body is larger than `JSONReader.maximumBytes`.
    case tooLarge = "it is too large"
    /// Containers nest deeper than `JSONReader.maximumDepth`.
    case tooDeep = "it is nested too deep"
    /// The text ends inside a value, or is empty.
    case truncated = "it is cut off"
    /// A byte that JSON does not allow at its place.
    case syntax = "it is no JSON, or something follows it"
    /// A string that is not valid UTF-8, or has a broken escape.
    case badString = "it holds text that is no UTF-8 or has a broken escape"
    /// The value is well formed but not of the type asked for.
    case wrongType = "it, or a member of it, is of a wrong type"
    /// The value has the right type but is out of range: too long a string, a NUL in it, too large a number.
    case outOfRange = "a member is out of range"
    /// A member that we read occurs twice, so that it is unclear which one counts.
    case duplicate = "a member stands in it twice"
    /// A member that must be there is not.
    case missing = "a member is missing"

    /// What is wrong, as a clause for people.
    public var clause: String { rawValue }
}
