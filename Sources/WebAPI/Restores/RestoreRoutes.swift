import Entitlements
import Foundation
import HTTPServing
import HTTPTypes
import Hummingbird
import Logging
import SignedTokens
import UserRequests

/// What the app asks of restores.
struct RestoreRoutes: Sendable {
    /// The longest that one request waits for an end, in seconds.
    static let longestWait = 25

    let users: UserAuthenticator
    let services: APIServices
    let messages: Messages
    let security: SecurityLog
    let bodies: BodyBudget

    /// `POST /v1/restores`: 202 says that it is accepted, never how it ends.
    func accept(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try await users.caller(of: request, context)
        let userID = user.id
        try AppHeaders.checkType(request)
        let body = try await bodies.read(request, upTo: RestoreBody.maximumBytes, from: .user(userID), context)
        // Submitted proofs are in memory until they are kept.
        defer { body.giveBack() }
        var wish = try await RestoreBody.wish(in: request, body.bytes, of: userID)
        (wish.signInProvider, wish.signedInAt) = (user.signInProvider, user.signedInAt)
        let accepted = try await services.restores.accept(wish, since: context.arrival)
        let answer: RestoreAnswer
        if accepted.isNew {
            answer = RestoreAnswer(queued: accepted.id, userID: userID)
            // Its end will be asked for in a moment.
            hub.follow(answer)
        } else {
            guard let known = try await hub.reading(of: accepted.id) else { throw Problem(.failed) }
            answer = known
        }
        let id = accepted.id.uuidString.lowercased()
        context.logger.debug("a restore was accepted", metadata: ["job.id": "\(id)"])
        return try await show(answer, .accepted, to: request, location: "\(context.root)/restores/\(id)")
    }

    /// `GET /v1/restores/{id}?wait=SECONDS`: now, or as soon as it has ended.
    func status(_ request: Request, _ context: APIContext) async throws -> Response {
        let userID = try await users.user(of: request, context)
        let wait = try Self.wait(in: request)
        let id = try Self.id(in: context)
        // A caller that waits need not learn first that it has not ended yet.
        let followed = wait > .zero ? hub.followed(id) : nil
        var answer: RestoreAnswer
        if let followed, followed.userID?.isExactly(userID) == true {
            answer = followed
        } else {
            answer = try await own(id, of: userID, context)
        }
        if wait > .zero, !answer.hasEnded {
            let limit = min(wait, .seconds(RestoreView.patience))
            let place = hub.takePlace(.wait, of: userID)
            defer { hub.giveUp(place) }
            if let ended = await hub.next(.end, of: answer.id, within: limit, from: place) {
                answer = ended
            } else {
                answer = try await own(answer.id, of: userID, context)
            }
        }
        return try await show(answer, .ok, to: request)
    }

    /// `GET /v1/restores/{id}/events`: what happens to it, as it happens.
    func events(_ request: Request, _ context: APIContext) async throws -> Response {
        let userID = try await users.user(of: request, context)
        let answer = try await own(Self.id(in: context), of: userID, context)
        let stream = RestoreStream(
            first: answer,
            userID: userID,
            seen: HTTPField.Name("Last-Event-ID").flatMap { request.headers[$0] },
            services: services,
            messages: messages,
            language: language(of: request)
        )
        // Nothing is left to send, and 204 is how a client is kept from asking again.
        if stream.isOver { return Response(status: .noContent) }
        return stream.response(to: request)
    }

    /// A restore of the user's own; another user's is as if there were none.
    private func own(_ id: UUID, of userID: String, _ context: APIContext) async throws -> RestoreAnswer {
        guard let answer = try await hub.reading(of: id) else { throw Problem(.notFound) }
        guard let owner = answer.userID, try await services.requests.isUser(owner, userID) else {
            security.refused("restores", "not_their_own", context)
            throw Problem(.notFound)
        }
        return answer
    }

    private func show(
        _ answer: RestoreAnswer,
        _ status: HTTPResponse.Status,
        to request: Request,
        location: String? = nil
    ) async throws -> Response {
        let language = language(of: request)
        let isLate = !answer.hasEnded && answer.age >= RestoreView.patience
        let wait = isLate ? try await services.requests.estimatedWait(answer.id) : nil
        let view = RestoreView(answer, wait: wait, messages: messages, language: language)
        return JSONText.response(status, view, in: language, location: location)
    }

    private var hub: StatusHub { services.statusHub }

    private func language(of request: Request) -> String {
        messages.language(accepted: request.headers[.acceptLanguage])
    }

    /// An id that is none is that of nothing.
    private static func id(in context: APIContext) throws(Problem) -> UUID {
        guard let id = context.parameters.get("id").flatMap({ UUID(uuidString: $0) }) else { throw Problem(.notFound) }
        return id
    }

    private static func wait(in request: Request) throws(Problem) -> Duration {
        guard let text = request.uri.queryParameters.get("wait") else { return .zero }
        guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let seconds = Int(text), seconds <= longestWait
        else {
            throw Problem(
                .invalidField,
                "wait: must be a whole number of seconds from 0 to \(longestWait)",
                field: "wait"
            )
        }
        return .seconds(seconds)
    }
}

/// A restore as it is sent to the app.
struct RestoreView: Encodable, Sendable {
    /// After this time without an end the user reads that it takes longer, in seconds.
    static let patience = 20.0

    var id: String
    var reference: String
    var state: String
    @OrNull var outcome: String?
    @OrNull var messageKey: String?
    @OrNull var message: String?
    var products: [RestoredProduct]
    @OrNull var estimatedWaitSeconds: Int?

    private enum CodingKeys: String, CodingKey {
        case id, reference, state, outcome, message, products
        case messageKey = "message_key"
        case estimatedWaitSeconds = "estimated_wait_s"
    }

    /// Shows a reading; `wait`: how long it will still take, in seconds, where that is known.
    init(_ answer: RestoreAnswer, wait: Double?, messages: Messages, language: String) {
        let isLate = !answer.hasEnded && answer.age >= Self.patience
        let key = isLate ? MessageKey.stillChecking.rawValue : answer.messageKey
        id = answer.id.uuidString.lowercased()
        reference = answer.reference
        state = answer.state
        outcome = answer.outcome
        messageKey = key
        message = key.flatMap { messages.text(for: $0, in: language, reference: answer.reference) }
        products = answer.products
        // Within bounds that a client's integers hold.
        estimatedWaitSeconds = isLate ? wait.map { Int(min(max($0, 1), 86_400).rounded(.up)) } : nil
    }
}
