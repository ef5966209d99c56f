import Foundation
import TestSupport
import Testing

/// What is asked about the past at a terminal: how somebody stood, who would differ today, and how far we and the
/// application agree.
struct PastTests {
    private static let scenario = """
        customers:
          - {id: payer, state: active}
          - {id: plus, subscriptions: [{state: active, entitlements: [plus]}]}
          - {id: lapsed, state: expired}
          - {id: other, state: none}
        """
    private static let users = """
        INSERT INTO users (id, type) VALUES ('payer', 'free'), ('plus', 'free'), ('lapsed', 'subscriber'), ('other', 'free');
        INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
        VALUES ('revenuecat', 'plus', 'premium', true);
        """

    @Test func `explain --at says how the user stood, and replay who would differ by today's products`() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(store: simulator.url) { site in
            try await site.execute(
                Self.users + "SELECT entitlement_sync.request_reconcile(u.id) FROM users AS u;"
            )
            #expect(try await site.run("worker", "--until-idle").code == 0)
            let then = try await site.run("explain", "plus", "--at", "2099-01-01", "--output", "json")
            #expect(then.code == 0 && then.err == "", "\(then)")
            let explained = try Self.object(then.out)
            #expect(Set(explained.keys) == ["user_id", "events", "state"])
            let state = try #require(explained["state"] as? [String: Any])
            #expect(
                Set(state.keys) == [
                    "at", "type", "verdict", "purchases", "grants", "unknown", "read_at", "absent_since",
                ]
            )
            #expect(state["type"] as? String == "subscriber" && (state["unknown"] as? [String])?.isEmpty == true)
            let purchase = try #require((state["purchases"] as? [[String: Any]])?.first)
            #expect(
                Set(purchase.keys) == [
                    "owner", "store", "environment", "kind", "product_id", "status", "standing", "gives_access",
                    "period_ends_at", "end_announced", "observed_at", "source",
                ]
            )
            #expect(purchase["owner"] as? String == "this_user" && purchase["gives_access"] as? Bool == true)
            // An instant that was printed is that of what it was printed for.
            let decided = try #require((state["verdict"] as? [String: Any])?["at"] as? String)
            let exactly = try await site.run("explain", "plus", "--at", decided)
            #expect(exactly.out.contains("verdict    of \(decided)"), "\(exactly)")
            let early = try await site.run("explain", "plus", "--at", "2020-01-01")
            #expect(early.code == 0 && early.out.contains("How it stood at 2020-01-01T00:00:00"), "\(early)")
            #expect(early.out.contains("Nothing had been decided about the user; the first decision"), "\(early)")
            #expect(early.out.contains("found the type free."), "\(early)")

            let same = try await site.run("replay", "--all", "--output", "json")
            #expect(same.code == 0 && same.err == "", "\(same)")
            let summary = try #require(try Self.object(same.out)["summary"] as? [String: Any])
            #expect(
                Set(summary.keys) == [
                    "users", "decisions", "agreeing", "held", "differing", "pairs", "not_replayable",
                ]
            )
            #expect(summary["agreeing"] as? Int == 4 && summary["differing"] as? Int == 0)
            try await site.execute(
                "UPDATE entitlement_sync.product SET grants_access = false WHERE product_id = 'plus'"
            )
            let changed = try await site.run("replay", "--all", "--since", "2020-01-01", "--output", "json")
            let lines = try changed.out.split(separator: "\n").map { try Self.object(String($0)) }
            try #require(lines.count == 2)
            #expect(Set(lines[0].keys) == ["user_id", "at", "kind", "then", "now", "why"])
            #expect(lines[0]["user_id"] as? String == "plus")
            let now = try #require(lines[0]["now"] as? [String: Any])
            #expect(Set(now.keys) == ["outcome", "rule", "type_after"] && now["outcome"] is NSNull)
            let csv = try await site.run("replay", "plus", "--csv")
            #expect(csv.out.split(separator: "\r\n").count == 2 && csv.out.contains("\r\nplus,"), "\(csv)")
            #expect(csv.err.contains("1 decisions about 1 users: 0 agree, 1 differ"), "\(csv)")
            let table = try await site.run("replay", "--all", "--limit", "0")
            #expect(
                table.out.contains("and 1 more") && table.out.contains("  store_access -> incomplete: 1"),
                "\(table)"
            )
            let nobody = try await site.run("replay", "nobody")
            #expect(nobody.code == 65 && nobody.err.contains("(nobody)"), "\(nobody)")
        }
    }

    @Test func `score lists where the application did something else than MODE=observe`() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(store: simulator.url, settings: ["MODE": "observe"]) { site in
            let none = try await site.run("shadow")
            #expect(none.code == 0 && none.out.contains("MODE=observe"), "\(none)")
            try await site.execute(
                Self.users + "SELECT entitlement_sync.request_reconcile(u.id) FROM users AS u;"
            )
            #expect(try await site.run("worker", "--until-idle").code == 0)
            try await site.execute("UPDATE users SET type = 'subscriber' WHERE id = 'payer'")
            let shadow = try await site.run("shadow", "--output", "json")
            #expect(shadow.code == 0 && shadow.err == "", "\(shadow)")
            let lines = try shadow.out.split(separator: "\n").map { try Self.object(String($0)) }
            let kinds = lines.dropLast().map { "\($0["user_id"] ?? "") \($0["difference"] ?? "")" }
            #expect(Set(kinds) == ["plus would_promote", "lapsed would_demote"])
            #expect(lines.dropLast().allSatisfy { ($0["explanation"] as? String)?.isEmpty == false })
            let summary = try #require(lines.last?["summary"] as? [String: Any])
            #expect(Set(summary.keys) == ["users", "compared", "agreeing", "agreement", "kinds"])
            #expect(summary["agreement"] as? Double == 0.5 && summary["compared"] as? Int == 4)
            let text = try await site.run("shadow")
            #expect(text.out.contains("2 of 4 users agree with the application, 50.0 %"), "\(text)")
            let csv = try await site.run("shadow", "--csv", "--since", "2099-01-01")
            #expect(csv.code == 0 && csv.out.split(separator: "\r\n").count == 1, "\(csv)")
        }
    }

    private static func object(_ text: String) throws -> [String: Any] {
        try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
    }
}
