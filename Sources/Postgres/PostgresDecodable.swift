/// A value that can be read from a column; an enum over a string or a number needs only to declare the conformance.
package protocol PostgresDecodable {
    /// Reads a value that is not NULL from the server's binary form, valid during the call; throws `.decoding`.
    init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError)

    /// Stands for NULL; only optionals have such a value, the others throw `.decoding`.
    init(postgresNull type: PostgresType) throws(PostgresError)

    /// Reads all elements of an array; compiled for the concrete element type and called once an array.
    static func decodeElements(_ reader: inout PostgresArrayReader) throws(PostgresError) -> [Self]

    /// As `decodeElements`, for elements that may be NULL.
    static func decodeOptionalElements(_ reader: inout PostgresArrayReader) throws(PostgresError) -> [Self?]
}

extension PostgresDecodable {
    package init(postgresNull type: PostgresType) throws(PostgresError) {
        throw PostgresError(.decoding, message: "NULL is not a value of \(Self.self)")
    }

    package static func decodeElements(_ reader: inout PostgresArrayReader) throws(PostgresError) -> [Self] {
        var elements: [Self] = []
        elements.reserveCapacity(reader.count)
        for _ in 0..<reader.count {
            if let bytes = try reader.next() {
                elements.append(try Self(postgresBytes: bytes, type: reader.elementType))
            } else {
                elements.append(try Self(postgresNull: reader.elementType))
            }
        }
        return elements
    }

    package static func decodeOptionalElements(_ reader: inout PostgresArrayReader) throws(PostgresError) -> [Self?] {
        var elements: [Self?] = []
        elements.reserveCapacity(reader.count)
        for _ in 0..<reader.count {
            if let bytes = try reader.next() {
                elements.append(try Self(postgresBytes: bytes, type: reader.elementType))
            } else {
                elements.append(nil)
            }
        }
        return elements
    }

    static func mismatch(_ type: PostgresType, _ bytes: UnsafeRawBufferPointer) -> PostgresError {
        let message = "type \(type.rawValue) of \(bytes.count) bytes is not readable as \(Self.self)"
        return PostgresError(.decoding, message: message)
    }
}

extension PostgresDecodable where Self: RawRepresentable, RawValue: PostgresDecodable {
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        let raw = try RawValue(postgresBytes: postgresBytes, type: type)
        guard let value = Self(rawValue: raw) else {
            throw PostgresError(.decoding, message: "the value is not a case of \(Self.self)")
        }
        self = value
    }
}

extension UnsafeRawBufferPointer {
    /// Reads an integer in network order; the caller has checked the bounds.
    @inline(__always)
    func bigEndian<Value: FixedWidthInteger & BitwiseCopyable>(at offset: Int, as type: Value.Type) -> Value {
        Value(bigEndian: loadUnaligned(fromByteOffset: offset, as: type))
    }

    /// Reads an integer that takes up the whole buffer.
    @inline(__always)
    func whole<Value: FixedWidthInteger & BitwiseCopyable>(_ type: Value.Type) -> Value? {
        count == MemoryLayout<Value>.size ? bigEndian(at: 0, as: type) : nil
    }
}
