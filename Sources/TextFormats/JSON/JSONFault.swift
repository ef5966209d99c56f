/// Why a JSON text, or a value in it, was refused; without any text of the body.
public enum JSONFault: String, Error, Sendable, CaseIterable {
    /// The body is larger than `JSONReader.maximumBytes`.
    case tooLarge
    /// Containers nest deeper than `JSONReader.maximumDepth`.
    case tooDeep
    /// The text ends inside a value, or is empty.
    case truncated
    /// A byte that JSON does not allow at its place.
    case syntax
    /// A string that is not valid UTF-8, or has a broken escape.
    case badString
    /// The value is well formed but not of the type asked for.
    case wrongType
    /// The value has the right type but is out of range: too long a string, a NUL in it, too large a number.
    case outOfRange
    /// A member that we read occurs twice, so that it is unclear which one counts.
    case duplicate
    /// A member that must be there is not.
    case missing

    /// What is wrong, as a clause for people.
    public var clause: String {
        switch self {
        case .tooLarge: "it is too large"
        case .tooDeep: "it is nested too deep"
        case .truncated: "it is cut off"
        case .syntax: "it is no JSON, or something follows it"
        case .badString: "it holds text that is no UTF-8 or has a broken escape"
        case .wrongType: "it, or a member of it, is of a wrong type"
        case .outOfRange: "a member is out of range"
        case .duplicate: "a member stands in it twice"
        case .missing: "a member is missing"
        }
    }
}
