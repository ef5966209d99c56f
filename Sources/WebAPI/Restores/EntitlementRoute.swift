import HTTPTypes
import Hummingbird
import UserRequests

/// `GET /v1/entitlement`: what the app shows at its launch.
struct EntitlementRoute: Sendable {
    let callers: Callers
    let requests: AppRequests
    let messages: Messages

    func show(_ request: Request, _ context: APIContext) async throws -> Response {
        let userID = try await callers.user(of: request, context)
        guard let answer = try await requests.entitlement(of: userID) else { throw Problem(.unknownUser) }
        let language = messages.language(accepted: request.headers[.acceptLanguage])
        return JSONText.response(
            .ok,
            View(answer, messages, language),
            headers: [.contentLanguage: language, .vary: "Accept-Language"]
        )
    }

    /// What is sent.
    struct View: Encodable {
        private var answer: EntitlementAnswer
        private var stores: [StoreView]

        init(_ answer: EntitlementAnswer, _ messages: Messages, _ language: String) {
            self.answer = answer
            stores = answer.stores.map {
                StoreView(
                    store: $0.store,
                    state: $0.state,
                    message: messages.text(of: $0.store, being: $0.state, in: language)
                )
            }
        }

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
            try container.encode(stores, forKey: .stores)
        }
    }

    /// A store as its users hear of it; `message` is null where it is well.
    struct StoreView: Encodable {
        var store: String
        var state: String
        var message: String?

        private enum CodingKeys: String, CodingKey { case store, state, message }

        func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(store, forKey: .store)
            try container.encode(state, forKey: .state)
            try container.encode(message, forKey: .message)
        }
    }
}
