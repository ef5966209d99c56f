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

    package func encode(into bytes: inout [UInt8]) { bytes.appendBigEndian(self) }

    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        guard type == .int2, let value = postgresBytes.whole(Int16.self) else {
            throw Self.mismatch(type, postgresBytes)
        }
        self = value
    }
}

extension Int32: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .int4 }

    package func encode(into bytes: inout [UInt8]) { bytes.appendBigEndian(self) }

    /// Reads int4, and int2, which always fits.
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        if type == .int4, let value = postgresBytes.whole(Int32.self) {
            self = value
        } else if type == .int2, let value = postgresBytes.whole(Int16.self) {
            self = Int32(value)
        } else {
            throw Self.mismatch(type, postgresBytes)
        }
    }
}

extension Int64: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .int8 }

    package func encode(into bytes: inout [UInt8]) { bytes.appendBigEndian(self) }

    /// Reads int8, and the smaller int4, int2 and oid, which always fit.
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        guard let value = Self(anyInteger: postgresBytes, type) else { throw Self.mismatch(type, postgresBytes) }
        self = value
    }

    @inline(__always)
    fileprivate init?(anyInteger bytes: UnsafeRawBufferPointer, _ type: PostgresType) {
        if type == .int8, let value = bytes.whole(Int64.self) {
            self = value
        } else if type == .int4, let value = bytes.whole(Int32.self) {
            self = Int64(value)
        } else if type == .int2, let value = bytes.whole(Int16.self) {
            self = Int64(value)
        } else if type == .oid, let value = bytes.whole(UInt32.self) {
            self = Int64(value)
        } else {
            return nil
        }
    }
}

extension Int: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .int8 }

    package func encode(into bytes: inout [UInt8]) { Int64(self).encode(into: &bytes) }

    /// Reads whatever `Int64` reads.
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        guard let value = Int64(anyInteger: postgresBytes, type) else { throw Self.mismatch(type, postgresBytes) }
        self = Int(value)
    }
}

extension Double: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .float8 }

    package func encode(into bytes: inout [UInt8]) { bytes.appendBigEndian(bitPattern) }

    /// Reads float8 and float4.
    ///
    /// A `numeric` is not read: cast it in the statement to what is meant.
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
