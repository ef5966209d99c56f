import Diagnostics
import Entitlements
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

struct StatusTests {
    @Test func `113: an onboarding user who paid becomes a subscriber, the status untouched`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann", status: "onboarding")
            #expect(try await world.restored("ann").outcome == "restored")
            let kept = try await world.number(
                "SELECT count(*) FROM users WHERE type = 'subscriber' AND status = 'onboarding'"
            )
            #expect(kept == 1)
        }
    }

    @Test(arguments: [
        ("114", "banned", "not_eligible"), ("114", "banned_final", "not_eligible"),
        ("117", "to_be_deleted", "not_eligible.deleting"),
    ])
    func `114, 117: who is not eligible gains nothing, opens no ticket, and the observation is kept`(
        _ number: String,
        _ status: String,
        _ key: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann", status: status)
            try await world.addAssets(2, of: "ann", frozenFor: ["subscription_lapsed"])
            let job = try await world.restored("ann", clientError: "receipt_already_in_use")
            #expect(job.state == "done")
            #expect(job.outcome == "not_eligible", "\(number)")
            #expect(job.messageKey == key)
            #expect(try await world.type(of: "ann") == "free")
            #expect(try await world.assets(of: "ann", frozenFor: ["subscription_lapsed"]) == 2)
            #expect(try await world.tickets(of: "ann").isEmpty)
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["not_eligible"])
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.observation") == 1)
        }
    }

    @Test(arguments: [
        ("83", "UPDATE users SET status = 'banned' WHERE id = 'ann'", "not_eligible"),
        ("85", "DELETE FROM users WHERE id = 'ann'", "account_gone"),
    ])
    func `83, 85: who is banned or deleted between read and write gains nothing`(
        _ number: String,
        _ change: String,
        _ key: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.inject(#"{"latency":"500ms"}"#)
            let job = try await world.restore("ann")
            try await world.working {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND state = 'running'"
                )
                try await world.pool.query(.init(rawSQL: change))
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND state = 'done'"
                )
            }
            let status = try await world.status(job)
            #expect(status.outcome == "not_eligible", "\(number)")
            #expect(status.messageKey == key)
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == 0)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.decision") == 1)
            let kept = try await world.number("SELECT count(*) FROM entitlement_sync.observation")
            #expect(kept == (key == "account_gone" ? 0 : 1), "what was read is linked to nobody who is gone")
        }
    }

    @Test(arguments: ["banned", "banned_final", "to_be_deleted"])
    func `120: a subscriber who is not eligible is reported, and nobody changes them silently`(_ status: String)
        async throws
    {
        try await World.with(customers: ["{id: ann, state: expired}"]) { world in
            try await world.add("ann", .subscriber, status: status)
            try await world.addAssets(2, of: "ann", frozenFor: [])
            for _ in 1...2 { #expect(try await world.reconciled("ann").outcome == "not_eligible") }
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await world.assets(of: "ann", frozenFor: []) == 2)
            let check = await Doctor(pool: world.pool).checks().first { $0.name == "law.ineligible_subscribers" }
            #expect(check?.ok == false && check?.detail.hasPrefix("1 subscribers are banned") == true)
        }
    }
}
