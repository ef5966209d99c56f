/// A field of a scenario that may keep its usual value, be null on the wire, or carry a value of its own.
///
/// Leaving a key out and writing `null` mean different things for a store's nullable fields, so an `Optional` is not
/// enough.
enum Override<Value: Sendable & Hashable>: Sendable, Hashable {
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
