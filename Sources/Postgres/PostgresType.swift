/// A data type of the server, by its object identifier.
package struct PostgresType: RawRepresentable, Hashable, Sendable {
    package var rawValue: UInt32

    package init(rawValue: UInt32) { self.rawValue = rawValue }

    package static let bool = PostgresType(rawValue: 16)
    package static let bytea = PostgresType(rawValue: 17)
    package static let char = PostgresType(rawValue: 18)
    package static let name = PostgresType(rawValue: 19)
    package static let int8 = PostgresType(rawValue: 20)
    package static let int2 = PostgresType(rawValue: 21)
    package static let int4 = PostgresType(rawValue: 23)
    package static let text = PostgresType(rawValue: 25)
    package static let oid = PostgresType(rawValue: 26)
    package static let json = PostgresType(rawValue: 114)
    package static let xml = PostgresType(rawValue: 142)
    package static let float4 = PostgresType(rawValue: 700)
    package static let float8 = PostgresType(rawValue: 701)
    package static let unknown = PostgresType(rawValue: 705)
    package static let bpchar = PostgresType(rawValue: 1042)
    package static let varchar = PostgresType(rawValue: 1043)
    package static let timestamptz = PostgresType(rawValue: 1184)
    package static let uuid = PostgresType(rawValue: 2950)
    package static let jsonb = PostgresType(rawValue: 3802)

    /// The array type over this element type, which must be one that can be sent, and no array.
    package var array: PostgresType {
        guard let oid = Self.arrays[self] else {
            preconditionFailure("no one-dimensional array type is known for type \(rawValue)")
        }
        return PostgresType(rawValue: oid)
    }

    private static let arrays: [PostgresType: UInt32] = [
        .bool: 1000, .bytea: 1001, .int2: 1005, .int4: 1007, .int8: 1016, .text: 1009, .float8: 1022,
        .timestamptz: 1185, .uuid: 2951, .jsonb: 3807,
    ]

    /// Whether a value's binary form is its text in UTF-8; types made by users, enums above all, begin at 16384.
    var isTextual: Bool {
        switch self {
        case .text, .varchar, .bpchar, .name, .json, .xml, .unknown, .char: true
        default: rawValue >= 16384
        }
    }
}
