import Entitlements
import Foundation
import HTTPServing
import HTTPTypes
import Hummingbird
import Logging
import UserRequests

/// What the app asks of restores.
struct RestoreRoutes: Sendable {
    /// The longest that one request waits for an end, in seconds.
    static let longestWait = 25
    private static let acceptLanguage = HTTPField.Name.acceptLanguage

    let callers: Callers
    let requests: AppRequests
    let intake: RestoreIntake
    let watch: RestoreWatch
    let messages: Messages
    let security: SecurityLog
    let bodies: BodyBudget

    /// `POST /v1/restores`: 202 says that it is accepted, never how it ends.
    func accept(_ request: Request, _ context: APIContext) async throws -> Response {
        let userID = try await callers.user(of: request, context)
        try AppHeaders.checkType(request)
        let body = try await bodies.read(request, upTo: RestoreBody.maximumBytes, from: .user(userID), context)
        // What was shown is in memory until it is kept.
        defer { body.giveBack() }
        let accepted = try await intake.accept(try await RestoreBody.wish(in: request, body.bytes, of: userID))
        let answer: RestoreAnswer
        if accepted.isNew {
            answer = RestoreAnswer(queued: accepted.id, userID: userID)
            // Its end will be asked for in a moment.
            watch.follow(answer)
        } else {
            guard let known = try await watch.reading(of: accepted.id) else { throw Problem(.failed) }
            answer = known
        }
        let id = Self.text(accepted.id)
        context.logger.debug("a restore was accepted", metadata: ["job.id": "\(id)"])
        return try await show(answer, .accepted, to: request, ["Location": "/v1/restores/\(id)"])
    }

    /// `GET /v1/restores/{id}?wait=SECONDS`: now, or as soon as it has ended.
    func status(_ request: Request, _ context: APIContext) async throws -> Response {
        let userID = try await callers.user(of: request, context)
        let wait = try Self.wait(in: request)
        let id = try Self.id(in: context)
        // A caller that waits need not learn first that it has not ended yet.
        let followed = wait > .zero ? watch.followed(id) : nil
        var answer: RestoreAnswer
        if let followed, followed.userID?.isExactly(userID) == true {
            answer = followed
        } else {
            answer = try await own(id, of: userID, context)
        }
        if wait > .zero, !answer.hasEnded {
            let limit = min(wait, .seconds(RestoreView.patience))
            let place = watch.takePlace(.wait, of: userID)
            defer { watch.giveUp(place) }
            if let ended = await watch.next(.end, of: answer.id, within: limit, from: place) {
                answer = ended
            } else {
                answer = try await own(answer.id, of: userID, context)
            }
        }
        return try await show(answer, .ok, to: request)
    }

    /// `GET /v1/restores/{id}/events`: what happens to it, as it happens.
    func events(_ request: Request, _ context: APIContext) async throws -> Response {
        let userID = try await callers.user(of: request, context)
        let answer = try await own(Self.id(in: context), of: userID, context)
        let stream = RestoreStream(
            first: answer,
            userID: userID,
            seen: HTTPField.Name("Last-Event-ID").flatMap { request.headers[$0] },
            watch: watch,
            requests: requests,
            messages: messages,
            language: language(of: request)
        )
        // Nothing is left to tell, and 204 is how a client is kept from asking again.
        if stream.isOver { return Response(status: .noContent) }
        return stream.response(to: request)
    }

    /// A restore of the user's own; anybody else's is as if there were none.
    private func own(_ id: UUID, of userID: String, _ context: APIContext) async throws -> RestoreAnswer {
        guard let answer = try await watch.reading(of: id) else { throw Problem(.notFound) }
        guard let owner = answer.userID, try await requests.isUser(owner, userID) else {
            security.refused("restores", "not_their_own", context)
            throw Problem(.notFound)
        }
        return answer
    }

    private func show(
        _ answer: RestoreAnswer,
        _ status: HTTPResponse.Status,
        to request: Request,
        _ more: [String: String] = [:]
    ) async throws -> Response {
        let language = language(of: request)
        var headers: HTTPFields = [.contentLanguage: language, .vary: "Accept-Language"]
        for (name, value) in more { if let name = HTTPField.Name(name) { headers[name] = value } }
        let isLate = !answer.hasEnded && answer.age >= RestoreView.patience
        let wait = isLate ? try await requests.estimatedWait(answer.id) : nil
        let view = RestoreView(answer, wait: wait, messages: messages, language: language)
        return JSONText.response(status, view, headers: headers)
    }

    private func language(of request: Request) -> String {
        messages.language(accepted: request.headers[Self.acceptLanguage])
    }

    private static func text(_ id: UUID) -> String { id.uuidString.lowercased() }

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
