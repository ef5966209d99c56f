/// A keyed container that refuses unknown keys.
///
/// A mistyped key that is silently ignored makes a scenario test something else than its author meant.
struct StrictFields<Key: CodingKey & CaseIterable> {
    private let container: KeyedDecodingContainer<Key>

    /// Opens the container.
    ///
    /// - Throws: `DecodingError` when a key is unknown; its message lists the known ones.
    init(_ decoder: any Decoder) throws {
        let present = try decoder.container(keyedBy: AnyKey.self)
        for key in present.allKeys where Key(stringValue: key.stringValue) == nil {
            let known = Key.allCases.map(\.stringValue).sorted().joined(separator: ", ")
            throw DecodingError.dataCorrupted(
                .init(codingPath: present.codingPath + [key], debugDescription: "is no known key; use one of \(known)")
            )
        }
        container = try decoder.container(keyedBy: Key.self)
    }

    /// The value of a key, or nil where it is absent or null.
    func optional<Value: Decodable>(_ key: Key, as type: Value.Type = Value.self) throws -> Value? {
        try container.decodeIfPresent(type, forKey: key)
    }

    /// The value of a key that must be there.
    func required<Value: Decodable>(_ key: Key, as type: Value.Type = Value.self) throws -> Value {
        try container.decode(type, forKey: key)
    }

    /// The value of a key for which absence and null differ.
    func override<Value>(_ key: Key) throws -> Override<Value> {
        guard container.contains(key) else { return .usual }
        return try container.decodeNil(forKey: key) ? .null : .value(container.decode(Value.self, forKey: key))
    }

    /// Whole number within a range, or nil where the key is absent.
    func integer(_ key: Key, in range: ClosedRange<Int>) throws -> Int? {
        guard let value: Int = try optional(key) else { return nil }
        guard range.contains(value) else {
            throw fault(key, "is \(value); use \(range.lowerBound) to \(range.upperBound)")
        }
        return value
    }

    /// A complaint about one key.
    func fault(_ key: Key, _ message: String) -> DecodingError {
        .dataCorruptedError(forKey: key, in: container, debugDescription: message)
    }
}

/// A key of any name.
struct AnyKey: CodingKey {
    var stringValue: String
    var intValue: Int?

    init(stringValue: String) {
        self.stringValue = stringValue
    }

    init(intValue: Int) {
        stringValue = "\(intValue)"
        self.intValue = intValue
    }
}

/// A closed set of words in a scenario; a wrong word is answered with the list of right ones.
package protocol ScenarioWord: RawRepresentable, CaseIterable, Codable, Sendable, Hashable where RawValue == String {}

extension ScenarioWord {
    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        let text = try container.decode(String.self)
        guard let word = Self(rawValue: text) else {
            throw DecodingError.dataCorruptedError(
                in: container,
                debugDescription: "is \"\(text)\"; use one of \(Self.allCases.map(\.rawValue).joined(separator: ", "))"
            )
        }
        self = word
    }
}
