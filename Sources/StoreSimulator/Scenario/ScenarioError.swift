/// Why a scenario, or the body of a control request, cannot be used.
package struct ScenarioError: Error, Sendable, CustomStringConvertible {
    /// Where the fault is, such as `customers[3].subscriptions[0].ends`; empty when the whole text is meant.
    package var keyPath: String
    /// What is wrong and how to mend it.
    package var message: String

    /// Makes an error that points at a key.
    package init(keyPath: String, message: String) {
        self.keyPath = keyPath
        self.message = message
    }

    /// Points at the key that a decoder complained about.
    init(_ error: DecodingError) {
        switch error {
        case .keyNotFound(let key, let context):
            keyPath = Self.spell(context.codingPath + [key])
            message = "is missing; add it"
        case .valueNotFound(let type, let context):
            keyPath = Self.spell(context.codingPath)
            message = "is null; give it \(Self.kind(of: type))"
        case .typeMismatch(let type, let context):
            keyPath = Self.spell(context.codingPath)
            message = "has the wrong type; give it \(Self.kind(of: type))"
        case .dataCorrupted(let context):
            keyPath = Self.spell(context.codingPath)
            // A syntax error has no path: the parser's own words carry the line and column.
            let detail = context.underlyingError.map { " (\($0))" } ?? ""
            message = context.debugDescription + detail
        @unknown default:
            keyPath = ""
            message = "cannot be decoded"
        }
    }

    package var description: String {
        keyPath.isEmpty ? "scenario: \(message)" : "scenario: \(keyPath) \(message)"
    }

    private static func spell(_ path: [any CodingKey]) -> String {
        path.reduce(into: "") { text, key in
            if let index = key.intValue {
                text += "[\(index)]"
            } else {
                text += text.isEmpty ? key.stringValue : ".\(key.stringValue)"
            }
        }
    }

    private static func kind(of type: any Any.Type) -> String {
        switch type {
        case is Bool.Type: "true or false"
        case is String.Type: "a text"
        case is any BinaryInteger.Type: "a whole number"
        case is any BinaryFloatingPoint.Type: "a number"
        case is any Collection.Type: "a list or a map, as the guide shows"
        default: "a value of the form that the guide shows"
        }
    }
}
