extension Bool: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .bool }

    package func encode(into bytes: inout [UInt8]) { bytes.append(self ? 1 : 0) }

    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        guard type == .bool, postgresBytes.count == 1 else { throw Self.mismatch(type, postgresBytes) }
        self = postgresBytes[0] != 0
    }
}

extension Int16: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .int2 }
}

extension Int32: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .int4 }
}

extension Int64: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .int8 }
}

extension Int: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .int8 }
}

extension PostgresEncodable where Self: FixedWidthInteger {
    package func encode(into bytes: inout [UInt8]) { bytes.appendBigEndian(self) }
}

extension PostgresDecodable where Self: FixedWidthInteger {
    /// Reads the server's type of this width, and the smaller ones, which always fit: int2, int4 and oid.
    @inline(__always)
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        let value: Self? =
            switch type {
            case .int8 where Self.bitWidth >= 64: postgresBytes.whole(Int64.self).map(Self.init(truncatingIfNeeded:))
            case .int4 where Self.bitWidth >= 32: postgresBytes.whole(Int32.self).map(Self.init(truncatingIfNeeded:))
            case .int2: postgresBytes.whole(Int16.self).map(Self.init(truncatingIfNeeded:))
            case .oid where Self.bitWidth >= 64: postgresBytes.whole(UInt32.self).map(Self.init(truncatingIfNeeded:))
            default: nil
            }
        guard let value else { throw Self.mismatch(type, postgresBytes) }
        self = value
    }
}

extension Double: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .float8 }

    package func encode(into bytes: inout [UInt8]) { bytes.appendBigEndian(bitPattern) }

    /// Reads float8 and float4; a `numeric` has to be cast in the statement to what is meant.
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        if type == .float8, let bits = postgresBytes.whole(UInt64.self) {
            self = Double(bitPattern: bits)
        } else if type == .float4, let bits = postgresBytes.whole(UInt32.self) {
            self = Double(Float(bitPattern: bits))
        } else {
            throw Self.mismatch(type, postgresBytes)
        }
    }
}
