/// The members of an object that a decoder reads, ready to be compared with raw key bytes.
///
/// `Field`'s raw values are the member names as they stand in the JSON text. At most 64 of them.
public struct JSONFields<Field: Sendable>: Sendable {
    @usableFromInline var fields: [Field] = []
    @usableFromInline var names = JSONNames()

    public init() where Field: CaseIterable & RawRepresentable, Field.RawValue == String {
        self.init(Field.allCases.map { ($0.rawValue, $0) })
    }

    /// The one member that matters.
    public init(only name: String) where Field == Void { self.init([(name, ())]) }

    /// Members whose names are settings; of two with one name the first is read.
    public init(_ named: [(name: String, field: Field)]) {
        for (name, field) in named {
            fields.append(field)
            names.append(name)
        }
        precondition(fields.count <= 64, "JSONReader keeps the fields it has seen in 64 bits")
    }

    /// Finds the field named by `key`, which lies within `bytes`.
    ///
    /// - Returns: the field and its position among the fields; `nil` where no such member is read.
    @inlinable
    public func find(_ bytes: [UInt8], _ key: Range<Int>) -> (index: Int, field: Field)? {
        names.index(from: key.lowerBound, to: key.upperBound, in: bytes).map { ($0, fields[$0]) }
    }
}

/// Names to compare raw bytes with, whatever they stand for.
@usableFromInline
struct JSONNames: Sendable {
    /// Where each name begins; the last is where all end.
    @usableFromInline var starts = [0]
    /// All names behind one another: one buffer to compare with, whatever the number of fields.
    @usableFromInline var bytes: [UInt8] = []

    mutating func append(_ name: String) {
        bytes += Array(name.utf8)
        starts.append(bytes.count)
    }

    /// The position, among the names, of the first that equals `text[start..<end]`.
    @inlinable
    func index(from start: Int, to end: Int, in text: [UInt8]) -> Int? {
        var index = 0
        while index < starts.count - 1 {
            let first = starts[index]
            let count = starts[index + 1] - first
            if count == end - start {
                var offset = 0
                while offset < count, text[start + offset] == bytes[first + offset] { offset += 1 }
                if offset == count { return index }
            }
            index += 1
        }
        return nil
    }
}
