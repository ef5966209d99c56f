/// Why a JSON text, or a value in it, was refused, as a clause for people; without any text of the body.
public enum JSONFault: String, Error, Sendable {
    /// The body is larger than `JSONReader.maximumBytes`.
    case tooLarge = "it is too large"
    /// Containers nest deeper than `JSONReader.maximumDepth`.
    case tooDeep = "it is nested too deep"
    /// The text ends inside a value, or is empty.
    case truncated = "it is cut off"
    /// A byte that JSON does not allow at its place.
    case syntax = "it is no JSON, or something follows it"
    /// A string that is not valid UTF-8, or has a broken escape.
    case badString = "it holds text that is no UTF-8 or has a broken escape"
    /// The value is well formed but not of the type asked for.
    case wrongType = "it, or a member of it, is of a wrong type"
    /// The value has the right type but is out of range: too long a string, a NUL in it, too large a number.
    case outOfRange = "a member is out of range"
    /// A member that we read occurs twice, so that it is unclear which one counts.
    case duplicate = "a member stands in it twice"
    /// A member that must be there is not.
    case missing = "a member is missing"

    /// What is wrong, as a clause for people.
    public var clause: String { rawValue }
}
