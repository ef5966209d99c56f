import Foundation
import Postgres
import TestSupport
import Testing

/// The worker against a double of RevenueCat that shares no line with ours.
struct OutsideDoubleTests {
    private struct Request: Decodable {
        var path: String
        var at: Double
    }

    private static let answers = [
        ("double-active", "done restored restored 0 subscriber"),
        ("double-expired", "done nothing_to_restore nothing.expired 0 free"),
        ("double-nobody", "done nothing_to_restore nothing 0 free"),
        ("double-paged", "done restored restored 0 subscriber"),
        ("double-merged", "done restored restored 0 subscriber"),
        ("double-throttled", "done restored restored 1 subscriber"),
        ("double-failing", "done restored restored 1 subscriber"),
        ("double-page", "done restored restored 1 subscriber"),
        ("double-owner", "done restored restored 0 subscriber"),
        ("double-claimant", "done store_account_mismatch mismatch 0 free"),
        ("double-second", "done store_account_mismatch mismatch 0 free"),
        // An answer about somebody who has nothing to do with the user is no answer, neither yes nor no.
        ("double-foreign", "dead store_unavailable unavailable 4 free"),
        ("double-taker", "dead store_unavailable unavailable 4 free"),
    ]

    @Test("Outcomes are right against an HTTP double of RevenueCat that was written from its documentation alone")
    func outcomes() async throws {
        let python = try await Program(
            ["/usr/bin/env", "python3", Paths.fixtures + "/revenuecat_double.py"],
            environment: Site.environment(["PYTHONDONTWRITEBYTECODE": "1"])
        )
        let port = try await listeningPort(of: python)
        try await Site.with(store: "http://127.0.0.1:\(port)/v2") { site in
            for (user, _) in Self.answers { try await site.pool.query("INSERT INTO users (id) VALUES (\(user))") }
            try await site.execute(
                """
                SELECT entitlement_sync.request_restore(u.id) FROM users AS u WHERE u.id <> 'double-claimant';
                SELECT entitlement_sync.request_restore(
                    'double-claimant', '[{"store": "app_store", "kind": "transaction_id", "value": "480001234567890"}]',
                    'RECEIPT_ALREADY_IN_USE');
                """
            )
            let ending = try await site.run("worker", "--until-idle")
            #expect(ending.code == 0, "\(ending)")
            for (user, answer) in Self.answers {
                let found = try await site.texts(
                    """
                    SELECT concat_ws(' ', s.state, s.outcome, s.message_key, s.attempt, u.type)
                      FROM entitlement_sync.job_status AS s JOIN users AS u ON u.id = s.user_id WHERE u.id = \(user)
                    """
                )
                #expect(found == [answer], "\(user)")
            }
            #expect(
                try await site.texts(
                    "SELECT concat_ws(' ', t.user_id, t.kind, t.purchase_owner_id) FROM entitlement_sync.ticket_status AS t ORDER BY 1"
                ) == ["double-claimant owner_mismatch double-owner", "double-second identity_collision double-owner"]
            )

            let asked = try JSONDecoder().decode([Request].self, from: try await fetch("GET", "/requests", from: port))
            func paths(of user: String) -> [Request] { asked.filter { $0.path.contains("/\(user)/subscriptions") } }
            #expect(paths(of: "double-active").count == 1)
            #expect(paths(of: "double-paged").count == 3)
            #expect(Set(paths(of: "double-paged").map(\.path)).count == 3, "each page is asked for once")
            let waited = paths(of: "double-throttled").map(\.at)
            #expect(waited.count == 2 && (waited.last ?? 0) - (waited.first ?? 0) >= 1, "the store asked for a second")
            #expect(asked.allSatisfy { $0.path.hasPrefix("/v2/projects/proj0a1b2c3d/") }, "nothing else is asked")
        }
    }
}
