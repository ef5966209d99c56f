/// An object of the scenario format, or the body of a control request: a table of its members.
///
/// Unknown members are refused: a mistyped one that is silently ignored makes a scenario test something else than its
/// author meant.
package protocol ScenarioObject: Codable, Sendable {
    static var fields: [ScenarioField<Self>] { get }

    /// The object without any member.
    init()

    /// The object that a bare text or list stands for; nil where an object follows.
    static func bare(_ decoder: any Decoder) throws -> Self?

    /// Checks what no single member shows.
    ///
    /// - Throws: `FieldFault`.
    func check() throws
}

extension ScenarioObject {
    package init(from decoder: any Decoder) throws {
        if let bare = try Self.bare(decoder) {
            self = bare
            return
        }
        self.init()
        let source = try decoder.container(keyedBy: AnyKey.self)
        for key in source.allKeys where !Self.fields.contains(where: { $0.name == key.stringValue }) {
            let known = Self.fields.map(\.name).sorted().joined(separator: ", ")
            throw DecodingError.dataCorruptedError(
                forKey: key,
                in: source,
                debugDescription: "is no known key; use one of \(known)"
            )
        }
        for field in Self.fields { try field.read(&self, source) }
        do {
            try check()
        } catch let fault as FieldFault {
            let path = source.codingPath + (fault.at.map { [AnyKey(stringValue: $0)] } ?? [])
            throw DecodingError.dataCorrupted(.init(codingPath: path, debugDescription: fault.message))
        }
    }

    package func encode(to encoder: any Encoder) throws {
        var target = encoder.container(keyedBy: AnyKey.self)
        for field in Self.fields { try field.write(self, &target) }
    }

    package static func bare(_ decoder: any Decoder) throws -> Self? { nil }

    package func check() throws {}
}

/// What is wrong with the member at a name, or with the whole object.
struct FieldFault: Error {
    var message: String
    var at: String?
}

/// A member of an object: its name, and the property that it fills.
package struct ScenarioField<Root: Sendable>: Sendable {
    typealias Source = KeyedDecodingContainer<AnyKey>
    typealias Target = KeyedEncodingContainer<AnyKey>
    typealias Path<Value> = any WritableKeyPath<Root, Value> & Sendable

    let name: String
    fileprivate let read: @Sendable (inout Root, Source) throws -> Void
    fileprivate let write: @Sendable (Root, inout Target) throws -> Void

    private init(
        _ name: String,
        read: @escaping @Sendable (inout Root, Source, AnyKey) throws -> Void,
        write: @escaping @Sendable (Root, inout Target, AnyKey) throws -> Void
    ) {
        let key = AnyKey(stringValue: name)
        self.name = name
        self.read = { try read(&$0, $1, key) }
        self.write = { try write($0, &$1, key) }
    }

    private static func usual<Value: Codable & Sendable>(
        _ name: String,
        _ path: Path<Value>,
        read: @escaping @Sendable (Source, AnyKey) throws -> Value?
    ) -> Self {
        ScenarioField(name) { root, source, key in
            if let value = try read(source, key) { root[keyPath: path] = value }
        } write: { root, target, key in
            try target.encode(root[keyPath: path], forKey: key)
        }
    }

    private static func absent<Value: Codable & Sendable>(
        _ name: String,
        _ path: Path<Value?>,
        read: @escaping @Sendable (Source, AnyKey) throws -> Value?
    ) -> Self {
        ScenarioField(name) { root, source, key in
            root[keyPath: path] = try read(source, key)
        } write: { root, target, key in
            try target.encodeIfPresent(root[keyPath: path], forKey: key)
        }
    }

    /// A property that keeps its usual value where the member is absent or null.
    static func value<Value: Codable & Sendable>(_ name: String, _ path: Path<Value>) -> Self {
        usual(name, path) { try $0.decodeIfPresent(Value.self, forKey: $1) }
    }

    /// A whole number within a range.
    static func value(_ name: String, _ path: Path<Int>, in range: ClosedRange<Int>) -> Self {
        usual(name, path) { try integer($0, $1, range) }
    }

    /// A member that must be there.
    static func required<Value: Codable & Sendable>(_ name: String, _ path: Path<Value>) -> Self {
        usual(name, path) { try $0.decode(Value.self, forKey: $1) }
    }

    /// A property that is nil where the member is absent or null.
    static func optional<Value: Codable & Sendable>(_ name: String, _ path: Path<Value?>) -> Self {
        absent(name, path) { try $0.decodeIfPresent(Value.self, forKey: $1) }
    }

    /// A whole number within a range, or nil.
    static func optional(_ name: String, _ path: Path<Int?>, in range: ClosedRange<Int>) -> Self {
        absent(name, path) { try integer($0, $1, range) }
    }

    /// A member for which absence and null differ.
    static func override<Value: Codable & Sendable>(_ name: String, _ path: Path<Override<Value>>) -> Self {
        ScenarioField(name) { root, source, key in
            guard source.contains(key) else { return }
            root[keyPath: path] =
                try source.decodeNil(forKey: key) ? .null : .value(source.decode(Value.self, forKey: key))
        } write: { root, target, key in
            switch root[keyPath: path] {
            case .usual: break
            case .null: try target.encodeNil(forKey: key)
            case .value(let value): try target.encode(value, forKey: key)
            }
        }
    }

    private static func integer(_ source: Source, _ key: AnyKey, _ range: ClosedRange<Int>) throws -> Int? {
        let value = try source.decodeIfPresent(Int.self, forKey: key)
        if let value, !range.contains(value) {
            throw DecodingError.dataCorruptedError(
                forKey: key,
                in: source,
                debugDescription: "is \(value); use \(range.lowerBound) to \(range.upperBound)"
            )
        }
        return value
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
