import Foundation
import HTTPTypes
import Testing

/// A user's app: it calls with the user's token.
struct Caller: Sendable {
    let endpoint: Endpoint
    let token: String

    /// Asks for something.
    func ask(
        _ method: HTTPRequest.Method,
        _ path: String,
        _ fields: [String: String] = [:],
        body: String? = nil
    ) async throws -> HTTPAnswer {
        var all = ["Authorization": "Bearer \(token)"]
        all["Content-Type"] = body == nil ? nil : "application/json"
        all.merge(fields) { $1 }
        return try await endpoint.ask(method, path, all, body: body)
    }

    /// Taps Restore, which has to be accepted.
    ///
    /// - Parameters:
    ///   - body: what the app says; nothing by default.
    ///   - key: the idempotency key.
    /// - Returns: the restore as it was told at once.
    /// - Throws: when it is not accepted.
    func restore(_ body: String? = nil, key: String? = nil) async throws -> SeenRestore {
        let answer = try await ask(.post, "/v1/restores", key.map { ["Idempotency-Key": $0] } ?? [:], body: body)
        try #require(answer.status == 202, "\(answer)")
        return try answer.decode()
    }

    /// A tap on Restore as the bytes of a request.
    ///
    /// - Parameters:
    ///   - fields: headers beside the token.
    ///   - body: with its length; `nil`: the fields say what follows.
    /// - Returns: the bytes.
    func tap(_ fields: [(String, String)] = [], _ body: [UInt8]? = nil) -> [UInt8] {
        RawConnection.request("POST", "/v1/restores", [("Authorization", "Bearer \(token)")] + fields, body: body)
    }

    /// Waits for a restore's end.
    func end(of restore: SeenRestore) async throws -> SeenRestore {
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            let answer = try await ask(.get, restore.path + "?wait=25")
            try #require(answer.status == 200, "\(answer)")
            let seen: SeenRestore = try answer.decode()
            if seen.hasEnded { return seen }
            try #require(ContinuousClock.now < deadline, "it never ended: \(answer)")
        }
    }

    /// Follows a restore as it happens.
    func events(of restore: SeenRestore, _ fields: [String: String] = [:]) -> EventStream {
        EventStream(
            restore.path + "/events",
            at: endpoint.port,
            ["Authorization": "Bearer \(token)"].merging(fields) { $1 }
        )
    }

    /// What the app shows at its launch.
    func entitlement() async throws -> SeenEntitlement {
        let answer = try await ask(.get, "/v1/entitlement")
        try #require(answer.status == 200, "\(answer)")
        return try answer.decode()
    }
}

/// A restore as apps see it.
struct SeenRestore: Decodable, Hashable, Sendable {
    struct Product: Decodable, Hashable, Sendable {
        var store: String
        var productID: String?
        var entitlements: [String]
        var endsAt: String?

        enum CodingKeys: String, CodingKey {
            case store, entitlements
            case productID = "product_id"
            case endsAt = "ends_at"
        }
    }

    var id: String
    var reference: String
    var state: String
    var outcome: String?
    var messageKey: String?
    var message: String?
    var products: [Product]
    var estimatedWait: Int?

    enum CodingKeys: String, CodingKey, CaseIterable {
        case id, reference, state, outcome, message, products
        case messageKey = "message_key"
        case estimatedWait = "estimated_wait_s"
    }

    var path: String { "/v1/restores/\(id)" }
    var hasEnded: Bool { ["done", "dead", "canceled"].contains(state) }
}

/// What an app is told at its launch.
struct SeenEntitlement: Decodable, Hashable, Sendable {
    struct Ticket: Decodable, Hashable, Sendable {
        var reference: String
        var state: String
    }

    struct Store: Decodable, Hashable, Sendable {
        var store: String
        var state: String
    }

    var type: String
    var until: String?
    var suggestsRestore: Bool
    var tickets: [Ticket]
    var stores: [Store]

    enum CodingKeys: String, CodingKey {
        case type, until, tickets, stores
        case suggestsRestore = "restore_suggested"
    }
}
