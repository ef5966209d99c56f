/// A statement with its parameters.
///
/// ```swift
/// try await pool.query("SELECT type FROM users WHERE id = ANY (\(ids))")
/// ```
///
/// Whatever is interpolated becomes a parameter (`$1`), never SQL text, save `\(rawSQL:)`, for trusted text only. The
/// statement is prepared and remembered by its text, so text that changes with every call is a waste.
package struct PostgresQuery: ExpressibleByStringInterpolation, Sendable {
    /// The statement, with `$n` for parameters.
    package let sql: String
    /// The parameters, `$1` first.
    package let binds: [PostgresBind]

    package init(stringLiteral value: String) {
        sql = value
        binds = []
    }

    package init(stringInterpolation: StringInterpolation) {
        sql = stringInterpolation.sql
        binds = stringInterpolation.binds
    }

    /// Takes statement text from elsewhere, such as a file, with `$n` where the parameters go.
    package init(rawSQL: String, binds: [PostgresBind] = []) {
        sql = rawSQL
        self.binds = binds
    }

    package struct StringInterpolation: StringInterpolationProtocol {
        fileprivate var sql = ""
        fileprivate var binds: [PostgresBind] = []

        package init(literalCapacity: Int, interpolationCount: Int) {
            sql.reserveCapacity(literalCapacity + interpolationCount * 4)
            binds.reserveCapacity(interpolationCount)
        }

        package mutating func appendLiteral(_ literal: String) { sql += literal }

        /// Adds a parameter.
        package mutating func appendInterpolation(_ value: some PostgresEncodable) {
            binds.append(PostgresBind(value))
            sql += "$\(binds.count)"
        }

        /// The same for a value that may be NULL, without the compiler's warning of an optional in a string.
        package mutating func appendInterpolation<Value: PostgresEncodable>(_ value: Value?) {
            binds.append(PostgresBind(value))
            sql += "$\(binds.count)"
        }

        package mutating func appendInterpolation(rawSQL text: String) { sql += text }
    }
}

extension PostgresQuery: CustomStringConvertible, CustomDebugStringConvertible {
    package var description: String { sql }
    package var debugDescription: String { "\(sql) \(binds)" }
}

extension PostgresQuery {
    /// The parallel arrays that libpq takes; valid during a call.
    struct Parameters {
        var count: Int32
        var types: UnsafePointer<UInt32>?
        var values: UnsafePointer<UnsafePointer<CChar>?>?
        var lengths: UnsafePointer<Int32>?
        var formats: UnsafePointer<Int32>?
    }

    /// Calls `body` with the parameters, without copying their bytes.
    func withParameters<Result>(_ body: (Parameters) -> Result) -> Result {
        var pointers: [UnsafePointer<CChar>?] = []
        pointers.reserveCapacity(binds.count)
        return withPointers(from: 0, &pointers) { values in
            let types = binds.map(\.type.rawValue)
            let lengths = binds.map { Int32($0.bytes?.count ?? 0) }
            let formats = [Int32](repeating: 1, count: binds.count)
            return types.withUnsafeBufferPointer { types in
                lengths.withUnsafeBufferPointer { lengths in
                    formats.withUnsafeBufferPointer { formats in
                        values.withUnsafeBufferPointer { values in
                            body(
                                Parameters(
                                    count: Int32(binds.count),
                                    types: types.baseAddress,
                                    values: values.baseAddress,
                                    lengths: lengths.baseAddress,
                                    formats: formats.baseAddress
                                )
                            )
                        }
                    }
                }
            }
        }
    }

    /// Borrows one array after the other, each inside the borrow of the one before.
    private func withPointers<Result>(
        from index: Int,
        _ pointers: inout [UnsafePointer<CChar>?],
        _ body: ([UnsafePointer<CChar>?]) -> Result
    ) -> Result {
        guard index < binds.count else { return body(pointers) }
        guard let bytes = binds[index].bytes else {
            pointers.append(nil)
            return withPointers(from: index + 1, &pointers, body)
        }
        // To libpq a null pointer is NULL, and an empty array may have no address.
        guard !bytes.isEmpty else {
            return withUnsafePointer(to: 0 as CChar) { empty in
                pointers.append(empty)
                return withPointers(from: index + 1, &pointers, body)
            }
        }
        return bytes.withUnsafeBytes { buffer in
            pointers.append(buffer.baseAddress?.assumingMemoryBound(to: CChar.self))
            return withPointers(from: index + 1, &pointers, body)
        }
    }
}
