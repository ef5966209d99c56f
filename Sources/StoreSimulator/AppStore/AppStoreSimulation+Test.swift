internal import Foundation

/// A test notification, from its request to its delivery.
struct AppStoreTestNotification: Sendable {
    var payload: String
    /// When it was sent and what became of it; `nil`: it is under way.
    var attempt: (atMs: Int64, result: String)?
}

/// A test notification on its way.
struct AppStoreTestDelivery: Sendable {
    var token: String
    var url: String
    var body: String
}

/// Where the App Store sends test notifications; the body of `PUT /control/app-store/notification-urls`.
struct AppStoreNotificationURLs: ScenarioObject {
    var production: String?
    var sandbox: String?

    static let fields: [ScenarioField<Self>] = [
        .optional("production", \.production), .optional("sandbox", \.sandbox),
    ]
}

extension AppStoreSimulation {
    /// Takes the request for a test notification, which goes to the address of its environment.
    mutating func requestTest(_ path: AppStorePath, nowMs: Int64) throws -> Reply {
        let url = path.side == .production ? scenario.notificationURL : scenario.sandboxNotificationURL
        guard let url else { throw AppStoreFailure(4_040_007) }
        let notification = AppStoreNotificationScenario(
            uuid: UUID().uuidString.lowercased(),
            type: "TEST",
            environment: path.side
        )
        let payload = try writer(nowMs: nowMs).notification(notification, sentMs: nowMs, subject: nil)
        let token = "\(UUID().uuidString.lowercased())_\(nowMs)"
        tests[token] = AppStoreTestNotification(payload: payload)
        var reply = Reply.object { $0.member("testNotificationToken", token) }
        let body = JSONBytes.object { $0.member("signedPayload", payload) }
        reply.test = AppStoreTestDelivery(token: token, url: url, body: String(decoding: body, as: UTF8.self))
        return reply
    }

    /// Says what became of a test notification.
    func testStatus(_ path: AppStorePath) throws -> Reply {
        guard let test = tests[path.id] else { throw AppStoreFailure(4_000_020) }
        guard let attempt = test.attempt else { throw AppStoreFailure(4_040_008) }
        return .object { json in
            json.member("signedPayload", test.payload)
            json.array("sendAttempts") { json in
                json.object { json in
                    json.member("attemptDate", attempt.atMs)
                    json.member("sendAttemptResult", attempt.result)
                }
            }
        }
    }

    /// Notes what became of a delivery.
    mutating func note(_ result: String, of token: String, nowMs: Int64) {
        tests[token]?.attempt = (nowMs, result)
    }
}
