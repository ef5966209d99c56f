import Foundation
import Testing

/// Two users, and a purchase at each store, for tests of who gets in.
enum AccessScene {
    static let scenario = """
        customers: [{id: ann, state: active}, {id: ben, state: active}]
        app_store:
          customers:
            - id: apple-ann
              transactions: [{original: "2000000700000001", product: premium_monthly, state: active, expires: +20d}]
        google_play:
          purchases: [{token: tok-ann, state: active}]

        """

    /// What RevenueCat tells in a webhook; the log must not hold the user's name.
    static let event = #"{"type": "RENEWAL", "app_user_id": "hunter2-user"}"#

    /// Seconds since 1970.
    static var now: Int { Int(Date().timeIntervalSince1970) }
}

/// What a request was refused for, as the log has to say it.
struct Refusal: Hashable {
    var endpoint: String
    var reason: String

    /// Checks that each refused request has a line of its own, and that nothing of what was sent is in the log.
    static func expectLines(
        _ refusals: [String: Refusal],
        of endpoint: Endpoint,
        withoutAnyOf secrets: [String]
    ) async throws {
        let lines = try endpoint.log.filter { $0["message"] == "security: a request was refused" }
        var told: [String: Refusal] = [:]
        for line in lines {
            #expect(line["level"] == "warning" && line["log.left_out"] == "0", "\(line)")
            let name = try #require(line["request.id"])
            told[name] = Refusal(endpoint: line["security.door"] ?? "", reason: line["security.reason"] ?? "")
        }
        #expect(told == refusals)
        #expect(lines.count == refusals.count, "each is told once")
        let said = endpoint.program.err + endpoint.program.out
        for secret in secrets { #expect(!secret.isEmpty && !said.contains(secret), "\(secret.prefix(60))") }
    }
}
