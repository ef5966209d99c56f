import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// Custom claims at Firebase, by the program as a team runs it.
@Suite struct FirebaseClaimsTests {
    @Test func `A restore leads to claims, and while only observing to none`() async throws {
        try await EndpointSite.with(scenario: "customers: [{id: ann, state: active}]\n", users: ["ann"]) { endpoints in
            let account = try endpoints.serviceAccount
            let path = "/control/identity/claims/ann"
            let own = #"{"admin":true}"#
            let waiting: PostgresQuery = "SELECT count(*) FROM entitlement_sync.firebase_claims"
            try await endpoints.control(path, own, by: .put)
            for mode in ["observe", "full"] {
                let endpoint = try await endpoints.open(settings: account.merging(["MODE": mode]) { $1 })
                let ann = try await endpoints.caller("ann", at: endpoint)
                _ = try await ann.end(of: try await ann.restore())
                if mode == "observe" {
                    #expect(try await endpoints.site.number(waiting) == 0)
                    #expect(try await endpoints.control(path, "", by: .get).text == own)
                } else {
                    try await eventually("no claims were written") {
                        try await endpoints.control(path, "", by: .get).text.hasPrefix(
                            #"{"admin":true,"entitlements":["premium"],"until":"#
                        )
                    }
                    // Firebase has them before our records say so.
                    try await eventually { try await endpoints.site.number(waiting) == 0 }
                }
                try await endpoint.close()
            }
            var site = endpoints.site
            site.settings.merge(account) { $1 }
            let report = try await site.run("doctor")
            #expect(
                report.out.contains("ok  firebase_access: the custom claims of demo-project can be read"),
                "\(report)"
            )
            #expect(report.out.contains("ok  firebase_claims: no custom claims wait"), "\(report)")
            site.settings["FIREBASE_PROJECT_ID"] = "another"
            let refused = try await site.run("doctor")
            #expect(refused.out.contains("the custom claims of another can't be read: unauthorized"), "\(refused)")
        }
    }
}

extension EndpointSite {
    /// What lets a worker write custom claims at the simulator.
    var serviceAccount: [String: String] {
        get throws {
            ["FIREBASE_SERVICE_ACCOUNT_FILE": try #require(site.settings["GOOGLE_PLAY_SERVICE_ACCOUNT_FILE"])]
        }
    }
}
