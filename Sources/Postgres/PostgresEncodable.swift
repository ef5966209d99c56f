/// A value that can stand for `$n` in a query; an enum over a string or a number needs only to declare the conformance.
package protocol PostgresEncodable: Sendable {
    /// The type the parameter is declared to have.
    static var postgresType: PostgresType { get }

    /// Appends the value in the server's binary form, without a length.
    func encode(into bytes: inout [UInt8])

    /// Whether the value is NULL, in which case `encode(into:)` is not called.
    var isPostgresNull: Bool { get }

    /// Appends array elements, each behind its length; returns whether one of them was NULL.
    ///
    /// A requirement, so that the loop is compiled for the concrete element type and called once an array.
    static func encodeElements(_ elements: [Self], into bytes: inout [UInt8]) -> Bool

    /// As `encodeElements`, for elements that may be missing.
    static func encodeOptionalElements(_ elements: [Self?], into bytes: inout [UInt8]) -> Bool
}

extension PostgresEncodable {
    package var isPostgresNull: Bool { false }

    package static func encodeElements(_ elements: [Self], into bytes: inout [UInt8]) -> Bool {
        var hasNull = false
        for element in elements where !element.appendElement(to: &bytes) { hasNull = true }
        return hasNull
    }

    package static func encodeOptionalElements(_ elements: [Self?], into bytes: inout [UInt8]) -> Bool {
        var hasNull = false
        for element in elements {
            if let element, element.appendElement(to: &bytes) { continue }
            if element == nil { bytes.appendBigEndian(Int32(-1)) }
            hasNull = true
        }
        return hasNull
    }

    /// Appends one element behind its length; returns false for NULL.
    @inline(__always)
    private func appendElement(to bytes: inout [UInt8]) -> Bool {
        guard !isPostgresNull else {
            bytes.appendBigEndian(Int32(-1))
            return false
        }
        let start = bytes.count
        bytes.appendBigEndian(Int32(0))
        encode(into: &bytes)
        bytes.replaceBigEndian(at: start, with: Int32(bytes.count - start - 4))
        return true
    }
}

extension PostgresEncodable where Self: RawRepresentable, RawValue: PostgresEncodable {
    package static var postgresType: PostgresType { RawValue.postgresType }

    package func encode(into bytes: inout [UInt8]) { rawValue.encode(into: &bytes) }
}

/// One parameter, encoded.
package struct PostgresBind: Sendable {
    package let type: PostgresType
    /// The binary form; nil is NULL.
    package let bytes: [UInt8]?

    package init(_ value: some PostgresEncodable) {
        type = Swift.type(of: value).postgresType
        let isNull = value.isPostgresNull
        var encoded: [UInt8] = []
        if !isNull { value.encode(into: &encoded) }
        bytes = isNull ? nil : encoded
    }
}

/// Parameters may be personal data: what prints shows their shape only.
extension PostgresBind: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    package var description: String { "bind(type \(type.rawValue), \(bytes.map { "\($0.count) bytes" } ?? "NULL"))" }
    package var debugDescription: String { description }
    package var customMirror: Mirror { Mirror(self, children: []) }
}

extension [UInt8] {
    /// Appends an integer in network order.
    @inline(__always)
    mutating func appendBigEndian(_ value: some FixedWidthInteger) {
        Swift.withUnsafeBytes(of: value.bigEndian) { append(contentsOf: $0) }
    }

    /// Overwrites the four bytes at an offset.
    @inline(__always)
    mutating func replaceBigEndian(at offset: Int, with value: Int32) {
        withUnsafeMutableBytes { $0.storeBytes(of: value.bigEndian, toByteOffset: offset, as: Int32.self) }
    }
}
