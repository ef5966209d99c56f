import Entitlements
import Foundation
import Testing
@testable import UserRequests
@testable import WebAPI

/// The document's limits, words and members are those of the code and of the contract in SQL.
@Suite struct OpenAPISchemaTests {
    private typealias Node = OpenAPIDocument.Node

    private let document: OpenAPIDocument
    private let contract: String
    /// What is said to cases.
    private let answers: String

    init() throws {
        document = try OpenAPIDocument()
        let package = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        func functions(_ name: String) throws -> String {
            try String(contentsOf: package.appendingPathComponent("sql/functions/\(name).sql"), encoding: .utf8)
        }
        contract = try functions("requests") + functions("restores")
        answers = try functions("desk/questions")
    }

    /// What follows a text in the contract, up to an end.
    private func rest(of text: String, upTo end: Character) throws -> Substring {
        let range = try #require(contract.range(of: text), "\(text)")
        return contract[range.upperBound...].prefix { $0 != end }
    }

    /// A number that the contract compares with, the same wherever it does.
    private func limit(_ text: String) throws -> Int {
        let places = contract.ranges(of: text + " > ")
        let numbers = Set(places.map { contract[$0.upperBound...].prefix(while: \.isNumber) })
        #expect(numbers.count == 1, "\(text)")
        return try #require(numbers.first.flatMap { Int($0) })
    }

    /// The quoted words of a list.
    private func words(_ text: Substring) -> Set<String> {
        Set(text.matches(of: /'([^']*)'/).map { String($0.output.1) })
    }

    private func property(_ name: String, of schema: String = "RestoreRequest") -> [String: Node] {
        document.property(name, of: schema).members
    }

    // MARK: Limits

    @Test func `Limits of parameters are the code's`() throws {
        let wait = document["components", "parameters", "Wait", "schema"].members
        #expect(wait["minimum"]?.integer == 0)
        #expect(wait["maximum"]?.integer == RestoreRoutes.longestWait)
        let key = document["components", "parameters", "IdempotencyKey", "schema"].members
        #expect(key["minLength"]?.integer == 1)
        #expect(key["maxLength"]?.integer == (try limit("length(idempotency_key)")))
    }

    @Test func `Limits of the restore's body are the contract's`() throws {
        #expect(property("client_error")["maxLength"]?.integer == (try limit("length(client_error)")))
        #expect(property("product_ids")["maxItems"]?.integer == (try limit("cardinality(product_ids)")))
        #expect(property("product_ids")["items"]?.members["maxLength"]?.integer == (try limit("length(p.id)")))
        #expect(property("proofs")["maxItems"]?.integer == (try limit("jsonb_array_length(proofs)")))
    }

    @Test func `Bodies are as long as they may be`() {
        for operation in document.operations where operation.method == "POST" {
            let limit =
                switch operation.path {
                case "/v1/restores": RestoreBody.maximumBytes
                case "/v1/tickets/{id}/replies", "/v1/releases": BodyBudget.fewFieldsBytes
                case "/v1/webhooks/app-store": WebhookRoutes.maximumUnknownBytes
                default: WebhookRoutes.maximumBytes
                }
            let body = document.at(["requestBody", "description"], of: operation.node).text
            #expect(
                body?.contains("at most \(limit) bytes") == true || body?.contains("At most \(limit) bytes") == true
            )
            let refusal = document.at(
                ["responses", "413", "content", "application/problem+json", "example", "detail"],
                of: operation.node
            )
            #expect(refusal.text == "at most \(limit) bytes are taken")
        }
    }

    @Test func `A restore that takes long is one after the time that the text says`() {
        let text = document["paths", "/v1/restores/{id}", "get", "description"].text ?? ""
        #expect(text.contains("within \(Int(RestoreView.patience)) seconds"))
    }

    @Test func `It names the languages that are shipped`() throws {
        let text = document["components", "parameters", "AcceptLanguage", "description"].text ?? ""
        let named = text.matches(of: /`([a-z]{2})`/).map { String($0.output.1) }
        #expect(Set(named) == Set(try Messages().languages))
    }

    // MARK: Proofs

    private var proofs: [Node] { document.schema("Proof").members["oneOf"]?.items.map(document.followed) ?? [] }

    private func texts(_ name: String, of proof: Node) -> [String] {
        document.at(["properties", name, "enum"], of: proof).texts
    }

    @Test func `Proofs have the kinds and the stores of the contract`() throws {
        let kinds = proofs.flatMap { texts("kind", of: $0) }
        #expect(Set(kinds) == words(try rest(of: "proof ->> 'kind' NOT IN (", upTo: ")")))
        #expect(Set(kinds).count == kinds.count, "a kind is described once")
        let alias = String(try rest(of: "IF proof ->> 'store' = '", upTo: "'"))
        let stores = words(try rest(of: "proof ->> 'store' NOT IN (", upTo: ")"))
        #expect(Set(proofs.flatMap { texts("store", of: $0) }) == stores.union([alias]))
    }

    @Test func `Each kind goes with its store`() throws {
        let alias = String(try rest(of: "IF proof ->> 'store' = '", upTo: "'"))
        var stores: [String: Set<String>] = [:]
        for kind in words(try rest(of: "proof ->> 'kind' NOT IN (", upTo: ")")) {
            stores[kind] = words(try rest(of: "proof ->> 'store' NOT IN (", upTo: ")"))
        }
        let rules = contract.matches(
            of: /\(proof ->> 'kind' (?:IN \(([^)]*)\)|= ('[^']*')) AND proof ->> 'store' <> '([^']*)'\)/
        )
        #expect(rules.count == 3)
        for rule in rules {
            for kind in words(rule.output.1 ?? rule.output.2 ?? "") { stores[kind] = [String(rule.output.3)] }
        }
        for proof in proofs {
            var told = Set(texts("store", of: proof))
            if told.contains("google_play") { #expect(told.remove(alias) != nil) }
            for kind in texts("kind", of: proof) { #expect(told == stores[kind], "\(kind)") }
        }
    }

    @Test func `Values of proofs are as long as the contract lets them be`() throws {
        let short = contract.firstMatch(of: /'kind' IN \(([^)]*)\) AND length\(proof ->> 'value'\) > (\d+)/)
        let (_, kinds, most) = try #require(short).output
        for proof in proofs {
            let value = document.at(["properties", "value"], of: proof).members
            let isShort = !words(kinds).isDisjoint(with: texts("kind", of: proof))
            let limit = try isShort ? #require(Int(most)) : limit("IF length(proof ->> 'value')")
            #expect(value["maxLength"]?.integer == limit)
            #expect(value["minLength"]?.integer == 1)
        }
    }

    @Test func `Origins are the contract's`() throws {
        let origins = property("origin")["enum"]?.items ?? []
        #expect(Set(origins.compactMap(\.text)) == words(try rest(of: "origin NOT IN (", upTo: ")")))
        #expect(origins.contains(.null))
    }

    // MARK: Answers

    @Test func `Words of a restore are those that it can have`() {
        let ofReconciles: Set<Outcome> = [.promoted, .demoted, .unchanged, .deferred]
        let outcomes = Set(Outcome.allCases).subtracting(ofReconciles).map { Node.text($0.rawValue) }
        #expect(Set(property("outcome", of: "Restore")["enum"]?.items ?? []) == Set(outcomes + [.null]))
        let keys = MessageKey.allCases.map { Node.text($0.rawValue) }
        #expect(property("message_key", of: "Restore")["enum"]?.items == keys + [.null])
        let stores = property("store", of: "StoreState")["enum"]?.texts
        #expect(stores == Store.allCases.map(\.rawValue))
    }

    @Test func `Answers have the members that are sent`() throws {
        let answer = RestoreAnswer(queued: UUID(), userID: "ann")
        try check("Restore", RestoreView(answer, wait: nil, messages: Messages(), language: "en"))
        try check("RestoredProduct", RestoredProduct(store: "", productID: nil, entitlements: [], endsAt: nil))
        try check("Ticket", VisibleTicket(reference: "", state: "", createdAt: ""))
        try check("StoreState", EntitlementRoute.StoreView(store: "", state: "", message: nil))
        let shown = UserCase(id: UUID(), role: .owner, reference: nil, state: .open, createdAt: "")
        try check("Case", CaseView(shown, Messages(), "en"))
        try check("Cases", CaseList(tickets: []))
        try check("Noted", NotedView(messageKey: "", message: ""))
        let entitlement = EntitlementAnswer(
            type: "",
            until: nil,
            suggestsRestore: false,
            tickets: [],
            stores: [],
            entitlements: []
        )
        try check("GivenEntitlement", GivenEntitlement())
        try check("Entitlement", EntitlementRoute.View(entitlement, Messages(), "en"))
    }

    @Test func `Words of cases are the code's, and limits of replies those of the contract`() throws {
        #expect(property("role", of: "Case")["enum"]?.texts == UserCase.Role.allCases.map(\.rawValue))
        #expect(property("state", of: "Case")["enum"]?.texts == UserCase.State.allCases.map(\.rawValue))
        let questions = property("question", of: "Case")["description"]?.text ?? ""
        for question in DeskQuestion.allCases { #expect(questions.contains("`\(question.rawValue)`")) }
        let text = property("text", of: "Reply")
        #expect(text["minLength"]?.integer == 1)
        let most = try #require(
            answers.firstMatch(of: /length\(words\) > (\d+) THEN\s+RAISE EXCEPTION USING ERRCODE = 'ES005'/)
        )
        #expect(text["maxLength"]?.integer == Int(most.output.1))
        let decisions = property("decision", of: "Reply")["enum"]?.items.compactMap(\.text) ?? []
        let known = try #require(answers.firstMatch(of: /wish NOT IN \(([^)]*)\)/))
        #expect(Set(decisions) == words(known.output.1))
        for name in ["Case", "Cases"] {
            for example in document.schema(name).members["examples"]?.items ?? [] {
                for item in example.members["tickets"]?.items ?? [example] {
                    #expect(item.keys == document.schema("Case").members["properties"]?.keys)
                    let key = try "question." + #require(item.members["question"]?.text)
                    #expect(try item.members["message"]?.text == Messages().text(for: key, reference: ""))
                }
            }
        }
    }

    private func check(_ name: String, _ value: some Encodable) throws {
        let sent = try Node(json: JSONEncoder().encode(value)).keys
        let schema = document.schema(name).members
        #expect(schema["properties"]?.keys == sent, "\(name)")
        #expect(Set(schema["required"]?.texts ?? []) == sent, "\(name)")
        #expect(schema["additionalProperties"] == .flag(false), "\(name)")
    }

    // MARK: Examples

    @Test func `Requests of the examples can be read`() throws {
        let content = document["paths", "/v1/restores", "post", "requestBody", "content", "application/json"]
        let examples = content.members["examples"]?.members ?? [:]
        #expect(!examples.isEmpty)
        for (name, example) in examples {
            let value = try #require(example.members["value"])
            _ = try JSONDecoder().decode(RestoreBody.self, from: JSONEncoder().encode(value))
            let known = document.schema("RestoreRequest").members["properties"]?.keys ?? []
            #expect(value.keys.isSubset(of: known), "\(name)")
        }
    }

    @Test func `Restores of the examples are as they would be sent`() throws {
        var examples = document.schema("Restore").members["examples"]?.items ?? []
        for (path, method, status) in [("/v1/restores", "post", "202"), ("/v1/restores/{id}", "get", "200")] {
            let content = document[
                "paths",
                path,
                method,
                "responses",
                status,
                "content",
                "application/json",
                "examples"
            ]
            examples += content.members.values.compactMap { $0.members["value"] }
        }
        #expect(examples.count > 5)
        for example in examples {
            let members = example.members
            #expect(example.keys == document.schema("Restore").members["properties"]?.keys)
            for name in ["state", "outcome", "message_key"] {
                let words = property(name, of: "Restore")["enum"]?.items ?? []
                #expect(words.contains(members[name] ?? .flag(false)), "\(name)")
            }
            let reference = try #require(members["reference"]?.text)
            let text = try members["message_key"]?.text.map { try Messages().text(for: $0, reference: reference) }
            #expect(members["message"]?.text == text ?? nil)
            for product in members["products"]?.items ?? [] {
                #expect(product.keys == document.schema("RestoredProduct").members["properties"]?.keys)
            }
        }
    }

    @Test func `What the user has is shown with all its members`() throws {
        let schema = document.schema("Entitlement").members
        let example = try #require(schema["examples"]?.items.first)
        #expect(example.keys == schema["properties"]?.keys)
        #expect(example.keys == Set(schema["required"]?.texts ?? []))
    }
}
