import Foundation
import HTTPTypes
import Hummingbird
import Logging
import Postgres
import Testing

@testable import WebAPI

/// How a caller is told that something is wrong.
@Suite struct ProblemTests {
    static let statuses: [(Problem.Kind, Int)] = [
        (.malformedBody, 400), (.invalidField, 400), (.unauthenticated, 401), (.unknownUser, 404),
        (.notFound, 404), (.methodNotAllowed, 405), (.caseDecided, 409),
        (.questionChanged, 409), (.bodyTooLarge, 413), (.unsupportedMediaType, 415),
        (.keyReused, 422), (.tooManyRequests, 429), (.failed, 500), (.unavailable, 503),
    ]

    /// Sends a problem as an answer.
    private func answer(
        _ problem: Problem,
        _ check: (RouterProbe<BasicRequestContext>.Answer, String) throws -> Void
    ) async throws {
        let router = Router()
        router.get("/") { _, _ in problem.response(requestID: "r-1") }
        let response = try await RouterProbe(router: router).ask("/")
        try check(response, response.text)
    }

    private static func members(_ body: String) throws -> [String: Any] {
        let object = try JSONSerialization.jsonObject(with: Data(body.utf8))
        return try #require(object as? [String: Any])
    }

    // MARK: Answers

    @Test func `Every kind of problem has a name and a title of its own, and a status`() {
        let kinds = Problem.Kind.allCases
        #expect(Set(kinds.map(\.title)).count == kinds.count)
        #expect(Set(kinds.map(\.rawValue)).count == kinds.count)
        #expect(Set(Self.statuses.map(\.0)) == Set(kinds))
        for kind in kinds {
            let isPlain = kind.rawValue.utf8.allSatisfy { (0x61...0x7A).contains($0) || $0 == 0x2D }
            #expect(isPlain, "\(kind.rawValue) stands in a URN")
        }
    }

    @Test(arguments: statuses)
    func `An answer says what kind of problem it is, and which request had it`(
        kind: Problem.Kind,
        status: Int
    ) async throws {
        try await answer(Problem(kind)) { response, body in
            #expect(response.status.code == status)
            #expect(response.headers[.contentType] == "application/problem+json")
            #expect(response.headers[.retryAfter] == nil)
            let members = try Self.members(body)
            #expect(Set(members.keys) == ["type", "title", "status", "instance"])
            #expect(members["type"] as? String == "urn:entitlement-sync:problem:\(kind.rawValue)")
            #expect(members["title"] as? String == kind.title)
            #expect((members["status"] as? NSNumber)?.intValue == status)
            #expect(members["instance"] as? String == "urn:entitlement-sync:request:r-1")
        }
    }

    @Test func `An answer says what is wrong, where, what to do and when to come again`() async throws {
        let problem = Problem(
            .invalidField,
            "origin: must be profile, paywall or null",
            field: "origin",
            fix: "Say \"profile\", or nothing: é/漢.",
            retryAfterSeconds: 7
        )
        try await answer(problem) { response, body in
            #expect(response.headers[.retryAfter] == "7")
            let members = try Self.members(body)
            #expect(Set(members.keys) == ["type", "title", "status", "instance", "detail", "field", "fix"])
            #expect(members["detail"] as? String == "origin: must be profile, paywall or null")
            #expect(members["field"] as? String == "origin")
            #expect(members["fix"] as? String == "Say \"profile\", or nothing: é/漢.")
        }
    }

    @Test func `Headers of a problem's own go with it, and whoever shows no token is asked for one`() async throws {
        var refused = Problem(.methodNotAllowed)
        refused.headers[.allow] = "GET, POST"
        try await answer(refused) { response, _ in
            #expect(response.headers[.allow] == "GET, POST")
            #expect(response.headers[.wwwAuthenticate] == nil)
        }
        try await answer(Problem(.unauthenticated)) { response, _ in
            #expect(response.headers[.wwwAuthenticate] == "Bearer")
        }
        var expired = Problem(.unauthenticated)
        expired.headers[.wwwAuthenticate] = #"Bearer error="invalid_token""#
        try await answer(expired) { response, _ in
            #expect(response.headers[.wwwAuthenticate] == #"Bearer error="invalid_token""#)
        }
    }

    // MARK: The database's words

    private func heard(_ error: PostgresError) -> (problem: Problem, lines: [HeardLines.Line]) {
        let heard = HeardLines()
        let problem = DatabaseProblem.problem(error, heard.logger)
        return (problem, heard.all)
    }

    private func refusal(_ state: String, _ message: String, hint: String? = nil) -> PostgresError {
        var error = PostgresError(.serverError, sqlState: state, message: message)
        error.hint = hint
        return error
    }

    @Test(
        arguments: [
            ("ES002", "proofs[2].kind: unknown kind", "proofs[2].kind"),
            ("ES002", "proofs: must be a JSON array", "proofs"),
            ("ES003", "idempotency_key: longer than 255", "Idempotency-Key"),
            ("ES005", "product_ids: at most 100 are taken", "product_ids"),
            ("22023", "origin: must be profile, paywall or null", "origin"),
        ] as [(String, String, String)]
    )
    func `What our own functions refuse names the field and what to do`(
        state: String,
        message: String,
        field: String
    ) {
        let (problem, lines) = heard(refusal(state, message, hint: "Do otherwise."))
        #expect(problem == Problem(.invalidField, message, field: field, fix: "Do otherwise."))
        #expect(lines.isEmpty, "a caller's fault is nothing to mend")
    }

    @Test func `An unknown user and a key that was used before are told as such`() {
        let (unknown, silent) = heard(refusal("ES001", "user_id: no such user", hint: "Create the user first."))
        #expect(unknown.kind == .unknownUser && unknown.fix != nil)
        #expect(unknown.detail == nil && unknown.field == nil)
        let (reused, quiet) = heard(
            refusal("ES004", "idempotency_key: used before with other content", hint: "Use a new one.")
        )
        #expect(reused == Problem(.keyReused, field: "Idempotency-Key", fix: "Use a new one."))
        #expect(silent.isEmpty && quiet.isEmpty)
    }

    @Test func `Who said enough for a day is told to come later`() {
        let (problem, lines) = heard(refusal("ES008", "text: enough was said today", hint: "Tomorrow."))
        let expected = Problem(
            .tooManyRequests,
            "text: enough was said today",
            fix: "Tomorrow.",
            retryAfterSeconds: 3600
        )
        #expect(problem == expected && lines.isEmpty)
    }

    @Test(arguments: ["22P05", "22021", "22001", "22000"])
    func `Text that can't be stored is refused without being repeated`(state: String) {
        let (problem, lines) = heard(refusal(state, "invalid byte sequence: user-1"))
        #expect(problem == Problem(.invalidField, "a text holds characters that can't be stored"))
        #expect(lines.isEmpty)
    }

    static let others: [(PostgresError.Code, String?, Bool)] = [
        (.connectionFailed, nil, true), (.connectionFailed, "57P03", true), (.connectionLost, nil, true),
        (.commitUnknown, nil, true), (.poolExhausted, nil, true), (.timeout, "57014", true), (.closed, nil, true),
        (.staleStatement, "26000", true), (.serverError, "40001", true), (.serverError, "40P01", true),
        (.serverError, "55P03", true), (.serverError, "57P01", true), (.serverError, "53300", true),
        (.serverError, "25006", true), (.serverError, "08006", true), (.serverError, "42501", false),
        (.serverError, "23505", false), (.serverError, "P0001", false), (.serverError, "ES999", false),
        (.serverError, nil, false), (.cancelled, "57014", false), (.decoding, nil, false),
        (.protocolViolation, nil, false), (.configuration, nil, false), (.misuse, nil, false),
    ]

    @Test(arguments: others)
    func `What is ours to mend is told by its kind alone, and logged`(
        code: PostgresError.Code,
        state: String?,
        passes: Bool
    ) {
        let (problem, lines) = heard(PostgresError(code, sqlState: state, message: "quotes user-1"))
        #expect(problem == (passes ? Problem(.unavailable, retryAfterSeconds: 5) : Problem(.failed)))
        let line = HeardLines.Line(
            level: .warning,
            message: "the database refused a request",
            metadata: ["error.code": code.rawValue, "error.sqlstate": state ?? ""]
        )
        #expect(lines == [line], "nothing of what the server said goes along")
    }

    @Test func `Every kind of failure has its place in the table`() {
        #expect(Set(Self.others.map(\.0)) == Set(PostgresError.Code.allCases))
    }

    // MARK: Bodies

    private func problem(of body: String) throws -> Problem? {
        do {
            _ = try JSONDecoder().decode(RestoreBody.self, from: Data(body.utf8))
            return nil
        } catch { return BodyFault.problem(error) }
    }

    @Test(
        arguments: [
            (#"{"proofs":7}"#, "proofs", "must be an array"), (#"{"proofs":{}}"#, "proofs", "must be an array"),
            (#"{"proofs":[7]}"#, "proofs[0]", "must be an object"),
            (#"{"proofs":[{"store":"a","kind":"b","value":"c"},null]}"#, "proofs[1]", "must be an object"),
            (#"{"proofs":[{"store":"a","kind":"b"}]}"#, "proofs[0].value", "is missing"),
            (#"{"proofs":[{"kind":"b","value":"c"}]}"#, "proofs[0].store", "is missing"),
            (#"{"proofs":[{"store":1,"kind":"b","value":"c"}]}"#, "proofs[0].store", "must be a string"),
            (#"{"proofs":[{"store":null,"kind":"b","value":"c"}]}"#, "proofs[0].store", "must be a string"),
            (#"{"product_ids":"a"}"#, "product_ids", "must be an array"),
            (#"{"product_ids":["a",5]}"#, "product_ids[1]", "must be a string"),
            (#"{"client_error":{}}"#, "client_error", "must be a string"),
            (#"{"origin":["profile"]}"#, "origin", "must be a string"),
        ] as [(String, String, String)]
    )
    func `A member of a wrong type is named by its path`(body: String, field: String, fault: String) throws {
        let found = try #require(try problem(of: body))
        #expect(found.kind == .invalidField && found.field == field)
        #expect(found.detail?.hasPrefix("\(field): \(fault)") == true, "\(found.detail ?? "")")
    }

    @Test(arguments: ["", "{", "no JSON", "[]", "7", #""text""#, "null", #"{"proofs":[}"#])
    func `A body that is no object is malformed`(body: String) throws {
        let found = try #require(try problem(of: body))
        #expect(found.kind == .malformedBody && found.field == nil)
        #expect(found.detail?.hasPrefix("the body ") == true && found.fix?.isEmpty == false)
    }

    @Test(arguments: ["{}", #"{"proofs":null,"client_error":null,"product_ids":null,"origin":null}"#, #"{"more":[1]}"#])
    func `Every member may be missing, and others mean nothing`(body: String) throws {
        #expect(try problem(of: body) == nil)
    }

    @Test func `A body that failed for another reason is malformed, and nothing more is said`() {
        struct Other: Error {}
        #expect(BodyFault.problem(Other()) == Problem(.malformedBody))
    }
}
