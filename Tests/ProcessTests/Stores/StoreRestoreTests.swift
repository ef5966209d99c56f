import Foundation
import Glibc
import Postgres
import TestSupport
import Testing

/// `entitlement-sync restore USER --proof … --wait 30` in every state that the stores know.
@Suite struct StoreRestoreTests {
    /// What a user has bought, how it is shown, and what is right then.
    struct Case: Sendable {
        var line: String
        var kind: String
        var outcome: String
        var key: String
    }

    static let appStore: [(state: String, outcome: String, key: String)] = [
        ("state: active, expires: +20d", "restored", "restored"),
        ("state: grace, expires: -1d", "restored", "restored"),
        ("state: expired, expires: -2d", "nothing_to_restore", "nothing.expired"),
        ("state: billing_retry, expires: -2d", "nothing_to_restore", "nothing.billing_retry"),
        ("state: revoked, expires: +2d", "nothing_to_restore", "nothing.refunded"),
        ("state: unknown, expires: +2d", "nothing_to_restore", "nothing"),
        ("state: active, ownership: FAMILY_SHARED, expires: +2d", "restored", "restored"),
        ("product: lifetime, type: non_consumable", "restored", "restored"),
        ("product: lifetime, type: non_consumable, state: refunded", "nothing_to_restore", "nothing.refunded"),
        ("product: gems, type: consumable", "nothing_to_restore", "nothing"),
        ("product: pass30, type: non_renewing, purchased: -20d", "restored", "restored"),
        ("product: pass30, type: non_renewing, purchased: -31d", "nothing_to_restore", "nothing.expired"),
        ("state: active, expires: +2d, flaw: bad_signature", "nothing_to_restore", "nothing"),
        ("state: active, expires: +2d, flaw: foreign_root", "nothing_to_restore", "nothing"),
        ("state: active, expires: +2d, flaw: foreign_bundle", "nothing_to_restore", "nothing"),
    ]

    static let googlePlay: [(state: String, outcome: String, key: String)] = [
        ("state: active", "restored", "restored"), ("state: grace", "restored", "restored"),
        ("state: silent_grace", "restored", "restored"), ("state: canceled", "restored", "restored"),
        ("state: active, prepaid: true", "restored", "restored"),
        ("state: canceled_past", "nothing_to_restore", "nothing.expired"),
        ("state: expired", "nothing_to_restore", "nothing.expired"),
        ("state: on_hold", "nothing_to_restore", "nothing.billing_retry"),
        ("state: paused", "nothing_to_restore", "nothing.paused"),
        ("state: pending", "nothing_to_restore", "nothing.pending_payment"),
        ("state: pending_canceled", "nothing_to_restore", "nothing"),
        ("state: unknown", "nothing_to_restore", "nothing"), ("state: gone", "nothing_to_restore", "nothing"),
        ("state: active, test: true", "nothing_to_restore", "nothing.sandbox"),
        ("kind: one_time, state: active", "restored", "restored"),
        ("kind: one_time, state: pending", "nothing_to_restore", "nothing.pending_payment"),
        ("kind: one_time, state: canceled", "nothing_to_restore", "nothing.refunded"),
        ("kind: one_time, state: active, consumed: true", "nothing_to_restore", "nothing"),
        ("state: active, account: other", "store_account_mismatch", "mismatch"),
    ]

    static let onside: [(state: String, outcome: String, key: String)] = [
        ("account: USER, expires: +20d", "restored", "restored"),
        ("account: USER, expires: -2d", "nothing_to_restore", "nothing.expired"),
        ("account: USER, expires: +2d, revoked: -1d", "nothing_to_restore", "nothing.refunded"),
        ("account: USER, product: lifetime, type: NON_CONSUMABLE", "restored", "restored"),
        ("account: USER, product: gems, type: CONSUMABLE", "nothing_to_restore", "nothing"),
        ("holder: USER, account: USER, expires: +2d, foreign: true", "nothing_to_restore", "nothing"),
        ("holder: USER, account: other, expires: +20d", "store_account_mismatch", "mismatch"),
        // Nobody is named, so people look into it; whoever shows it is told no more than that there is nothing.
        ("holder: USER, expires: +20d", "nothing_to_restore", "nothing"),
        ("account: USER, expires: +20d, visible_after_requests: 2", "restored", "restored"),
    ]

    static var scenario: String {
        var text = "app_store:\n  customers:\n"
        for (number, row) in appStore.enumerated() {
            let id = 2_000_000_100_000_000 + number
            let product = row.state.hasPrefix("product") ? "" : "product: premium_monthly, "
            text +=
                "    - {id: apple-\(number), transactions: [{original: \"\(id)\", transaction: \"\(id)\", "
                + "\(product)\(row.state)}]}\n"
        }
        text += "google_play:\n  purchases:\n"
        for (number, row) in googlePlay.enumerated() { text += "    - {token: tok-\(number), \(row.state)}\n" }
        text += "onside:\n  orders:\n"
        for (number, row) in onside.enumerated() {
            let id = "5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b\(10 + number)"
            text += "    - {order: \(id), \(row.state.replacing("USER", with: "onside-\(number)"))}\n"
        }
        return text
    }

    @Test("Every state of every store has its outcome, by the command line")
    func states() async throws {
        try await StoreSite.with(scenario: Self.scenario) { stores in
            let site = stores.site
            var cases: [(user: String, argument: String, outcome: String, key: String)] = []
            for (number, row) in Self.appStore.enumerated() {
                let id = "\(2_000_000_100_000_000 + number)"
                // Every third by its receipt, unless what is wrong is in the signed transaction.
                let isReceipt = number % 3 == 0 && !row.state.contains("flaw")
                let argument =
                    try isReceipt
                    ? stores.argument("app_receipt", of: "apple-\(number)") : stores.argument("storekit_jws", of: id)
                cases.append(("apple-\(number)", argument, row.outcome, row.key))
            }
            for (number, row) in Self.googlePlay.enumerated() {
                let argument = try stores.argument("purchase_token", of: "tok-\(number)")
                cases.append(("google-\(number)", argument, row.outcome, row.key))
            }
            for (number, row) in Self.onside.enumerated() {
                let argument = try stores.argument("onside_history", of: "onside-\(number)")
                cases.append(("onside-\(number)", argument, row.outcome, row.key))
            }
            try await site.execute(
                "INSERT INTO users (id) VALUES ('other'), " + cases.map { "('\($0.user)')" }.joined(separator: ", ")
            )
            let worker = try await site.start("worker")
            for each in cases {
                let answer = try await site.run(
                    "restore",
                    each.user,
                    "--proof",
                    each.argument,
                    "--wait",
                    "30",
                    "--output",
                    "json"
                )
                #expect(answer.code == 0, "\(each.user): \(answer)")
                #expect(
                    answer.out.contains(#""outcome":"\#(each.outcome)""#)
                        && answer.out.contains(#""message_key":"\#(each.key)""#),
                    "\(each.user): \(answer.out)"
                )
            }
            try await worker.stop()
            let doctor = try await site.run("doctor")
            #expect(!doctor.out.contains("alarm."), "\(doctor.out)")
        }
    }

    @Test("A granted sale ends acknowledged, though the worker is killed anywhere between the grant and the call")
    func acknowledgement() async throws {
        // Requests of such a restore: the access token, the purchase, and then the acknowledgement; without a plan it is
        // killed before it has even taken up the acknowledgement.
        for plan in ["store.before=kill@3", "store.after=kill@3", nil] {
            let scenario = "google_play:\n  purchases: [{token: tok-a, state: active, acknowledged: false}]\n"
            try await StoreSite.with(scenario: scenario, settings: ["JOB_LEASE_SECONDS": "2"]) { stores in
                let site = stores.site
                try await site.execute("INSERT INTO users (id) VALUES ('ann')")
                if plan == nil { try await site.holdAcknowledgements() }
                var settings = site.settings
                settings["ENTITLEMENT_SYNC_FAULTS"] = plan
                let doomed = try await Program([Paths.program, "worker"], environment: Site.environment(settings))
                _ = try await site.run("restore", "ann", "--proof", "purchase_token=tok-a")
                if plan == nil {
                    try await site.waitUntil(
                        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
                    )
                    let granted = try await site.number("SELECT count(*) FROM users WHERE type = 'subscriber'")
                    #expect(granted == 1)
                    doomed.signal(SIGKILL)
                }
                #expect(try await doomed.ending().signal == SIGKILL, "\(plan ?? "held")")
                if plan == nil { try await site.releaseAcknowledgements() }
                let called = try await site.number("SELECT count(*) FROM entitlement_sync.acknowledgement WHERE called")
                #expect(called == (plan == nil ? 0 : 1), "\(plan ?? "held")")
                // Its share is somebody else's after five minutes; nobody has to wait for that here.
                try await site.execute("UPDATE entitlement_sync.acknowledgement SET due = now()")
                let heir = try await site.start("worker")
                try await site.waitUntil(
                    """
                    SELECT count(*) FROM users
                     WHERE type = 'subscriber' AND NOT EXISTS (SELECT 1 FROM entitlement_sync.acknowledgement)
                    """,
                    within: .seconds(100)
                )
                try await heir.stop()
                struct Report: Decodable {
                    var acknowledged: Bool
                    var calls: Int
                    enum CodingKeys: String, CodingKey { case acknowledged, calls = "acknowledge_calls" }
                }
                let body = try await fetch("GET", "/control/google-play/purchases/tok-a", from: stores.simulator.port)
                let report = try JSONDecoder().decode(Report.self, from: body)
                #expect(report.acknowledged && report.calls == 1, "\(plan ?? "held"): \(report.calls)")
            }
        }
    }
}

extension Site {
    /// Makes every take of an acknowledgement wait.
    fileprivate func holdAcknowledgements() async throws {
        try await execute(
            """
            CREATE FUNCTION hold_acknowledgement() RETURNS trigger LANGUAGE plpgsql
            AS 'BEGIN PERFORM pg_sleep(600); RETURN NEW; END'
            """
        )
        try await execute(
            """
            CREATE TRIGGER hold BEFORE UPDATE ON entitlement_sync.acknowledgement
            FOR EACH ROW EXECUTE FUNCTION hold_acknowledgement()
            """
        )
    }

    /// Ends what waits, as the server does once it hears that nobody is there any more, and lets the next ones through.
    fileprivate func releaseAcknowledgements() async throws {
        try await execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        )
        try await execute("DROP TRIGGER hold ON entitlement_sync.acknowledgement")
        try await execute("DROP FUNCTION hold_acknowledgement()")
    }
}
