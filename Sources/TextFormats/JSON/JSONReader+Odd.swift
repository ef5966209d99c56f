extension JSONReader {
    /// Reads a value that nothing depends on; in a sound text, one that `read` refuses is passed over.
    @inlinable
    public mutating func readIfSound<Value>(
        _ read: (inout JSONReader) throws(JSONFault) -> Value?
    ) throws(JSONFault) -> Value? {
        let start = self
        do throws(JSONFault) { return try read(&self) } catch {
            // Back to where the value begins. If the text itself is broken, skipping fails as well.
            self = start
            try passOver()
            return nil
        }
    }

    /// Reads the elements of an array or `null`, each by itself, where the text itself is not broken.
    ///
    /// Something is odd where `read` refuses an element, or the value is no array at all.
    @inlinable
    public mutating func readSoundElements<Value>(
        _ read: (inout JSONReader) throws(JSONFault) -> Value
    ) throws(JSONFault) -> (values: [Value], hasOdd: Bool) {
        var values: [Value] = []
        var hasOdd = false
        guard try !readNull() else { return ([], false) }
        let start = self
        do throws(JSONFault) {
            try readArray { reader throws(JSONFault) in
                let value = try reader.readIfSound { reader throws(JSONFault) in try read(&reader) }
                if let value { values.append(value) } else { hasOdd = true }
            }
        } catch {
            self = start
            try passOver()
            return ([], true)
        }
        return (values, hasOdd)
    }

    /// Reads a string or `null`; `nil` as well for anything else.
    public mutating func readSoundString() throws(JSONFault) -> String? {
        try readIfSound { reader throws(JSONFault) in try reader.readOptionalString() }
    }

    /// Reads a whole number or `null`; `nil` as well for anything else.
    public mutating func readSoundInteger() throws(JSONFault) -> Int64? {
        try readIfSound { reader throws(JSONFault) in try reader.readOptionalInteger() }
    }

    /// Reads the one member of an object, or of `null`, that matters.
    @inlinable
    public mutating func readMember<Value>(
        _ name: JSONFields<Void>,
        _ read: (inout JSONReader) throws(JSONFault) -> Value?
    ) throws(JSONFault) -> Value? {
        guard try !readNull() else { return nil }
        var value: Value?
        try readObject(name) { reader, _ throws(JSONFault) in value = try read(&reader) }
        return value
    }
}
