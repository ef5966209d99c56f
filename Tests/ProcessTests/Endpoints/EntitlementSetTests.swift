import Foundation
import Glibc
import HTTPTypes
import Postgres
import TestSupport
import Testing

#if FAULT_POINTS
    import FaultPoints

    /// What gives a user access, from purchase to lapse: the view, the API, the messages and `explain` say the same at each step.
    struct EntitlementSetTests {
        /// One thing that gives access, wherever it is said.
        private struct Given: Decodable, Hashable {
            var id, store, source, product_id, ends_at: String?
            var will_renew: Bool?
        }

        private static let scenario = """
            entitlements: [{lookup_key: pro}, {lookup_key: plus}, {lookup_key: addon}]
            customers: [{id: ann, state: none}]

            """

        /// What the store holds after each step, and which names stand in the set then; `nil`: as before, and nothing is published.
        private static let steps: [(items: String, names: [String]?)] = [
            (base("pro", days: 12), ["pro"]),
            // A renewal.
            (base("pro", days: 42), ["pro"]),
            // Another check of the same.
            (base("pro", days: 42), nil),
            // An upgrade.
            (base("plus", days: 30), ["plus"]),
            // An add-on begins.
            (base("plus", days: 30) + ", " + addon("active"), ["addon", "plus"]),
            // Its payment fails: that is no change of the set.
            (base("plus", days: 30) + ", " + addon("grace"), nil),
            // One of the two is refunded.
            (base("plus", days: 30) + ", " + addon("refunded"), ["plus"]),
            // The renewal is switched off.
            (base("plus", days: 30, "cancelled") + ", " + addon("refunded"), ["plus"]),
            (base("plus", days: -1, "expired") + ", " + addon("refunded"), []),
        ]

        private static func base(_ name: String, days: Int, _ state: String = "active") -> String {
            #"{"id": "sub-base", "state": "\#(state)", "product_id": "\#(name)_monthly", "entitlements": ["\#(name)"], "#
                + #""store_subscription_identifier": "480001", "ends": \#(time(days))}"#
        }

        private static func addon(_ state: String) -> String {
            #"{"id": "sub-addon", "state": "\#(state)", "product_id": "addon_yearly", "entitlements": ["addon"], "#
                + #""store_subscription_identifier": "480002", "ends": \#(time(20))}"#
        }

        /// All times count from one moment: what is said again is the same.
        private static let began = Date()

        private static func time(_ days: Int) -> Int64 {
            Int64(began.timeIntervalSince1970 * 1000) + Int64(days) * 86_400_000
        }

        @Test(
            "From pro to plus, renewed, with an add-on and its refund: said alike everywhere, once and in order, though workers are killed"
        )
        func agree() async throws {
            try await EndpointSite.with(scenario: Self.scenario, users: ["ann"], settings: Self.settings) { endpoints in
                let site = Self.withRevenueCatAlone(endpoints.site)
                try await site.execute(
                    """
                    INSERT INTO entitlement_sync.product (store, product_id, entitlement)
                    VALUES ('revenuecat', 'pro', 'pro'), ('revenuecat', 'plus', 'plus'), ('revenuecat', 'addon', 'addon')
                    """
                )
                let endpoint = try await endpoints.open("serve")
                let ann = try await endpoints.caller("ann", at: endpoint)
                var deaths = 0
                var expected: [[String]] = []
                for (number, step) in Self.steps.enumerated() {
                    try await endpoints.control(
                        "/control/customers/ann",
                        #"{"subscriptions": [\#(step.items)]}"#,
                        by: .put
                    )
                    deaths += try await Self.work(site, number)
                    if let names = step.names { expected.append(names) }
                    let published = try await Self.published(site)
                    #expect(published.map { $0.after.map { $0.id ?? "" } } == expected, "step \(number)")
                    for (earlier, later) in zip(published, published.dropFirst()) {
                        #expect(earlier.after == later.before)
                    }
                    #expect(published.first?.before == [])
                    #expect(published.allSatisfy { $0.before != $0.after })
                    let last = try #require(published.last).after
                    let view = try await Self.view(site)
                    #expect(view == last, "step \(number)")
                    let answer = try await ann.ask(.get, "/v1/entitlement")
                    struct Answer: Decodable {
                        var type: String
                        var entitlements: [Given]
                    }
                    let seen: Answer = try answer.decode()
                    #expect(seen.entitlements == last, "step \(number)")
                    #expect(seen.type == (last.isEmpty ? "free" : "subscriber"), "step \(number)")
                    try await Self.expectExplained(site, expected)
                }
                #expect(deaths >= Self.steps.count / 2, "workers were hardly ever killed")
                let risky = try await site.number(
                    "SELECT count(*) FROM entitlement_sync.decision WHERE explanation LIKE '%at risk%'"
                )
                #expect(risky == 0, "what is paid for stands beside the add-on")
                try await endpoint.close()
            }
        }

        /// Messages stay where they are: no endpoint takes them.
        private static let settings = FaultRuns.settings.merging([
            "OUTBOX_URL": "http://127.0.0.1:9/none", "OUTBOX_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        ]) { $1 }

        /// Only RevenueCat knows the purchases.
        private static func withRevenueCatAlone(_ site: Site) -> Site {
            var site = site
            site.settings = site.settings.filter { name, _ in
                !["APP_STORE_", "GOOGLE_", "PUBSUB_", "ONSIDE_"].contains { name.hasPrefix($0) }
            }
            return site
        }

        /// Checks the user with a worker that is killed around a commit, and with one that finishes.
        ///
        /// - Returns: how many were killed.
        private static func work(_ site: Site, _ number: Int) async throws -> Int {
            try await site.execute("SELECT entitlement_sync.request_reconcile('ann', 'manual')")
            var doomed = site
            let point = [FaultPoint.commitBefore, .commitLostAnswer, .commitAfter][number % 3]
            doomed.settings[FaultPlan.variable] = "\(point.name)=kill@\(number / 3 + 1)"
            let ending = try await doomed.start("worker", "--until-idle").ending()
            let last = try await site.run("worker", "--until-idle", within: .seconds(120))
            #expect(last.code == 0, "\(last)")
            return ending.signal == SIGKILL ? 1 : 0
        }

        private static func published(_ site: Site) async throws -> [(before: [Given], after: [Given])] {
            try await site.texts(
                "SELECT o.data::text FROM entitlement_sync.outbox AS o WHERE o.topic = 'entitlements.changed' ORDER BY o.id"
            ).map { text in
                struct Change: Decodable { var before, after: [Given] }
                let change = try JSONDecoder().decode(Change.self, from: Data(text.utf8))
                return (change.before, change.after)
            }
        }

        private static func view(_ site: Site) async throws -> [Given] {
            try await site.texts(
                """
                SELECT json_build_object('id', e.entitlement, 'store', e.store, 'source', e.source, 'product_id', e.product_id,
                           'ends_at', to_char(e.ends_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                           'will_renew', e.will_renew)::text
                  FROM entitlement_sync.entitlement_status AS e WHERE e.user_id = 'ann' ORDER BY e.entitlement
                """
            ).map { try JSONDecoder().decode(Given.self, from: Data($0.utf8)) }
        }

        /// `explain` names each change once: the names from then on, and those before.
        private static func expectExplained(_ site: Site, _ expected: [[String]]) async throws {
            struct Report: Decodable {
                struct Event: Decodable {
                    var kind: String
                    var text: String
                }
                var events: [Event]
            }
            let ending = try await site.run("explain", "ann", "--output", "json")
            let report = try JSONDecoder().decode(Report.self, from: Data(ending.out.utf8))
            let sentences = report.events.filter { $0.kind == "decision" }.compactMap { event in
                event.text.range(of: " Entitlements: ").map { String(event.text[$0.upperBound...]) }
            }
            #expect(sentences.count == expected.count, "\(sentences)")
            for (place, sentence) in zip(expected.indices, sentences) {
                let sides = sentence.split(separator: "; before: ").map(String.init)
                let before = place > 0 ? expected[place - 1] : []
                try #require(sides.count == 2, "\(sentence)")
                for (side, names) in zip(sides, [expected[place], before]) {
                    #expect(
                        names.isEmpty ? side.hasPrefix("none") : names.allSatisfy { side.contains("\($0) (") },
                        "\(sentence)"
                    )
                    #expect(side.components(separatedBy: "_store ").count - 1 == names.count, "\(sentence)")
                }
            }
        }
    }
#endif
