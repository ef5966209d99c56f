import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// What an app is told of the store account of its device: what its own user's record says, and nothing of others'.
struct StoreAccountTests {
    private static let scenario = """
        app_store:
          customers:
            - id: paid
              app_transaction: "704000000000000001"
              transactions: [{original: "2000000700000001", product: premium_monthly, state: active, expires: +20d}]
            - {id: empty, app_transaction: "704000000000000002"}
            - id: own
              app_transaction: "704000000000000003"
              transactions:
                - {original: "2000000700000002", product: badge, type: non_consumable, state: active}
            - id: lapsed
              app_transaction: "704000000000000004"
              transactions: [{original: "2000000700000003", product: premium_monthly, state: active, expires: +2d}]
            - id: member
              app_transaction: "704000000000000005"
              transactions:
                - {original: "2000000700000004", product: badge, type: non_consumable, state: active,
                   ownership: FAMILY_SHARED}
            - {id: aged, app_transaction: none}
            - {id: forged, app_transaction: "704000000000000006", app_transaction_flaw: foreign_root}
            - {id: tester, app_transaction: "704000000000000007", environment: Sandbox}
        """

    private struct Tap: Sendable {
        var user: String
        /// The store account of the device.
        var account: String
        var shows: [String] = []
        var key: String
    }

    private static let taps = [
        // What follows is on record from here on.
        Tap(user: "payer", account: "paid", shows: ["2000000700000001"], key: "restored"),
        Tap(user: "same", account: "own", shows: ["2000000700000002"], key: "nothing"),
        Tap(user: "ended", account: "lapsed", shows: ["2000000700000003"], key: "restored"),
        Tap(user: "child", account: "member", shows: ["2000000700000004"], key: "nothing"),
        // The same account.
        Tap(user: "same", account: "own", key: "nothing"),
        // Another one, with purchases of another user, and with none.
        Tap(user: "same", account: "paid", key: "nothing.other_store_account"),
        Tap(user: "same", account: "empty", key: "nothing.other_store_account"),
        Tap(user: "stranger", account: "paid", key: "nothing.other_store_account"),
        Tap(user: "stranger", account: "empty", key: "nothing.other_store_account"),
        // A member of a family has an account of their own.
        Tap(user: "child", account: "member", key: "nothing"),
        Tap(user: "child", account: "paid", key: "nothing.other_store_account"),
        // What ended says more than the account, before and after the demotion.
        Tap(user: "ended", account: "empty", key: "nothing.ended"),
        Tap(user: "ended", account: "lapsed", key: "nothing.expired"),
        Tap(user: "ended", account: "empty", key: "nothing.expired"),
        // No id, no signature of the App Store's, a sandbox that does not count: as without an account.
        Tap(user: "stranger", account: "aged", key: "nothing"),
        Tap(user: "stranger", account: "forged", key: "nothing"),
        Tap(user: "stranger", account: "tester", key: "nothing"),
        // Access is access, whatever the device.
        Tap(user: "payer", account: "empty", key: "already_subscriber"),
    ]

    @Test func `the store account of the device refines the answer by the caller's own record alone`() async throws {
        let users = Set(Self.taps.map(\.user)).sorted()
        try await EndpointSite.with(scenario: Self.scenario, users: users) { endpoints in
            try await endpoints.site.execute(
                """
                INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
                VALUES ('app_store', 'badge', 'badge', false)
                """
            )
            let endpoint = try await endpoints.open()
            for tap in Self.taps {
                if tap.key == "nothing.ended" {
                    try await endpoints.control(
                        "/control/app-store/customers/lapsed",
                        """
                        {"app_transaction": "704000000000000004", "transactions": [{"original": "2000000700000003", "product": "premium_monthly",
                         "state": "expired", "expires": "-2d"}]}
                        """,
                        by: .put
                    )
                } else if tap.key == "nothing.expired" {
                    try await endpoints.site.waitUntil(
                        "SELECT count(*) FROM users WHERE id = 'ended' AND type = 'free'"
                    )
                }
                let caller = try await endpoints.caller(tap.user, at: endpoint)
                let body = try endpoints.showing(account: tap.account, transactions: tap.shows)
                let end = try await caller.end(of: try await caller.restore(body))
                #expect(end.messageKey == tap.key, "\(tap): \(end)")
                #expect(try await caller.entitlement().tickets.isEmpty)
                if tap.key == "nothing.other_store_account" {
                    #expect(end.outcome == "nothing_to_restore")
                    #expect(end.message?.contains("Sign in to the store account that paid") == true, "\(end)")
                    #expect(end.message?.contains(end.reference) == true, "\(end)")
                }
            }
            // Support knows where another user has a purchase under the account: child and same tried payer's, as did stranger.
            try await endpoints.site.waitUntil(
                "SELECT (count(*) = 3)::int FROM entitlement_sync.ticket AS t WHERE NOT t.visible AND t.kind = 'needs_proof'"
            )
            let tickets = try await endpoints.site.texts(
                """
                SELECT concat_ws(' ', t.user_id, t.purchase_owner_id, t.kind, t.original_id)
                  FROM entitlement_sync.ticket_status AS t ORDER BY 1
                """
            )
            #expect(
                tickets
                    == ["child", "same", "stranger"].map { "\($0) payer needs_proof 2000000700000001" },
                "\(tickets)"
            )
            for line in try endpoint.log {
                #expect(!"\(line)".contains("eyJ"), "a signed text is logged: \(line)")
                #expect(!"\(line)".contains("70400000000000000"), "a store account is logged: \(line)")
            }
            try await endpoint.close()
        }
    }

    /// Somebody's account with a purchase, and one with none, as many times each, in a random order.
    private static let tries = Profile.isFull ? 1_000 : 64
    /// The tries of one account: one of more than ten users opens no ticket.
    private static let sharing = 8
    private static var groups: Range<Int> { 0..<tries / sharing }

    /// As many accounts with a purchase as without.
    private static var manyAccounts: String {
        groups.reduce("app_store:\n  customers:\n") { text, group in
            text + """
                    - id: paid-\(group)
                      transactions:
                        - {original: "\(2_000_000_800_000_000 + group)", product: premium_monthly, expires: +20d}
                    - {id: empty-\(group)}

                """
        }
    }

    @Test func `the time of the answer does not tell whether another user has a purchase under the account`()
        async throws
    {
        let users =
            (0..<2 * Self.tries).map { "asking-\($0)" } + Self.groups.map { "payer-\($0)" } + ["warm"]
        try await EndpointSite.with(scenario: Self.manyAccounts, users: users) { endpoints in
            let endpoint = try await endpoints.open()
            func seconds(_ user: String, _ account: String, _ shows: [String] = []) async throws -> Double {
                let caller = try await endpoints.caller(user, at: endpoint)
                let body = try endpoints.showing(account: account, transactions: shows)
                let began = ContinuousClock.now
                let end = try await caller.end(of: try await caller.restore(body))
                let took = (ContinuousClock.now - began) / .seconds(1)
                try #require(end.messageKey == (shows.isEmpty ? "nothing.other_store_account" : "restored"), "\(end)")
                return took
            }
            for group in Self.groups {
                _ = try await seconds("payer-\(group)", "paid-\(group)", ["\(2_000_000_800_000_000 + group)"])
            }
            for _ in 0..<5 { _ = try await seconds("warm", "empty-0") }
            var took: [String: [Double]] = [:]
            let accounts = (0..<2 * Self.tries).map { $0 < Self.tries ? "paid" : "empty" }.shuffled()
            for (number, account) in accounts.enumerated() {
                let group = took[account, default: []].count / Self.sharing
                took[account, default: []].append(try await seconds("asking-\(number)", "\(account)-\(group)"))
            }
            // A pause of the machine says nothing of either: the slowest twentieth of all is left out.
            let all = took.values.flatMap(\.self).sorted()
            let slowest = all[all.count * 19 / 20]
            let (some, none) = (Sample(took["paid"], upTo: slowest), Sample(took["empty"], upTo: slowest))
            let sigma = abs(some.mean - none.mean) / (some.error + none.error).squareRoot()
            print(
                "store accounts, \(Self.tries) tries each: \(some.mean * 1000) ms with a purchase of another user,"
                    + " \(none.mean * 1000) ms without, \(sigma) sigma"
            )
            #expect(sigma < 3, "\(some.mean) s with a purchase, \(none.mean) s without")
            // Each of them led to a ticket, after its answer.
            try await endpoints.site.waitUntil(
                "SELECT (count(*) = \(Self.tries))::int FROM entitlement_sync.ticket AS t WHERE t.kind = 'needs_proof'"
            )
            try await endpoint.close()
        }
    }

    /// What times come to.
    private struct Sample {
        var mean: Double
        /// The square of the mean's standard error.
        var error: Double

        init(_ times: [Double]?, upTo slowest: Double) {
            let kept = (times ?? []).filter { $0 <= slowest }
            let mean = kept.reduce(0, +) / Double(kept.count)
            self.mean = mean
            let variance = kept.reduce(0) { $0 + ($1 - mean) * ($1 - mean) } / Double(kept.count - 1)
            error = variance / Double(kept.count)
        }
    }
}
