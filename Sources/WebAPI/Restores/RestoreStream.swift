import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
import UserRequests

/// What happens to a restore, as server-sent events.
///
/// Each event holds the whole restore, and its id is the stage: an app that comes back says which one was
/// seen last, and does not get it again. The last event, `finished` or `failed`, follows the commit.
struct RestoreStream: Sendable {
    /// A sign of life where nothing happens: proxies end connections that are silent.
    private static let heartbeat = Duration.seconds(10)
    /// When the client has to come again.
    private static let longest = Duration.seconds(900)
    /// What the client waits before it comes again, in milliseconds.
    private static let retryMs = 2_000
    /// The same where another of the user's streams has taken the place: at once they would take it from each other for ever.
    private static let displacedRetryMs = 60_000

    let first: RestoreAnswer
    let userID: String
    /// The id of the last event that the client has seen.
    let seen: String?
    let services: APIServices
    let messages: Messages
    let language: String

    /// Whether the client knows the end already.
    var isOver: Bool { first.hasEnded && seen == Self.stage(of: first) }

    private var hub: StatusHub { services.statusHub }

    private static func stage(of answer: RestoreAnswer) -> String {
        switch answer.state {
        case "done": "finished"
        case "dead", "canceled": "failed"
        default: answer.age >= RestoreView.patience ? "still_checking" : answer.state
        }
    }

    func response(to request: Request) -> Response {
        Response(
            status: .ok,
            headers: [
                .contentType: "text/event-stream", .cacheControl: "no-store", .contentLanguage: language,
                .vary: "Accept-Language",
            ],
            body: ResponseBody { @concurrent writer in
                try await request.body.consumeWithCancellationOnInboundClose { _ in
                    do {
                        let place = hub.takePlace(.stream, of: userID)
                        defer { hub.giveUp(place) }
                        try await write(to: &writer, from: place)
                        if !hub.holds(place) {
                            try await writer.write(ByteBuffer(string: "retry: \(Self.displacedRetryMs)\n\n"))
                        }
                    } catch is CancellationError {
                        // The client went away.
                    }
                }
                try await writer.finish(nil)
            }
        )
    }

    @concurrent private func write(
        to writer: inout any ResponseBodyWriter,
        from place: StatusHubState.Place
    ) async throws {
        let clock = ContinuousClock()
        let ends = clock.now + Self.longest
        var answer = first
        var sent = seen
        var lastSent = clock.now
        try await writer.write(ByteBuffer(string: "retry: \(Self.retryMs)\n\n"))
        while true {
            let stage = Self.stage(of: answer)
            // An app that waits long gets the expected time again.
            if stage != sent || stage == "still_checking" && clock.now - lastSent >= .seconds(RestoreView.patience) {
                try await writer.write(try await event(stage, answer))
                sent = stage
                lastSent = clock.now
            }
            guard !answer.hasEnded, !hub.isStopping, hub.holds(place), clock.now < ends else { return }
            let untilLate = Duration.seconds(max(0.05, RestoreView.patience - answer.age))
            let limit = answer.age < RestoreView.patience ? min(untilLate, Self.heartbeat) : Self.heartbeat
            if let next = await hub.next(.change(from: answer.state), of: answer.id, within: limit, from: place) {
                answer = next
            } else {
                try Task.checkCancellation()
                guard hub.holds(place) else { return }
                // What can't be read at the moment may be read at the next time.
                if let fresh = try? await hub.reading(of: answer.id) { answer = fresh }
                if Self.stage(of: answer) == sent { try await writer.write(ByteBuffer(string: ":\n\n")) }
            }
        }
    }

    private func event(_ stage: String, _ answer: RestoreAnswer) async throws -> ByteBuffer {
        let wait = stage == "still_checking" ? try? await services.requests.estimatedWait(answer.id) : nil
        let view = RestoreView(answer, wait: wait, messages: messages, language: language)
        var buffer = ByteBuffer(string: "id: \(stage)\nevent: \(stage)\ndata: ")
        var json = JSONText.buffer(view)
        buffer.writeBuffer(&json)
        buffer.writeString("\n\n")
        return buffer
    }
}
