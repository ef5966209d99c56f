internal import Foundation
internal import Yams

extension Scenario {
    /// Reads a scenario from a file, as JSON where the name ends in `.json`, else as YAML.
    ///
    /// - Throws: `ScenarioError` that names the key at fault and how to mend it.
    package static func load(fileAt path: String) throws -> Scenario {
        guard let data = FileManager.default.contents(atPath: path) else {
            throw ScenarioError(keyPath: "", message: "\(path) cannot be read; check the path and its permissions")
        }
        if path.hasSuffix(".json") { return try decode(json: data) }
        guard let text = String(data: data, encoding: .utf8) else {
            throw ScenarioError(keyPath: "", message: "\(path) is not UTF-8; save it as UTF-8")
        }
        return try Scenario(yaml: text)
    }

    /// Reads a scenario from YAML text.
    package init(yaml text: String) throws {
        // An empty document is an empty scenario, not a fault.
        let isBlank = text.allSatisfy(\.isWhitespace)
        self = try ScenarioError.explaining {
            try YAMLDecoder().decode(Scenario.self, from: isBlank ? "{}" : text)
        }
    }

    /// Reads a scenario from JSON.
    static func decode(json data: Data) throws -> Scenario {
        try ScenarioError.explaining { try JSONDecoder().decode(Scenario.self, from: data) }
    }

    package func check() throws {
        var owners: [[UInt8]: Int] = [:]
        for (index, customer) in customers.enumerated() {
            guard !customer.id.isEmpty else {
                throw FieldFault(message: "is missing; add it", at: "customers[\(index)].id")
            }
            for id in [customer.id] + customer.aliases {
                guard let other = owners.updateValue(index, forKey: Array(id.utf8)) else { continue }
                let message = "uses the id \"\(id)\" of customers[\(other)]; give each id to one customer"
                throw FieldFault(message: message, at: "customers[\(index)]")
            }
        }
        guard generate.count <= 99 else {
            throw FieldFault(message: "has more than 99 blocks; join some", at: "generate")
        }
        if let first = defaultCustomer?.aliases.first {
            let message = "names \"\(first)\", but an unlisted customer has no fixed alias; remove it"
            throw FieldFault(message: message, at: "default_customer.aliases")
        }
    }
}
