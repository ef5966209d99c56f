/// A field of a scenario that may keep its usual value, be null on the wire, or carry a value of its own.
///
/// Leaving a key out and writing `null` mean different things for a store's nullable fields, so an `Optional` is not
/// enough.
package enum Override<Value: Sendable & Codable & Hashable>: Sendable, Hashable {
    /// The key is absent: the state's usual value stands.
    case usual
    /// The key is `null`: the wire shows null.
    case null
    /// The key has a value: the wire shows it.
    case value(Value)

    /// The value on the wire, given what the state would usually show.
    func resolved(usual: Value?) -> Value? {
        switch self {
        case .usual: usual
        case .null: nil
        case .value(let value): value
        }
    }

    /// Converts the value, keeping `usual` and `null`.
    func map<Other>(_ transform: (Value) -> Other) -> Override<Other> {
        switch self {
        case .usual: .usual
        case .null: .null
        case .value(let value): .value(transform(value))
        }
    }
}

extension KeyedEncodingContainer {
    // Synthesised encoding picks this overload, which leaves the key out where the usual value stands.
    mutating func encode<Value>(_ field: Override<Value>, forKey key: Key) throws {
        switch field {
        case .usual: break
        case .null: try encodeNil(forKey: key)
        case .value(let value): try encode(value, forKey: key)
        }
    }
}

extension Override: Encodable {
    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .usual, .null: try container.encodeNil()
        case .value(let value): try container.encode(value)
        }
    }
}
