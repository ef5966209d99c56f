import FoundationEssentials

/// A JSON object, as commands and reports write it: what is `nil` is written as null.
package struct JSONObject: Encodable, ExpressibleByDictionaryLiteral {
    package typealias Value = (any Encodable)?

    private struct Name: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }

        init?(intValue: Int) { nil }
    }

    private var members: [(String, Value)]

    package init(dictionaryLiteral members: (String, Value)...) { self.members = members }

    /// The object with a member that is left out where there is none.
    package func adding(_ name: String, _ value: Value) -> JSONObject {
        guard let value else { return self }
        var object = self
        object.members.append((name, value))
        return object
    }

    /// The members of both.
    package static func + (one: JSONObject, other: JSONObject) -> JSONObject {
        var object = one
        object.members += other.members
        return object
    }

    package func encode(to encoder: any Encoder) throws {
        var row = encoder.container(keyedBy: Name.self)
        for (name, value) in members {
            let name = Name(stringValue: name)
            if let value { try row.encode(value, forKey: name) } else { try row.encodeNil(forKey: name) }
        }
    }
}

extension Encodable {
    /// One JSON document on one line, always in the same bytes: its keys are in order.
    ///
    /// - Throws: `EncodingError` where a figure is no number.
    package func jsonLine() throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(self), as: UTF8.self)
    }
}
