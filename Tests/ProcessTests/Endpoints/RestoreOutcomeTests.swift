import Foundation
import TestSupport
import Postgres
import HTTPTypes
import Testing

/// What a tap on Restore comes to, and the words that a user reads of it.
struct RestoreOutcomeTests {
    @Test func `1, 2: a tap is accepted with all there is to tell, waited for, and answered in the app's language`()
        async throws
    {
        try await EndpointSite.with(scenario: RestoreScene.scenario, users: RestoreScene.users) { endpoints in
            let endpoint = try await endpoints.open()
            let ann = try await endpoints.caller("ann", at: endpoint)
            let accepted = try await ann.ask(.post, "/v1/restores")
            #expect(accepted.status == 202)
            let asked: SeenRestore = try accepted.decode()
            #expect(accepted["Location"] == asked.path)
            #expect(accepted["Content-Type"] == "application/json" && accepted["Cache-Control"] == "no-store")
            #expect(asked.reference.wholeMatch(of: /R-[0-9A-Z]{4}-[0-9A-Z]{2}/) != nil, "\(asked)")
            // Accepted is no outcome.
            #expect(["queued", "running"].contains(asked.state), "\(asked)")
            #expect(asked.outcome == nil && asked.message == nil && asked.products.isEmpty, "\(asked)")

            let german = try await ann.ask(.get, asked.path + "?wait=25", ["Accept-Language": "de-AT, en;q=0.3"])
            let type = try await endpoints.site.texts("SELECT u.type FROM users AS u WHERE u.id = 'ann'")
            #expect(type == ["subscriber"], "whoever is told has it already")
            #expect(german.status == 200 && german["Content-Language"] == "de" && german["Vary"] == "Accept-Language")
            let restored: SeenRestore = try german.decode()
            #expect(restored.id == asked.id && restored.reference == asked.reference && restored.state == "done")
            #expect(restored.outcome == "restored" && restored.messageKey == "restored")
            #expect(restored.message == "Ihr Abo ist wieder aktiv.")
            let product = try #require(restored.products.first)
            #expect(restored.products.count == 1 && product.store == "app_store")
            let written = try #require(product.endsAt)
            let ends = try Date.ISO8601FormatStyle().parse(written)
            #expect(ends.timeIntervalSinceNow > 0, "\(written)")
            let members = SeenRestore.CodingKeys.allCases.map(\.rawValue).sorted()
            for answer in [accepted, german] {
                let json = try JSONSerialization.jsonObject(with: Data(answer.body)) as? [String: Any]
                let object = try #require(json)
                #expect(object.keys.sorted() == members)
            }

            let again = try await ann.restore()
            #expect(again.id != asked.id)
            let french = try await ann.ask(.get, again.path + "?wait=25", ["Accept-Language": "xx, fr;q=0.9, en;q=0.8"])
            let known: SeenRestore = try french.decode()
            #expect(french["Content-Language"] == "fr" && known.outcome == "already_subscriber")
            #expect(known.message == "Vous avez déjà accès à votre abonnement. Il n’y a rien à restaurer.")
            try await endpoint.close()
        }
    }

    private struct Tap: Sendable {
        var user: String
        var body: String?
        var outcome: String
        var key: String
        var says: String
        var products: [String?] = []
    }

    private static func taps(_ endpoints: EndpointSite) throws -> [Tap] {
        let help = "please contact support at help@example.com and mention reference {reference}."
        let token = #"{"proofs": [{"store": "play_store", "kind": "purchase_token", "value": "tok-player"}]}"#
        return [
            Tap(
                user: "owner",
                outcome: "restored",
                key: "restored",
                says: "Your subscription is active again.",
                products: ["prod1122334455"]
            ),
            // Only what was asked for is delivered again.
            Tap(
                user: "two",
                body: #"{"product_ids": ["prod-other"]}"#,
                outcome: "restored",
                key: "restored",
                says: "Your subscription is active again.",
                products: ["prod-other"]
            ),
            Tap(
                user: "payer",
                body: try endpoints.showing(transaction: "2000000800000001"),
                outcome: "restored",
                key: "restored",
                says: "Your subscription is active again.",
                products: ["premium_monthly"]
            ),
            Tap(
                user: "player",
                body: token,
                outcome: "restored",
                key: "restored",
                says: "Your subscription is active again.",
                products: ["pro"]
            ),
            Tap(
                user: "fresh",
                outcome: "nothing_to_restore",
                key: "nothing",
                says: "We found no purchases to restore. If you have paid, " + help
            ),
            Tap(
                user: "ended",
                outcome: "nothing_to_restore",
                key: "nothing.expired",
                says: "Your subscription has expired. You can subscribe again at any time."
            ),
            // One has expired as well: a card to update is what helps.
            Tap(
                user: "retry",
                outcome: "nothing_to_restore",
                key: "nothing.billing_retry",
                says: "Your last payment did not go through. Update your payment method in your app store to get your"
                    + " access back."
            ),
            Tap(
                user: "tester",
                outcome: "nothing_to_restore",
                key: "nothing.sandbox",
                says: "We found only test purchases. They cannot be restored for this account."
            ),
            Tap(
                user: "thief",
                body: try endpoints.showing(transaction: "2000000700000001"),
                outcome: "store_account_mismatch",
                key: "mismatch",
                says: "This purchase belongs to another account in this app. For help, " + help
            ),
            Tap(
                user: "banned",
                outcome: "not_eligible",
                key: "not_eligible",
                says: "Purchases cannot be restored for this account. P" + String(help.dropFirst())
            ),
            Tap(
                user: "leaving",
                outcome: "not_eligible",
                key: "not_eligible.deleting",
                says: "This account is being deleted. Any subscription will still be billed until you cancel it in your"
                    + " app store."
            ),
            Tap(
                user: "out",
                body: #"{"client_error": "LOGIN_DISCARDED"}"#,
                outcome: "store_unavailable",
                key: "sign_in_needed",
                says: "Please sign in to your app store on this device, then try again."
            ),
            Tap(
                user: "down",
                outcome: "store_unavailable",
                key: "unavailable",
                says: "The app store is not responding right now. Nothing is lost. Please try again later."
            ),
        ]
    }

    @Test func `3, 4, 28, 112, 114, 117, 157, 174, 184, 188: every outcome comes with its key and its words`()
        async throws
    {
        let settings = ["SUPPORT_CONTACT_URL": "mailto:help@example.com"]
        try await EndpointSite.with(
            scenario: RestoreScene.scenario,
            users: RestoreScene.users,
            settings: settings
        ) { endpoints in
            try await endpoints.site.execute(
                """
                UPDATE users SET status = 'banned' WHERE id = 'banned';
                UPDATE users SET status = 'to_be_deleted' WHERE id = 'leaving';
                """
            )
            let endpoint = try await endpoints.open()
            for tap in try Self.taps(endpoints) {
                let caller = try await endpoints.caller(tap.user, at: endpoint)
                let asked = try await caller.restore(tap.body)
                let end = try await caller.end(of: asked)
                #expect(end.id == asked.id && end.reference == asked.reference, "\(tap.user): \(end)")
                #expect(end.outcome == tap.outcome && end.messageKey == tap.key, "\(tap.user): \(end)")
                #expect(end.message == tap.says.replacing("{reference}", with: end.reference), "\(tap.user): \(end)")
                #expect(end.products.map(\.productID) == tap.products, "\(tap.user): \(end)")
                let shown = try await caller.entitlement()
                #expect(shown.type == (tap.outcome == "restored" ? "subscriber" : "free"), "\(tap.user): \(shown)")
                #expect(
                    shown.tickets.map(\.reference) == (tap.outcome == "store_account_mismatch" ? [end.reference] : []),
                    "\(shown)"
                )
                #expect(tap.outcome != "restored" || shown.until != nil && !shown.suggestsRestore, "\(shown)")
            }
            let ticket = try await endpoints.site.texts(
                "SELECT concat_ws(' ', t.user_id, t.purchase_owner_id, t.kind) FROM entitlement_sync.ticket_status AS t"
            )
            #expect(ticket == ["thief owner owner_mismatch"], "inside it is known whose it is")
            try await endpoint.close()
        }
    }

    @Test func `91, 112: a store that is down is told at the launch, and what it kept back is suggested`()
        async throws
    {
        let scenario = "customers: [{id: ann, state: active}]\nfaults: [{customer: ann, status: 503}]\n"
        let settings = ["JOB_MAX_ATTEMPTS": "2"]
        try await EndpointSite.with(scenario: scenario, users: ["ann", "ben"], settings: settings) { endpoints in
            let endpoint = try await endpoints.open()
            let ann = try await endpoints.caller("ann", at: endpoint)
            let failed = try await ann.end(of: try await ann.restore())
            #expect(failed.state == "dead" && failed.outcome == "store_unavailable", "\(failed)")
            let down = SeenEntitlement.Store(store: "revenuecat", state: "down")
            try await eventually("the store was never told to be down") {
                try await ann.entitlement().stores.contains(down)
            }
            let before = try await ann.entitlement()
            #expect(before.type == "free" && before.until == nil && before.suggestsRestore, "\(before)")

            try await endpoints.simulator.heal()
            let restored = try await ann.end(of: try await ann.restore())
            #expect(restored.outcome == "restored", "\(restored)")
            let well = SeenEntitlement.Store(store: "revenuecat", state: "ok")
            try await eventually("the store was never told to be well") {
                try await ann.entitlement().stores.contains(well)
            }
            let after = try await ann.entitlement()
            #expect(after.type == "subscriber" && after.until != nil && !after.suggestsRestore, "\(after)")
            let ben = try await endpoints.caller("ben", at: endpoint)
            let stranger = try await ben.entitlement()
            #expect(stranger.type == "free" && stranger.suggestsRestore, "nothing was ever read of him: \(stranger)")
            try await endpoint.close()
        }
    }
}
