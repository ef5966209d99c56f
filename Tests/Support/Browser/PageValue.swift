import FoundationEssentials

/// A JSON value, as scripts in a page take and return it.
package enum PageValue: Sendable, Hashable {
    case null
    case flag(Bool)
    case number(Double)
    case text(String)
    case list([PageValue])
    case fields([String: PageValue])

    // Each is nil where this is something else.
    package var text: String? { if case .text(let text) = self { text } else { nil } }
    package var number: Double? { if case .number(let number) = self { number } else { nil } }
    package var flag: Bool? { if case .flag(let flag) = self { flag } else { nil } }
    package var list: [PageValue]? { if case .list(let list) = self { list } else { nil } }
    package var fields: [String: PageValue]? { if case .fields(let fields) = self { fields } else { nil } }

    /// A field of an object; null where there is none.
    package subscript(name: String) -> PageValue { fields?[name] ?? .null }

    /// What an encodable value is in JSON.
    init(encoding value: some Encodable) throws {
        self = try JSONDecoder().decode(PageValue.self, from: JSONEncoder().encode(value))
    }

    package func decode<Value: Decodable>(as type: Value.Type = Value.self) throws -> Value {
        do {
            return try JSONDecoder().decode(type, from: JSONEncoder().encode(self))
        } catch {
            throw BrowserFailure("no \(type): \(self): \(error)")
        }
    }
}

extension PageValue: Codable {
    package init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        func decode<Value: Decodable>(_ make: (Value) -> PageValue) -> PageValue? {
            (try? value.decode(Value.self)).map(make)
        }
        let plain = value.decodeNil() ? .null : decode(PageValue.flag) ?? decode(PageValue.number)
        self =
            try plain ?? decode(PageValue.text) ?? decode(PageValue.list)
            ?? .fields(value.decode([String: PageValue].self))
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .flag(let flag): try container.encode(flag)
        // Where the browser wants a whole number it takes no other.
        case .number(let number):
            if let whole = Int(exactly: number) { try container.encode(whole) } else { try container.encode(number) }
        case .text(let text): try container.encode(text)
        case .list(let list): try container.encode(list)
        case .fields(let fields): try container.encode(fields)
        }
    }
}

extension PageValue: ExpressibleByStringInterpolation, ExpressibleByIntegerLiteral, ExpressibleByBooleanLiteral,
    ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    package init(stringLiteral value: String) { self = .text(value) }
    package init(integerLiteral value: Int) { self = .number(Double(value)) }
    package init(booleanLiteral value: Bool) { self = .flag(value) }
    package init(arrayLiteral elements: PageValue...) { self = .list(elements) }
    package init(dictionaryLiteral elements: (String, PageValue)...) {
        self = .fields(Dictionary(elements) { $1 })
    }
}
