extension PostgresQuery {
    /// The parallel arrays that libpq takes; valid during a call.
    struct Parameters {
        var count: Int32
        var types: UnsafePointer<UInt32>?
        var values: UnsafePointer<UnsafePointer<CChar>?>?
        var lengths: UnsafePointer<Int32>?
        var formats: UnsafePointer<Int32>?
    }

    /// Lends out the parameters without copying their bytes.
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
