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
    ///
    /// - Throws: `ScenarioError` that names the key at fault and how to mend it.
    package init(yaml text: String) throws {
        // An empty document is an empty scenario, not a fault.
        let isBlank = text.allSatisfy(\.isWhitespace)
        self = try Self.checked { try YAMLDecoder().decode(Scenario.self, from: isBlank ? "{}" : text) }
    }

    /// Reads a scenario from JSON.
    ///
    /// - Throws: `ScenarioError` that names the key at fault and how to mend it.
    static func decode(json data: Data) throws -> Scenario {
        try checked { try JSONDecoder().decode(Scenario.self, from: data) }
    }

    private static func checked(_ decode: () throws -> Scenario) throws -> Scenario {
        let scenario = try ScenarioError.explaining(decode)
        try scenario.validate()
        return scenario
    }

    /// Checks what no single field shows.
    ///
    /// - Throws: `ScenarioError` for a customer without an id, or an id used twice.
    func validate() throws {
        var owners: [[UInt8]: Int] = [:]
        for (index, customer) in customers.enumerated() {
            guard !customer.id.isEmpty else {
                throw ScenarioError(keyPath: "customers[\(index)].id", message: "is missing; add it")
            }
            for id in [customer.id] + customer.aliases {
                if let other = owners.updateValue(index, forKey: Array(id.utf8)) {
                    throw ScenarioError(
                        keyPath: "customers[\(index)]",
                        message: "uses the id \"\(id)\" of customers[\(other)]; give each id to one customer"
                    )
                }
            }
        }
        guard generate.count <= 99 else {
            throw ScenarioError(keyPath: "generate", message: "has more than 99 blocks; join some")
        }
        if let first = defaultCustomer?.aliases.first {
            throw ScenarioError(
                keyPath: "default_customer.aliases",
                message: "names \"\(first)\", but an unlisted customer has no fixed alias; remove it"
            )
        }
    }
}
