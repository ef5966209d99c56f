import Foundation

/// JSON with its types kept apart: a number is never mistaken for a boolean, nor an integer for a fraction.
enum JSON: Decodable, Equatable {
    case null
    case bool(Bool)
    case integer(Int64)
    case fraction(Double)
    case string(String)
    case array([JSON])
    case object([String: JSON])

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? container.decode(Double.self) {
            self = .fraction(value)
        } else if let value = try? container.decode(String.self) {
            self = .string(value)
        } else if let value = try? container.decode([JSON].self) {
            self = .array(value)
        } else {
            self = .object(try container.decode([String: JSON].self))
        }
    }

    init(_ text: String) throws {
        self = try JSONDecoder().decode(JSON.self, from: Data(text.utf8))
    }

    /// Nil where this is no object or has no such key; `.null` where the key is there and null.
    subscript(_ key: String) -> JSON? {
        if case .object(let fields) = self { fields[key] } else { nil }
    }

    subscript(_ index: Int) -> JSON? {
        if case .array(let items) = self, items.indices.contains(index) { items[index] } else { nil }
    }

    var items: [JSON] { if case .array(let items)? = self["items"] { items } else { [] } }
    var text: String? { if case .string(let value) = self { value } else { nil } }
    var integer: Int64? { if case .integer(let value) = self { value } else { nil } }
    var flag: Bool? { if case .bool(let value) = self { value } else { nil } }
    var keys: Set<String> { if case .object(let fields) = self { Set(fields.keys) } else { [] } }

    /// The `id` of each item of a list object.
    var itemIDs: [String] { items.compactMap { $0["id"]?.text } }
}
