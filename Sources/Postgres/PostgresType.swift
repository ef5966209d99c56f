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

    /// The array type over this element type.
    ///
    /// - Precondition: the type is one that can be sent. An array of arrays cannot: arrays have one dimension here.
    package var array: PostgresType {
        let oid: UInt32? =
            switch self {
            case .bool: 1000
            case .bytea: 1001
            case .int2: 1005
            case .int4: 1007
            case .int8: 1016
            case .text: 1009
            case .float8: 1022
            case .timestamptz: 1185
            case .uuid: 2951
            case .jsonb: 3807
            default: nil
            }
        guard let oid else { preconditionFailure("no one-dimensional array type is known for type \(rawValue)") }
        return PostgresType(rawValue: oid)
    }

    /// Whether a value's binary form is its text in UTF-8.
    ///
    /// Types made by users (enums above all) begin at 16384; their text is checked to be UTF-8 when it is read.
    var isTextual: Bool {
        switch self {
        case .text, .varchar, .bpchar, .name, .json, .xml, .unknown, .char: true
        default: rawValue >= 16384
        }
    }
}
