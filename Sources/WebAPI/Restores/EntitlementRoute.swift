import HTTPTypes
import Hummingbird
import UserRequests

/// `GET /v1/entitlement`: what the app shows at its launch.
struct EntitlementRoute: Sendable {
    let users: UserAuthenticator
    let requests: AppRequests
    let messages: Messages

    func show(_ request: Request, _ context: APIContext) async throws -> Response {
        let userID = try await users.user(of: request, context)
        guard let answer = try await requests.entitlement(of: userID) else { throw Problem(.unknownUser) }
        let language = messages.language(accepted: request.headers[.acceptLanguage])
        return JSONText.response(.ok, View(answer, messages, language), in: language)
    }

    struct View: Encodable {
        private var type: String
        @OrNull private var until: String?
        private var entitlements: [GivenEntitlement]
        private var suggestsRestore: Bool
        private var tickets: [VisibleTicket]
        private var stores: [StoreView]

        private enum CodingKeys: String, CodingKey {
            case type, until, entitlements, tickets, stores
            case suggestsRestore = "restore_suggested"
        }

        init(_ answer: EntitlementAnswer, _ messages: Messages, _ language: String) {
            type = answer.type
            until = answer.until
            entitlements = answer.entitlements
            suggestsRestore = answer.suggestsRestore
            tickets = answer.tickets
            stores = answer.stores.map { store in
                let message = messages.text(of: store.store, being: store.state, in: language)
                return StoreView(store: store.store, state: store.state, message: message)
            }
        }
    }

    /// A store as its users read of it; `message` is null where it is well.
    struct StoreView: Encodable {
        var store: String
        var state: String
        @OrNull var message: String?
    }
}
