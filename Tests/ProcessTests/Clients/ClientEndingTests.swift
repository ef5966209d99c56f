import Foundation
import Postgres
import TestSupport
import Testing

/// What the clients for apps show of a restore and of a case with support, against a process and simulated stores.
struct ClientEndingTests {
    private static let scenario = """
        customers:
          - {id: owner, subscriptions: [{state: active, store_subscription_identifier: "2000000700000001"}]}
          - {id: ended, state: expired}
          - {id: retry, state: billing_retry}
          - {id: tester, state: sandbox}
          - {id: down, state: active}
        app_store:
          customers:
            - id: apple-owner
              transactions: [{original: "2000000700000001", product: premium_monthly, state: active, expires: +20d}]
            - id: apple-payer
              transactions: [{original: "2000000800000001", product: premium_monthly, state: active, expires: +20d}]
            - id: apple-buyer
              transactions: [{original: "2000000900000001", product: premium_monthly, state: active, expires: +20d}]
        google_play:
          purchases: [{token: tok-player, state: active}]
        faults: [{customer: down, status: 503}]

        """
    private static let users = [
        "owner", "ended", "retry", "tester", "down", "payer", "player", "fresh", "thief", "banned", "out", "buyer",
    ]

    private struct Tap {
        var user: String
        var proofs = "[]"
        var error: String?
        var ending: String
        var outcome: String
        var key: String
    }

    private static func taps(_ endpoints: EndpointSite) throws -> [Tap] {
        let payer = try endpoints.proofs(of: "2000000800000001")
        let thief = try endpoints.proofs(of: "2000000700000001")
        let player = #"[{"store": "google_play", "kind": "purchase_token", "value": "tok-player"}]"#
        return [
            Tap(user: "owner", ending: "unlocked", outcome: "restored", key: "restored"),
            Tap(user: "payer", proofs: payer, ending: "unlocked", outcome: "restored", key: "restored"),
            Tap(
                user: "payer",
                proofs: payer,
                ending: "unlocked",
                outcome: "already_subscriber",
                key: "already_subscriber"
            ),
            Tap(user: "player", proofs: player, ending: "unlocked", outcome: "restored", key: "restored"),
            Tap(user: "fresh", ending: "nothing", outcome: "nothing_to_restore", key: "nothing"),
            Tap(user: "ended", ending: "nothing", outcome: "nothing_to_restore", key: "nothing.expired"),
            Tap(user: "retry", ending: "nothing", outcome: "nothing_to_restore", key: "nothing.billing_retry"),
            Tap(user: "tester", ending: "nothing", outcome: "nothing_to_restore", key: "nothing.sandbox"),
            Tap(user: "thief", proofs: thief, ending: "support", outcome: "store_account_mismatch", key: "mismatch"),
            Tap(user: "banned", ending: "support", outcome: "not_eligible", key: "not_eligible"),
            Tap(
                user: "out",
                error: "login_discarded",
                ending: "tryAgain",
                outcome: "store_unavailable",
                key: "sign_in_needed"
            ),
            Tap(user: "down", ending: "tryAgain", outcome: "store_unavailable", key: "unavailable"),
        ]
    }

    @Test(arguments: AppClient.run)
    func `Every outcome is shown as one of four endings, and what support asks is answered`(client: AppClient)
        async throws
    {
        let settings = ["SUPPORT_CONTACT_URL": "mailto:help@example.com"]
        try await EndpointSite.with(scenario: Self.scenario, users: Self.users, settings: settings) { endpoints in
            try await endpoints.site.execute("UPDATE users SET status = 'banned' WHERE id = 'banned'")
            let endpoint = try await endpoints.open()
            for tap in try Self.taps(endpoints) {
                let device = try await client.device(tap.user, at: endpoint, of: endpoints)
                let said = try await device.call(["restore", tap.proofs] + (tap.error.map { [$0] } ?? []))
                let shown = try #require(said.last)
                #expect(said.compactMap(\.step) == ["sending", "checking"], "\(tap.user): \(said)")
                #expect(shown.ending == tap.ending && shown.outcome == tap.outcome, "\(tap.user): \(shown)")
                #expect(shown.key == tap.key && shown.message?.isEmpty == false, "\(tap.user): \(shown)")
                if tap.ending == "support" {
                    #expect(shown.message?.contains(try #require(shown.reference)) == true, "\(shown)")
                }
                // What was unlocked is shown without a connection from then on.
                let kept = try await device.last("last")
                #expect(kept.type == (tap.ending == "unlocked" ? "subscriber" : "none"), "\(tap.user): \(kept)")
                let asked = try await device.last("entitlement")
                #expect(asked.type == (tap.ending == "unlocked" ? "subscriber" : "free"), "\(tap.user): \(asked)")
                #expect(asked.isFromDisk == false, "\(tap.user): \(asked)")
            }

            let buyer = try await client.device("buyer", at: endpoint, of: endpoints)
            let handed = try await buyer.last("purchase", endpoints.proof(of: "2000000900000001"))
            #expect(handed.ending == "unlocked" && handed.products == ["premium_monthly"], "\(handed)")
            let origins = try await endpoints.site.texts(
                """
                SELECT r.origin FROM entitlement_sync.job_status AS s JOIN entitlement_sync.job_request AS r ON r.id = s.id
                 WHERE s.user_id = 'buyer' AND s.kind = 'restore'
                """
            )
            #expect(origins == ["paywall"])
            let refused = try await buyer.last("purchase", "not a transaction")
            #expect(refused.failure == "refused" && refused.field == "proofs[0].value", "\(refused)")

            try await Self.answer(client, endpoint, endpoints)
            try await endpoint.close()
        }
    }

    /// The thief's case: shown, asked, answered.
    private static func answer(_ client: AppClient, _ endpoint: Endpoint, _ endpoints: EndpointSite) async throws {
        let thief = try await client.device("thief", at: endpoint, of: endpoints)
        let open = try await thief.last("ticket")
        #expect(open.state == "open" && open.reference?.hasPrefix("R-") == true, "\(open)")
        try await endpoints.site.execute(
            """
            SELECT entitlement_sync.move_ticket(t.id, 'claim') FROM entitlement_sync.ticket AS t;
            SELECT entitlement_sync.move_ticket(t.id, 'ask_claimant') FROM entitlement_sync.ticket AS t;
            INSERT INTO entitlement_sync.ticket_question (ticket_id, question, answer_until)
            SELECT t.id, 'order_number', now() + interval '1 day' FROM entitlement_sync.ticket AS t
            """
        )
        let asked = try await thief.last("ticket")
        #expect(asked.state == "question" && asked.question == "order_number", "\(asked)")
        #expect(asked.message?.contains("order number") == true && asked.reference == open.reference, "\(asked)")
        let noted = try await thief.last("reply", "It is MABC123DEF.")
        #expect(noted.message?.isEmpty == false && noted.failure == nil, "\(noted)")
        #expect(try await thief.last("ticket").state == "open")
        let kept = try await endpoints.site.texts("SELECT r.words FROM entitlement_sync.ticket_reply AS r")
        #expect(kept == ["It is MABC123DEF."])
        let fresh = try await client.device("fresh", at: endpoint, of: endpoints)
        #expect(try await fresh.last("ticket").state == "none", "others do not see it")
    }
}
