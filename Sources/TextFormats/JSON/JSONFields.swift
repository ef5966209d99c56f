/// The members of an object that a decoder reads, ready to be compared with raw key bytes.
///
/// `Field`'s raw values are the member names as they stand in the JSON text. At most 64 of them.
public struct JSONFields<Field: Sendable>: Sendable {
    @usableFromInline
    struct Entry: Sendable {
        @usableFromInline var start: Int
        @usableFromInline var count: Int
        @usableFromInline var field: Field
    }

    @usableFromInline var entries: [Entry] = []
    /// All names behind one another: one buffer to compare with, whatever the number of fields.
    @usableFromInline var names: [UInt8] = []

    public init() where Field: CaseIterable & RawRepresentable, Field.RawValue == String {
        self.init(Field.allCases.map { ($0.rawValue, $0) })
    }

    /// The one member that matters.
    public init(only name: String) where Field == Void { self.init([(name, ())]) }

    /// Members whose names are settings; of two with one name the first is read.
    public init(_ named: [(name: String, field: Field)]) {
        for (name, field) in named {
            entries.append(Entry(start: names.count, count: name.utf8.count, field: field))
            names += Array(name.utf8)
        }
        precondition(entries.count <= 64, "JSONReader keeps the fields it has seen in 64 bits")
    }

    /// Finds the field named by `key`, which lies within `bytes`.
    ///
    /// - Returns: the field and its position among the fields; `nil` where no such member is read.
    @inlinable
    public func find(_ bytes: [UInt8], _ key: Range<Int>) -> (index: Int, field: Field)? {
        for (index, entry) in entries.enumerated() where entry.count == key.count {
            var offset = 0
            while offset < entry.count, bytes[key.lowerBound + offset] == names[entry.start + offset] { offset += 1 }
            if offset == entry.count { return (index, entry.field) }
        }
        return nil
    }
}
