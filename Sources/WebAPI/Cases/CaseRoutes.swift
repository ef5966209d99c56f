import Foundation
import HTTPTypes
import Hummingbird
import Postgres
import UserRequests

/// What users read of their cases at support, and say to them.
struct CaseRoutes: Sendable {
    let users: UserAuthenticator
    let requests: AppRequests
    let messages: Messages
    let bodies: BodyBudget

    /// `GET /v1/tickets`: the caller's cases, and transfers of their purchases that they were asked about.
    func list(_ request: Request, _ context: APIContext) async throws -> Response {
        let userID = try await users.user(of: request, context)
        guard let cases = try await requests.cases(of: userID) else { throw Problem(.unknownUser) }
        let language = messages.language(accepted: request.headers[.acceptLanguage])
        let view = CaseList(tickets: cases.map { CaseView($0, messages, language) })
        return JSONText.response(.ok, view, in: language)
    }

    /// `POST /v1/tickets/{id}/replies`: what the caller says to a case of theirs.
    func reply(_ request: Request, _ context: APIContext) async throws -> Response {
        let userID = try await users.user(of: request, context)
        let key = try AppHeaders.idempotencyKey(request)
        let body: ReplyBody = try await bodies.fields(of: request, from: userID, needed: "text", context)
        try BodyFault.check([("text", body.text), ("decision", body.decision)])
        // What is no id can't be what is asked.
        let question = body.questionID.map { UUID(uuidString: $0) ?? Self.noID }
        // An id that is none is that of nothing; what is wrong with the rest is said for any id, which keeps them indistinguishable.
        let id = context.parameters.get("id").flatMap { UUID(uuidString: $0) }
        let reply = CaseReply(text: body.text, decision: body.decision, questionID: question, idempotencyKey: key)
        switch try await requests.reply(reply, to: id ?? Self.noID, by: userID) {
        case .taken: return noted("reply.noted", request)
        case .notFound: throw Problem(.notFound)
        case .decided: throw Problem(.caseDecided, fix: "Ask for a restore if something is still missing.")
        case .questionChanged:
            throw Problem(.questionChanged, fix: "Show the case again, and let the person decide again.")
        case .notAsked:
            throw Problem(
                .invalidField,
                "decision: only an owner who is asked about a transfer decides",
                field: "decision",
                fix: "Leave decision out where role is claimant."
            )
        }
    }

    /// `POST /v1/releases`: an owner gives a purchase to their other account; what is behind the reference is not shown.
    func release(_ request: Request, _ context: APIContext) async throws -> Response {
        let userID = try await users.user(of: request, context)
        let body: ReleaseBody = try await bodies.fields(of: request, from: userID, needed: "reference", context)
        try BodyFault.check([("reference", body.reference)])
        try await requests.release(to: body.reference, by: userID)
        return noted("release.noted", request)
    }

    private static let noID = UUID(uuid: (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))

    private func noted(_ key: String, _ request: Request) -> Response {
        let language = messages.language(accepted: request.headers[.acceptLanguage])
        let view = NotedView(messageKey: key, message: messages.text(for: key, in: language, reference: "") ?? "")
        return JSONText.response(.accepted, view, in: language)
    }
}

/// What a user says to a case.
struct ReplyBody: Decodable, Sendable {
    var text: String?
    var decision: String?
    var questionID: String?

    private enum CodingKeys: String, CodingKey {
        case text, decision
        case questionID = "question_id"
    }
}

/// To which account a purchase is released.
struct ReleaseBody: Decodable, Sendable {
    var reference: String
}

/// That something was taken, and no more.
struct NotedView: Encodable {
    var messageKey: String
    var message: String

    private enum CodingKeys: String, CodingKey {
        case message
        case messageKey = "message_key"
    }
}

/// The cases of a user, as they are sent.
struct CaseList: Encodable {
    var tickets: [CaseView]
}

/// A case as it is sent to the app.
struct CaseView: Encodable {
    private var shown: UserCase
    private var message: String

    init(_ shown: UserCase, _ messages: Messages, _ language: String) {
        self.shown = shown
        func text(_ key: String) -> String? {
            messages.text(for: key, in: language, reference: shown.reference ?? "")
        }
        let key = Self.key(of: shown)
        // A team's own question may have no text: then the user learns that there is one.
        message = text(key) ?? text("case.question") ?? ""
    }

    /// The key of a case's text.
    static func key(of shown: UserCase) -> String {
        switch (shown.role, shown.state) {
        case (.claimant, .question): "question." + (shown.question ?? "")
        case (.claimant, .open): "case.open"
        case (.claimant, .decided): "case.decided"
        case (.owner, .question): "transfer.question"
        case (.owner, .open): "transfer.open"
        case (.owner, .decided): "transfer.decided"
        }
    }

    private enum CodingKeys: String, CodingKey {
        case id, role, reference, state, question, store, message
        case createdAt = "created_at"
        case questionID = "question_id"
        case askedAt = "asked_at"
        case answerBy = "answer_by"
        case productID = "product_id"
    }

    /// Writes all members; what is not known is null.
    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(shown.id.uuidString.lowercased(), forKey: .id)
        try container.encode(shown.role, forKey: .role)
        try container.encode(shown.reference, forKey: .reference)
        try container.encode(shown.state, forKey: .state)
        try container.encode(shown.createdAt, forKey: .createdAt)
        try container.encode(shown.question, forKey: .question)
        try container.encode(shown.questionID?.uuidString.lowercased(), forKey: .questionID)
        try container.encode(shown.askedAt, forKey: .askedAt)
        try container.encode(shown.answerBy, forKey: .answerBy)
        try container.encode(shown.store, forKey: .store)
        try container.encode(shown.productID, forKey: .productID)
        try container.encode(message, forKey: .message)
    }
}
