internal import Foundation

/// What a notification of the App Store is to say; also the body of `POST /control/webhooks/app-store`.
package struct AppStoreWebhookRequest: ScenarioObject {
    package var type = "TEST"
    package var subtype: String?
    /// The simulator's name of the Apple account; without it, any account's transaction is taken.
    package var account: String?
    /// The transaction that it is about, by its own id or its purchase's; only `TEST` needs none.
    package var transaction: String?
    /// The same for every attempt to send one notification; a new one by default.
    package var uuid: String?
    /// The account's by default.
    package var environment: AppStoreSide?

    /// Makes a request for the notification that Apple sends on request.
    package init() {}

    package init(type: String, subtype: String? = nil, account: String? = nil, transaction: String? = nil) {
        self.type = type
        self.subtype = subtype
        self.account = account
        self.transaction = transaction
    }

    package static let fields: [ScenarioField<Self>] = [
        .value("type", \.type), .optional("subtype", \.subtype), .optional("account", \.account),
        .optional("transaction", \.transaction), .optional("uuid", \.uuid), .optional("environment", \.environment),
    ]
}

extension AppStoreSimulation {
    /// A notification of a moment.
    ///
    /// - Throws: `ScenarioError` where there is no such transaction.
    func webhook(_ request: AppStoreWebhookRequest, nowMs: Int64) throws -> WebhookPost {
        let subject = try subject(of: request)
        let notification = AppStoreNotificationScenario(
            uuid: request.uuid ?? UUID().uuidString.lowercased(),
            type: request.type,
            subtype: request.subtype,
            transaction: request.transaction,
            environment: request.environment ?? subject?.account.side ?? .production
        )
        let payload = try writer(nowMs: nowMs).notification(notification, sentMs: nowMs, subject: subject)
        let body = JSONBytes.object { $0.member("signedPayload", payload) }
        return WebhookPost(body: String(decoding: body, as: UTF8.self))
    }

    private func subject(
        of request: AppStoreWebhookRequest
    ) throws -> (purchase: AppStorePurchase, account: AppStoreAccount)? {
        guard let id = request.transaction else {
            guard request.type == "TEST" else {
                throw ScenarioError(keyPath: "transaction", message: "is missing; only TEST needs none")
            }
            return nil
        }
        guard let name = request.account else {
            if let found = find(id) { return found }
            throw ScenarioError(keyPath: "transaction", message: "is \"\(id)\", which no account has")
        }
        guard let account = accounts.first(where: { $0.id == name }) else {
            throw ScenarioError(keyPath: "account", message: "is \"\(name)\", which is none of the scenario's")
        }
        guard let purchase = account.purchase(id) else {
            throw ScenarioError(keyPath: "transaction", message: "is \"\(id)\", which \(name) does not have")
        }
        return (purchase, account)
    }
}
