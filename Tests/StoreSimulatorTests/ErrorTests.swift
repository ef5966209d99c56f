import HTTPTypes
import Testing

@testable import StoreSimulator

@Suite("Errors")
struct ErrorTests {
    struct Case: Sendable, CustomTestStringConvertible {
        var name: String
        var method: HTTPRequest.Method = .get
        var target: String
        var authorization: String? = "Bearer sk_full"
        var contentType: String? = "application/json"
        var body: String?
        var status: Int
        var type: String
        var param: String?
        var testDescription: String { name }
    }

    private static let base = "/v2/projects/p1/customers"

    private static let cases: [Case] = [
        Case(name: "no key", target: "\(base)/u", authorization: nil, status: 401, type: "authentication_error"),
        Case(
            name: "key without Bearer",
            target: "\(base)/u",
            authorization: "sk_full",
            status: 401,
            type: "authentication_error"
        ),
        Case(
            name: "unknown key",
            target: "\(base)/u",
            authorization: "Bearer sk_other",
            status: 401,
            type: "authentication_error"
        ),
        Case(name: "another project", target: "/v2/projects/p2/customers/u", status: 403, type: "authorization_error"),
        Case(
            name: "a read key that writes",
            method: .post,
            target: "\(base)/u/actions/transfer",
            authorization: "Bearer sk_read",
            body: "{}",
            status: 403,
            type: "authorization_error"
        ),
        Case(name: "unknown customer", target: "\(base)/nobody", status: 404, type: "resource_missing"),
        Case(name: "case differs", target: "\(base)/U/subscriptions", status: 404, type: "resource_missing"),
        Case(name: "unknown path", target: "\(base)/u/wishes", status: 404, type: "resource_missing"),
        Case(name: "broken escape", target: "\(base)/u%2", status: 404, type: "resource_missing"),
        Case(name: "wrong method", method: .put, target: "\(base)/u", status: 405, type: "invalid_request"),
        Case(
            name: "look-up without identifier",
            target: "/v2/projects/p1/subscriptions",
            status: 400,
            type: "parameter_error",
            param: "store_subscription_identifier"
        ),
        Case(
            name: "post without content type",
            method: .post,
            target: base,
            contentType: nil,
            body: "{}",
            status: 400,
            type: "invalid_request"
        ),
        Case(
            name: "body is no JSON",
            method: .post,
            target: base,
            body: "id=u",
            status: 400,
            type: "invalid_request"
        ),
        Case(
            name: "id is missing",
            method: .post,
            target: base,
            body: "{}",
            status: 400,
            type: "parameter_error",
            param: "id"
        ),
        Case(
            name: "id with a slash",
            method: .post,
            target: base,
            body: #"{"id":"a/b"}"#,
            status: 400,
            type: "parameter_error",
            param: "id"
        ),
        Case(
            name: "customer exists",
            method: .post,
            target: base,
            body: #"{"id":"u"}"#,
            status: 409,
            type: "resource_already_exists"
        ),
        Case(
            name: "transfer by the old key name",
            method: .post,
            target: "\(base)/u/actions/transfer",
            body: #"{"destination_customer_id":"v"}"#,
            status: 400,
            type: "parameter_error",
            param: "destination_customer_id"
        ),
        Case(
            name: "transfer without target",
            method: .post,
            target: "\(base)/u/actions/transfer",
            body: "{}",
            status: 400,
            type: "parameter_error",
            param: "target_customer_id"
        ),
        Case(
            name: "transfer to nobody",
            method: .post,
            target: "\(base)/u/actions/transfer",
            body: #"{"target_customer_id":"nobody"}"#,
            status: 404,
            type: "resource_missing"
        ),
        Case(
            name: "transfer to an alias of the source",
            method: .post,
            target: "\(base)/u/actions/transfer",
            body: #"{"target_customer_id":"u-alias"}"#,
            status: 422,
            type: "unprocessable_entity_error"
        ),
        Case(
            name: "grant without an end",
            method: .post,
            target: "\(base)/u/actions/grant_entitlement",
            body: #"{"entitlement_id":"entl9f8e7d6c5b"}"#,
            status: 400,
            type: "parameter_error",
            param: "expires_at"
        ),
        Case(
            name: "grant of an unknown entitlement",
            method: .post,
            target: "\(base)/u/actions/grant_entitlement",
            body: #"{"entitlement_id":"entlX","expires_at":4102444800000}"#,
            status: 404,
            type: "resource_missing"
        ),
    ]

    @Test("Each fault of a request has its status and error object", arguments: cases)
    func error(_ row: Case) async throws {
        let yaml = """
            project: p1
            api_keys: [sk_full, {key: sk_read, write: false}]
            customers: [{id: u, aliases: [u-alias], state: active}, {id: v}]
            """
        try await Probe.run(yaml) { probe in
            let answer = try await probe.send(
                row.method,
                row.target,
                authorization: row.authorization,
                contentType: row.contentType,
                body: row.body
            )
            #expect(answer.status == row.status)
            let json = try answer.json
            #expect(json.keys == ["object", "type", "message", "retryable", "doc_url", "param", "backoff_ms"])
            #expect(json["object"]?.text == "error")
            #expect(json["type"]?.text == row.type)
            #expect(json["retryable"]?.flag == false)
            #expect(json["param"]?.text == row.param)
            let page = row.type.replacing("_", with: "-")
            #expect(json["doc_url"]?.text == "https://errors.rev.cat/\(page)")
            #expect(answer.headers[.contentType] == "application/json")
            #expect(answer.header(.requestID)?.count == 16)
        }
    }

    @Test(
        "Without a list of keys, any secret or OAuth key is let in and nothing else",
        arguments: [
            ("Bearer sk_x", 200), ("Bearer atk_x", 200), ("Bearer sk_", 401), ("Bearer appl_x", 401),
            ("bearer sk_x", 401),
            ("Basic sk_x", 401),
        ]
    )
    func keys(header: String, status: Int) async throws {
        try await Probe.run("{project: p1, customers: [{id: u}]}") { probe async throws in
            #expect(try await probe.get("customers/u", authorization: header).status == status)
        }
    }

    @Test("A read of an unknown customer creates nothing")
    func unknownStaysUnknown() async throws {
        try await Probe.run("{project: p1}") { probe async throws in
            #expect(try await probe.get("customers/ghost").status == 404)
            #expect(try await probe.get("customers/ghost").status == 404)
        }
    }
}
