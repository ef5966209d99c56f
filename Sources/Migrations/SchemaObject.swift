import Foundation

/// A function, a view or a trigger as its file holds it today, or the list of privileges.
package struct SchemaObject: Sendable, Hashable {
    package enum Kind: String, Sendable, CaseIterable {
        case function, view, trigger, privileges
    }

    package struct ID: Sendable, Hashable {
        package var kind: Kind
        /// `name`; of a trigger `table.name`.
        package var name: String
    }

    package var id: ID
    /// The statements, which create it or take the place of what is there.
    package var text: String
    package var checksum: String

    init(kind: Kind, name: String, text: String) {
        id = ID(kind: kind, name: name)
        self.text = text
        checksum = SHA256Text.hex(text)
    }

    /// The objects of a file, each with the comments on it that follow; throws `.missing` for any other statement.
    static func objects(in text: String, of file: String) throws(MigrationError) -> [SchemaObject] {
        var objects: [SchemaObject] = []
        for statement in SQLStatements.split(text) {
            if let id = created(by: statement) {
                objects.append(SchemaObject(kind: id.kind, name: id.name, text: statement))
            } else if let last = objects.popLast(), statement.hasPrefix("COMMENT ON ") {
                objects.append(SchemaObject(kind: last.id.kind, name: last.id.name, text: last.text + "\n" + statement))
            } else {
                throw MigrationError(
                    .missing,
                    "\(file) has a statement that is no CREATE OR REPLACE of a function, view or trigger: \(statement.prefix(60))"
                )
            }
        }
        return objects
    }

    private static func created(by statement: String) -> ID? {
        let words = statement.prefix(400).split { $0.isWhitespace || $0 == "(" }.map(String.init)
        guard words.count > 4, words.starts(with: ["CREATE", "OR", "REPLACE"]) else { return nil }
        switch words[3] {
        case "FUNCTION": return ID(kind: .function, name: words[4])
        case "VIEW": return ID(kind: .view, name: words[4])
        case "TRIGGER":
            guard let on = words.dropFirst(5).firstIndex(of: "ON"), words.indices.contains(on + 1) else { return nil }
            return ID(kind: .trigger, name: words[on + 1] + "." + words[4])
        default: return nil
        }
    }
}
