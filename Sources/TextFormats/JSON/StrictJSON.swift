/// Texts of JSON that every reader takes for the same thing.
public enum StrictJSON {
    /// Why a text is none.
    public enum Fault: String, Error, Sendable {
        /// Not UTF-8, not RFC 8259, or too deep.
        case syntax
        /// A member of an object stands twice.
        case duplicate
    }

    /// Checks a text of any size up to 4 MiB, whatever it says.
    ///
    /// - Throws: `Fault`.
    public static func check(_ bytes: [UInt8]) throws(Fault) {
        do throws(JSONFault) {
            var reader = try JSONReader(bytes)
            try reader.checkValue()
            try reader.finish()
        } catch { throw error == .duplicate ? .duplicate : .syntax }
    }
}

extension JSONReader {
    /// Passes over a value, and makes sure that no object in it has a member twice.
    ///
    /// The depth of recursion is that of containers, which is limited.
    fileprivate mutating func checkValue() throws(JSONFault) {
        switch try token() {
        case UInt8(ascii: "{"):
            try descend()
            var seen: Set<[UInt8]> = []
            var isFirst = true
            while try hasNext(before: UInt8(ascii: "}"), isFirst: isFirst) {
                isFirst = false
                let key = try scanKey(isRead: true)
                let name = key.isEscaped ? try unescape(key.range, limit: Self.maximumBytes) : Array(bytes[key.range])
                guard seen.insert(name).inserted else { throw .duplicate }
                try checkValue()
            }
            depth -= 1
        case UInt8(ascii: "["):
            try readArray { reader throws(JSONFault) in try reader.checkValue() }
        default: try passOver()
        }
    }
}
