import Diagnostics
import Entitlements
import Foundation
import HTTPTypes
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// What goes wrong at stores and on the way to them: nobody is demoted, nobody hears that there is nothing, and `doctor`
/// says what to mend.
@Suite struct StoreTroubleTests {
    struct Trouble: Sendable, CustomStringConvertible {
        var store: Store
        var name: String
        var fault: String
        /// What `doctor` is to say: a check, and words of which its detail or fix holds one.
        var finding: (check: String, words: [String])?

        var description: String { "\(store.rawValue): \(name)" }

        init(_ store: Store, _ name: String, _ fault: String, _ check: String? = nil, _ words: [String] = []) {
            self.store = store
            self.name = name
            self.fault = fault
            finding = check.map { ($0, words) }
        }
    }

    static let troubles: [Trouble] = [
        .init(
            .appStore,
            "every request is refused",
            #"{"endpoint":"app_store.statuses","status":401}"#,
            "alarm.credentials.app_store",
            ["APP_STORE_KEY_ID"]
        ),
        .init(
            .googlePlay,
            "every request is refused",
            #"{"endpoint":"google_play.subscription","status":401,"error_type":"permissionDenied"}"#,
            "alarm.credentials.google_play",
            ["Play Console"]
        ),
        // A second may tick between their clock and ours.
        .init(
            .onside,
            "our clock is 45 s off",
            #"{"endpoint":"onside.history","status":401,"date_skew":"+45s"}"#,
            "clock.onside",
            ["44 s", "45 s"]
        ),
        .init(
            .onside,
            "every request is refused",
            #"{"endpoint":"onside.history","status":401}"#,
            "alarm.credentials.onside",
            ["clock"]
        ),
        .init(
            .appStore,
            "a web page",
            #"{"endpoint":"app_store.statuses","body":"html"}"#,
            "store.app_store",
            ["malformed"]
        ),
        .init(
            .googlePlay,
            "a web page",
            #"{"endpoint":"google_play.subscription","body":"html"}"#,
            "store.google_play",
            ["malformed"]
        ),
        .init(.onside, "a web page", #"{"endpoint":"onside.history","body":"html"}"#, "store.onside", ["malformed"]),
        .init(
            .appStore,
            "half an answer",
            #"{"endpoint":"app_store.statuses","body":"truncated"}"#,
            "store.app_store",
            ["malformed"]
        ),
        .init(
            .appStore,
            "page two of three fails",
            #"{"endpoint":"app_store.history","skip":1,"every":2,"status":500}"#,
            "store.app_store",
            ["unavailable"]
        ),
        .init(
            .googlePlay,
            "no token",
            #"{"endpoint":"google_play.oauth","status":503}"#,
            "store.google_play",
            ["unavailable"]
        ),
        .init(
            .googlePlay,
            "the service account is gone",
            #"{"endpoint":"google_play.oauth","status":400,"error_type":"invalid_grant"}"#,
            "alarm.credentials.google_play",
            ["Play Console"]
        ),
        .init(
            .googlePlay,
            "quota as 403",
            #"{"endpoint":"google_play.subscription","status":403,"error_type":"rateLimitExceeded"}"#
        ),
        .init(.onside, "no keys", #"{"endpoint":"onside.keys","status":503}"#),
        .init(.onside, "fails", #"{"endpoint":"onside.history","status":502}"#, "store.onside", ["unavailable"]),
    ]

    /// What fills three pages of a history and gives no access.
    private static let badges = (0..<45).map { number in
        #", {original: "20000003000001\#(10 + number)", product: badge, type: non_consumable}"#
    }.joined()

    static let scenario = """
        app_store:
          customers:
            - {id: alice, transactions: [{original: "2000000100000001", transaction: "2000000100000009", product: premium_monthly, state: expired, expires: -2d}\(badges)]}
        google_play:
          purchases: [{token: tok-a, state: expired}]
        onside:
          orders: [{order: 5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33, account: alice, expires: -2d}]
        """

    @Test(arguments: troubles)
    func `91, 92, 98, 100, 108, 112: trouble takes nothing away and is no nothing`(_ trouble: Trouble) async throws {
        try await World.with(scenario: Self.scenario) { world in
            try await world.add("alice")
            try await world.addProducts()
            let stores =
                switch trouble.store {
                case .appStore: try world.appStore
                case .googlePlay: world.googlePlay
                default: world.onside
                }
            let proofs =
                switch trouble.store {
                case .appStore: try world.transactionProof("2000000100000009")
                case .googlePlay: world.tokenProof("tok-a")
                default: try world.historyProof("alice")
                }
            // A purchase that was seen before: a reconcile of a subscriber asks the store about it.
            let well = world.asking(stores)
            #expect(try await world.restored("alice", proofs: proofs, setup: well).messageKey == "nothing.expired")
            try await world.pool.query(
                """
                WITH owned AS (UPDATE entitlement_sync.purchase SET owner_key = (SELECT user_key FROM entitlement_sync.user_sync)),
                     -- By our own decision: what the host sets after it is never taken away.
                     decided AS (UPDATE entitlement_sync.user_sync SET decided_subscriber = true)
                UPDATE users SET type = 'subscriber'
                """
            )
            try await world.steer("/faults", trouble.fault, method: .post)
            let setup = world.asking(stores) { $0.retry.maxAttempts = 2 }
            #expect(try await world.reconciled("alice", setup: setup).outcome == "store_unavailable")
            #expect(try await world.type(of: "alice") == "subscriber")
            if let finding = trouble.finding {
                let check = await Doctor(pool: world.pool).checks().first { $0.name == finding.check }
                #expect(check?.ok == false, "\(finding.check)")
                let text = [check?.detail, check?.fix].compactMap(\.self).joined(separator: " ")
                #expect(finding.words.contains(where: text.contains), "\(text)")
            }
            let restored = try await world.restored("alice", proofs: proofs, setup: setup)
            #expect(restored.outcome == "store_unavailable" && restored.state == "dead")
            #expect(try await world.type(of: "alice") == "subscriber")
            // And when it is over, the truth.
            try await world.steer("/faults", "", method: .delete)
            #expect(try await world.reconciled("alice", setup: well).outcome == "demoted")
        }
    }
}
