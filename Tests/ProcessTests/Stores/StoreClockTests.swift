import Foundation
import Postgres
import TestSupport
import Testing

/// A worker whose clock is wrong, before a store that dates its tokens.
@Suite struct StoreClockTests {
    @Test(
        "108: with a clock 45 s off nobody hears that there is nothing, and doctor names the clock",
        arguments: [45, -45]
    )
    func skew(seconds: Int) async throws {
        let scenario =
            "onside:\n  orders: [{order: 5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33, account: ann, expires: +20d}]\n"
        try await StoreSite.with(scenario: scenario) { stores in
            let site = stores.site
            try await site.execute("INSERT INTO users (id) VALUES ('ann')")
            let settings = site.settings.merging(try await WrongClock.settings(seconds: seconds)) { $1 }
            let worker = try await Program([Paths.program, "worker"], environment: Site.environment(settings))
            let proof = try stores.argument("onside_history", of: "ann")
            _ = try await site.run("restore", "ann", "--proof", proof)
            try await site.waitUntil(
                "SELECT count(*) FROM entitlement_sync.store_health WHERE last_error = 'unauthorized'"
            )
            let told = try await site.texts("SELECT coalesce(outcome, state) FROM entitlement_sync.job_status")
            #expect(told.allSatisfy { $0 == "queued" || $0 == "running" || $0 == "store_unavailable" }, "\(told)")
            let doctor = try await site.run("doctor", "--output", "json")
            struct Checks: Decodable {
                struct Check: Decodable {
                    var name: String
                    var ok: Bool
                    var detail: String
                }
                var checks: [Check]
            }
            let checks = try JSONDecoder().decode(Checks.self, from: Data(doctor.out.utf8)).checks
            let clock = try #require(checks.first { $0.name == "clock.onside" }, "\(doctor)")
            #expect(!clock.ok)
            // A second may tick between their clock and ours.
            let off = (-1...1).map { "by \(-seconds + $0) s" }
            #expect(off.contains { clock.detail.contains($0) }, "\(clock.detail)")
            try await worker.stop()
            // With the right time the same proof is as good as ever: shown once more, it joins the job that was put off, or makes
            // a new one where that was given up. Nobody works meanwhile, or that job could be done before.
            _ = try await site.run("restore", "ann", "--proof", proof)
            let heir = try await site.start("worker")
            try await site.waitUntil(
                "SELECT count(*) FROM entitlement_sync.job_status WHERE kind = 'restore' AND state = 'done'"
            )
            let ended = try await site.texts(
                "SELECT outcome FROM entitlement_sync.job_status WHERE kind = 'restore' ORDER BY created_at"
            )
            #expect(ended.last == "restored" && ended.dropLast().allSatisfy { $0 == "store_unavailable" }, "\(ended)")
            try await heir.stop()
        }
    }
}
