import Foundation
import Testing
import TextFormats

@testable import WebAPI

/// The OpenAPI document, with its references followed.
struct OpenAPIDocument {
    /// A place in the document.
    enum Node: Codable, Hashable, Sendable {
        case null
        case flag(Bool)
        case number(Double)
        case text(String)
        case list([Node])
        case object([String: Node])

        init(from decoder: any Decoder) throws {
            let container = try decoder.singleValueContainer()
            if container.decodeNil() {
                self = .null
            } else if let flag = try? container.decode(Bool.self) {
                self = .flag(flag)
            } else if let number = try? container.decode(Double.self) {
                self = .number(number)
            } else if let text = try? container.decode(String.self) {
                self = .text(text)
            } else if let list = try? container.decode([Node].self) {
                self = .list(list)
            } else {
                self = .object(try container.decode([String: Node].self))
            }
        }

        func encode(to encoder: any Encoder) throws {
            var container = encoder.singleValueContainer()
            switch self {
            case .null: try container.encodeNil()
            case .flag(let flag): try container.encode(flag)
            case .number(let number): try container.encode(number)
            case .text(let text): try container.encode(text)
            case .list(let list): try container.encode(list)
            case .object(let members): try container.encode(members)
            }
        }

        /// Reads JSON.
        init(json: some Sequence<UInt8>) throws { self = try JSONDecoder().decode(Node.self, from: Data(json)) }

        var members: [String: Node] { if case .object(let members) = self { members } else { [:] } }
        var items: [Node] { if case .list(let items) = self { items } else { [] } }
        var text: String? { if case .text(let text) = self { text } else { nil } }
        var integer: Int? { if case .number(let number) = self { Int(exactly: number) } else { nil } }
        var keys: Set<String> { Set(members.keys) }
        /// The texts of a list; what else stands in it is left out.
        var texts: [String] { items.compactMap(\.text) }
    }

    /// What one method of a path takes and answers.
    struct Operation {
        var method: String
        var path: String
        var node: Node

        var id: String { node.members["operationId"]?.text ?? "" }
    }

    let root: Node

    init() throws { root = try Node(json: EmbeddedFiles.content("WebAPI/OpenAPI/openapi.json")) }

    /// What stands at the end of a path of names; `null` where nothing does.
    subscript(_ names: String...) -> Node { names.reduce(root) { self.at($1, of: $0) } }

    /// A member, behind the reference where there is one.
    func at(_ name: String, of node: Node) -> Node { followed(followed(node).members[name] ?? .null) }

    /// A member of a member.
    func at(_ names: [String], of node: Node) -> Node { names.reduce(node) { at($1, of: $0) } }

    /// What a reference leads to.
    func followed(_ node: Node) -> Node {
        guard let reference = node.members["$ref"]?.text else { return node }
        return reference.split(separator: "/").dropFirst().reduce(root) { $0.members[String($1)] ?? .null }
    }

    func schema(_ name: String) -> Node { self["components", "schemas", name] }

    func property(_ name: String, of schema: String) -> Node {
        self["components", "schemas", schema, "properties", name]
    }

    var operations: [Operation] {
        self["paths"].members.flatMap { path, item in
            item.members.filter { $0.key != "parameters" }.map { method, node in
                Operation(method: method.uppercased(), path: path, node: node)
            }
        }
    }

    /// The kinds of problems that an operation answers with, by status.
    func problems(of operation: Operation) -> [Int: [String]] {
        var problems: [Int: [String]] = [:]
        for (status, answer) in at("responses", of: operation.node).members {
            let schema = at(["content", "application/problem+json", "schema"], of: answer)
            guard let narrowed = schema.members["allOf"]?.items.last else { continue }
            problems[Int(status) ?? 0] = at(["properties", "type", "enum"], of: narrowed).texts
        }
        return problems
    }
}
