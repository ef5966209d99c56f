/// Why a scenario, or the body of a control request, cannot be used.
package struct ScenarioError: Error, Sendable, CustomStringConvertible {
    /// Where the fault is, such as `customers[3].subscriptions[0].ends`; empty when the whole text is meant.
    package var keyPath: String
    /// What is wrong and how to mend it.
    package var message: String

    package var description: String {
        keyPath.isEmpty ? "scenario: \(message)" : "scenario: \(keyPath) \(message)"
    }
}

extension ScenarioError {
    /// Decodes something; what the decoder complains about points at a key.
    ///
    /// - Throws: `ScenarioError` for a `DecodingError`.
    static func explaining<Value>(_ decode: () throws -> Value) throws -> Value {
        do {
            return try decode()
        } catch let error as DecodingError {
            throw ScenarioError(error)
        }
    }

    /// Points at the key that a decoder complained about.
    init(_ error: DecodingError) {
        let (path, message): ([any CodingKey], String) =
            switch error {
            case .keyNotFound(let key, let context): (context.codingPath + [key], "is missing; add it")
            case .valueNotFound(let type, let context): (context.codingPath, "is null; give it \(Self.kind(of: type))")
            case .typeMismatch(let type, let context):
                (context.codingPath, "has the wrong type; give it \(Self.kind(of: type))")
            // A syntax error has no path: the parser's own words carry the line and column.
            case .dataCorrupted(let context):
                (context.codingPath, context.debugDescription + (context.underlyingError.map { " (\($0))" } ?? ""))
            @unknown default: ([], "cannot be decoded")
            }
        self.init(keyPath: Self.spell(path), message: message)
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
