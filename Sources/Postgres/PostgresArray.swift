/// A walk over the elements of a one-dimensional array in its binary form.
package struct PostgresArrayReader: ~Copyable {
    let elementType: PostgresType
    let count: Int
    private let bytes: UnsafeRawBufferPointer
    private var offset: Int

    /// Reads the header: dimensions, null flag, element type, then length and lower bound of the one dimension.
    init(_ bytes: UnsafeRawBufferPointer) throws(PostgresError) {
        (elementType, count, offset) = try Self.header(of: bytes)
        self.bytes = bytes
    }

    private static func header(
        of bytes: UnsafeRawBufferPointer
    ) throws(PostgresError) -> (elementType: PostgresType, count: Int, offset: Int) {
        guard bytes.count >= 12 else { throw malformed }
        let elementType = PostgresType(rawValue: bytes.bigEndian(at: 8, as: UInt32.self))
        switch bytes.bigEndian(at: 0, as: Int32.self) {
        case 0:
            return (elementType, 0, 12)
        case 1 where bytes.count >= 20:
            let count = Int(bytes.bigEndian(at: 12, as: Int32.self))
            // Every element takes four bytes at least, so a length beyond that is damage, not data.
            guard (0...(bytes.count - 20) / 4).contains(count) else { throw malformed }
            return (elementType, count, 20)
        default:
            throw PostgresError(.decoding, message: "the value is no array of one dimension")
        }
    }

    /// The next element's bytes; nil for NULL.
    @inline(__always)
    mutating func next() throws(PostgresError) -> UnsafeRawBufferPointer? {
        guard offset + 4 <= bytes.count else { throw Self.malformed }
        let length = Int(bytes.bigEndian(at: offset, as: Int32.self))
        offset += 4
        guard length >= 0 else { return nil }
        guard offset + length <= bytes.count else { throw Self.malformed }
        defer { offset += length }
        return UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + length])
    }

    private static var malformed: PostgresError { PostgresError(.decoding, message: "the array is malformed") }
}

extension Array: PostgresEncodable where Element: PostgresEncodable {
    package static var postgresType: PostgresType { Element.postgresType.array }

    package func encode(into bytes: inout [UInt8]) {
        bytes.reserveCapacity(bytes.count + 20 + count * 12)
        bytes.appendBigEndian(Int32(isEmpty ? 0 : 1))
        let nullFlag = bytes.count
        bytes.appendBigEndian(Int32(0))
        bytes.appendBigEndian(Element.postgresType.rawValue)
        guard !isEmpty else { return }
        bytes.appendBigEndian(Int32(count))
        bytes.appendBigEndian(Int32(1))
        if Element.encodeElements(self, into: &bytes) { bytes.replaceBigEndian(at: nullFlag, with: 1) }
    }
}

extension Array: PostgresDecodable where Element: PostgresDecodable {
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        var reader = try PostgresArrayReader(postgresBytes)
        self = try Element.decodeElements(&reader)
    }
}

extension Optional: PostgresEncodable where Wrapped: PostgresEncodable {
    package static var postgresType: PostgresType { Wrapped.postgresType }

    package var isPostgresNull: Bool { self?.isPostgresNull ?? true }

    package func encode(into bytes: inout [UInt8]) { self?.encode(into: &bytes) }

    package static func encodeElements(_ elements: [Wrapped?], into bytes: inout [UInt8]) -> Bool {
        Wrapped.encodeOptionalElements(elements, into: &bytes)
    }
}

extension Optional: PostgresDecodable where Wrapped: PostgresDecodable {
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        self = try Wrapped(postgresBytes: postgresBytes, type: type)
    }

    package init(postgresNull type: PostgresType) throws(PostgresError) { self = nil }

    package static func decodeElements(_ reader: inout PostgresArrayReader) throws(PostgresError) -> [Wrapped?] {
        try Wrapped.decodeOptionalElements(&reader)
    }
}
