import Foundation

/// The parts of the API's description that the page shows.
struct APIDescription: Decodable {
    struct Info: Decodable {
        var version: String
        var description: String
    }

    struct Operation: Decodable {
        struct Response: Decodable {
            var description: String?
            var reference: String?

            enum CodingKeys: String, CodingKey {
                case description
                case reference = "$ref"
            }
        }

        var summary: String
        var description: String?
        var responses: [String: Response]
    }

    /// A path has operations beside its parameters, which are no operation.
    struct Path: Decodable {
        private struct Key: CodingKey {
            var stringValue: String
            var intValue: Int? { nil }

            init(stringValue: String) { self.stringValue = stringValue }
            init?(intValue: Int) { nil }
        }

        var operations: [String: Operation] = [:]

        init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: Key.self)
            for key in container.allKeys where ["get", "post", "put", "delete", "patch"].contains(key.stringValue) {
                operations[key.stringValue.uppercased()] = try container.decode(Operation.self, forKey: key)
            }
        }
    }

    struct Components: Decodable { var responses: [String: Operation.Response] }

    var info: Info
    var paths: [String: Path]
    var components: Components

    func words(of response: Operation.Response) -> String {
        let named = response.reference.flatMap { components.responses[String($0.split(separator: "/").last ?? "")] }
        return response.description ?? named?.description ?? ""
    }
}

/// Makes reference/api.md.
func apiPage(_ api: APIDescription) -> String {
    var page = Page("HTTP API", from: "openapi.json")
    page.add("`serve` and `run` answer `GET /openapi.json` with the whole description, schemas included: OpenAPI 3.1.")
    page.add(api.info.description.replacing("\n## ", with: "\n### "))
    for (path, item) in api.paths.sorted(by: { $0.key < $1.key }) {
        for (method, operation) in item.operations.sorted(by: { $0.key < $1.key }) {
            page.add("## \(method) \(path)")
            page.add(operation.summary + ".")
            page.add(operation.description ?? "")
            page.table(
                ["status", "meaning"],
                operation.responses.sorted { $0.key < $1.key }.map { [$0, api.words(of: $1)] }
            )
        }
    }
    return page.text
}
