import Entitlements
import Foundation
import HTTPServing
import HTTPTypes
import Hummingbird
import Logging
import Postgres
import SignedTokens
import StoreClients
import Testing
import TextFormats
import Transport
@testable import UserRequests
@testable import WebAPI

/// The document says what the code does.
@Suite struct OpenAPITests {
    private typealias Node = OpenAPIDocument.Node
    private static let urn = "urn:entitlement-sync:problem:"

    private let document: OpenAPIDocument

    init() throws { document = try OpenAPIDocument() }

    /// A router with every endpoint, behind which nothing is ever reached.
    private func routes() throws -> [APIRouter.Route] {
        let logger = Logger(label: "openapi") { _ in SwiftLogNoOpLogHandler() }
        let nowhere = PostgresConfiguration(connectionString: "host=127.0.0.1 port=1")
        let requests = AppRequests(pool: PostgresPool(configuration: nowhere, logger: logger))
        let endpoints = APIEndpoints(
            services: APIServices(
                requests: requests,
                statusHub: StatusHub(requests: requests),
                restores: RestoreIntake(requests: requests),
                events: EventIntake(logger: logger) { _, _ in }
            ),
            tokens: AppTokens(
                firebase: try FirebaseTokens(
                    projectID: "demo",
                    http: HTTPClient { _, _ throws(HTTPClientFailure) in throw HTTPClientFailure(.unavailable) },
                    logger: logger
                ),
                issuer: nil
            ),
            messages: try Messages(),
            senders: WebhookSenders(),
            perUser: nil,
            perAddress: nil,
            readiness: { .ready },
            logger: logger
        )
        return endpoints.router(within: APILimits(inFlight: 500, proxies: .init())).routes
    }

    // MARK: Routes

    @Test func `It is answered as it is shipped, and may be kept for an hour`() async throws {
        let router = Router()
        router.get("/openapi.json") { _, _ in OpenAPIRoute.answer }
        let response = try await RouterProbe(router: router).ask("/openapi.json")
        #expect(response.status == .ok)
        #expect(response.headers[.contentType] == "application/json")
        #expect(response.headers[.cacheControl] == "public, max-age=3600")
        #expect(Array(response.body.readableBytesView) == EmbeddedFiles.content("WebAPI/OpenAPI/openapi.json"))
        #expect(document["openapi"].text == "3.1.0")
        let told = document["paths", "/openapi.json", "get", "responses", "200", "headers", "Cache-Control", "schema"]
        #expect(told.members["const"]?.text == OpenAPIRoute.answer.headers[.cacheControl])
    }

    @Test func `It has the routes that there are, and no others`() throws {
        let known = Set(try routes().map { "\($0.method.rawValue) \($0.path)" })
        #expect(Set(document.operations.map { "\($0.method) \($0.path)" }) == known)
        #expect(Set(document.operations.map(\.id)).count == known.count)
    }

    @Test func `Parts of paths in braces are parameters`() {
        for (path, item) in document["paths"].members {
            let named = path.split(separator: "/").filter { $0.hasPrefix("{") }.map {
                String($0.dropFirst().dropLast())
            }
            let parameters = item.members["parameters"]?.items.map(document.followed) ?? []
            let inPath = parameters.filter { $0.members["in"]?.text == "path" }
            #expect(inPath.compactMap { $0.members["name"]?.text } == named)
            #expect(inPath.allSatisfy { $0.members["required"] == .flag(true) })
        }
    }

    @Test func `Every reference leads somewhere, and every part is used`() {
        var used: Set<String> = []
        var next = [document["paths"]]
        while let node = next.popLast() {
            if let reference = node.members["$ref"]?.text, used.insert(reference).inserted {
                #expect(document.followed(node) != .null, "\(reference)")
                next.append(document.followed(node))
            }
            next += node.members.values + node.items
        }
        for (kind, parts) in document["components"].members where kind != "securitySchemes" {
            for name in parts.keys { #expect(used.contains("#/components/\(kind)/\(name)"), "\(kind) \(name)") }
        }
        let schemes = document.operations.flatMap { $0.node.members["security"]?.items.flatMap(\.keys) ?? [] }
        #expect(Set(schemes) == document["components", "securitySchemes"].keys)
    }

    // MARK: Problems

    private static let common: Set<Problem.Kind> = [.methodNotAllowed, .tooManyRequests]
    private static let late: Set<Problem.Kind> = [.failed, .unavailable]
    private static let ofEvents: Set<Problem.Kind> = [.malformedBody, .unauthenticated, .notFound, .bodyTooLarge]
    private static let kinds: [(String, Set<Problem.Kind>)] = [
        (
            "requestRestore",
            common.union(late).union([
                .malformedBody, .invalidField, .unauthenticated, .unknownUser, .notFound, .bodyTooLarge,
                .unsupportedMediaType, .keyReused,
            ])
        ),
        ("readRestore", common.union(late).union([.invalidField, .unauthenticated, .notFound])),
        ("followRestore", common.union(late).union([.unauthenticated, .notFound])),
        ("readEntitlement", common.union(late).union([.unauthenticated, .unknownUser, .notFound])),
        ("readTickets", common.union(late).union([.unauthenticated, .unknownUser, .notFound])),
        (
            "replyToTicket",
            common.union(late).union([
                .malformedBody, .invalidField, .unauthenticated, .notFound, .caseDecided, .questionChanged,
                .bodyTooLarge,
                .unsupportedMediaType, .keyReused,
            ])
        ),
        (
            "releasePurchase",
            common.union(late).union([
                .malformedBody, .invalidField, .unauthenticated, .unknownUser, .notFound, .bodyTooLarge,
                .unsupportedMediaType,
            ])
        ),
        ("receiveRevenueCatWebhook", common.union(late).union(ofEvents)),
        ("receiveAppStoreNotification", common.union(late).union(ofEvents)),
        ("receiveGooglePlayNotification", common.union(late).union(ofEvents)),
        ("readLiveness", [.methodNotAllowed]),
        ("readReadiness", [.methodNotAllowed]),
        ("readDocument", common),
    ]

    @Test func `It names every kind of problem, and no others`() {
        let named = document.property("type", of: "Problem").members["enum"]?.texts ?? []
        #expect(named == Problem.Kind.allCases.map { Self.urn + $0.rawValue })
        let described = document.property("type", of: "Problem").members["description"]?.text ?? ""
        for kind in Problem.Kind.allCases {
            #expect(described.contains("| `\(kind.rawValue)` | \(kind.status.code) |"), "\(kind)")
        }
    }

    @Test(arguments: kinds)
    private func `A route's problems stand under their statuses`(id: String, kinds: Set<Problem.Kind>) throws {
        let operation = try #require(document.operations.first { $0.id == id })
        let expected = Dictionary(grouping: kinds, by: \.status.code).mapValues {
            Set($0.map { Self.urn + $0.rawValue })
        }
        #expect(document.problems(of: operation).mapValues { Set($0) } == expected)
    }

    @Test func `Every problem is some route's`() {
        let known = Set(Self.kinds.flatMap(\.1))
        #expect(Set(document.operations.map(\.id)) == Set(Self.kinds.map(\.0)))
        #expect(Set(Problem.Kind.allCases) == known)
    }

    @Test func `Problems have the members that are sent, their titles and their headers`() async throws {
        for (name, answer) in document["components", "responses"].members {
            let content = document.at(["content", "application/problem+json"], of: answer)
            let example = content.members["example"]?.members ?? [:]
            let kind = try #require(
                Problem.Kind.allCases.first { example["type"]?.text == Self.urn + $0.rawValue },
                "\(name)"
            )
            #expect(example["title"]?.text == kind.title, "\(name)")
            #expect(example["status"]?.integer == kind.status.code, "\(name)")
            let extra: Set<String> =
                switch kind {
                case .unauthenticated: ["WWW-Authenticate"]
                case .methodNotAllowed: ["Allow"]
                case .tooManyRequests, .unavailable: ["Retry-After"]
                default: []
                }
            #expect(answer.members["headers"]?.keys == extra.union(["X-Request-Id"]), "\(name)")
        }
        let members = document.schema("Problem").members
        let most = try await sent(Problem(.invalidField, "a", field: "b", fix: "c"))
        #expect(most.keys == members["properties"]?.keys)
        let least = try await sent(Problem(.failed))
        #expect(least.keys == Set(members["required"]?.texts ?? []))
    }

    private func sent(_ problem: Problem) async throws -> Node {
        let router = Router()
        router.get("/") { _, _ in problem.response(requestID: "r-1") }
        return try Node(json: try await RouterProbe(router: router).ask("/").body.readableBytesView)
    }
}
