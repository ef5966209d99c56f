import Hummingbird
import Storage

/// `GET /v1/entitlement`: what the app shows at its launch.
struct EntitlementRoute: Sendable {
    let callers: Callers
    let requests: AppRequests

    func show(_ request: Request, _ context: APIContext) async throws -> Response {
        let userID = try await callers.user(of: request, context)
        guard let answer = try await requests.entitlement(of: userID) else { throw Problem(.unknownUser) }
        return JSONText.response(.ok, View(answer))
    }

    private struct View: Encodable {
        var answer: EntitlementAnswer

        init(_ answer: EntitlementAnswer) { self.answer = answer }

        private enum CodingKeys: String, CodingKey {
            case type, until, tickets, stores
            case suggestsRestore = "restore_suggested"
        }

        func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(answer.type, forKey: .type)
            try container.encode(answer.until, forKey: .until)
            try container.encode(answer.suggestsRestore, forKey: .suggestsRestore)
            try container.encode(answer.tickets, forKey: .tickets)
            try container.encode(answer.stores, forKey: .stores)
        }
    }
}
