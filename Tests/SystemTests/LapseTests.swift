import Entitlements
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

struct LapseTests {
    @Test func `a complete absence demotes only when read twice, a margin apart`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.reconciled("ann").outcome == "promoted")
            try await world.change("ann", #"{"state":"none"}"#)
            try await world.endPeriods()
            #expect(try await world.reconciled("ann").outcome == "deferred")
            #expect(try await world.reconciled("ann").outcome == "deferred")
            #expect(try await world.type(of: "ann") == "subscriber")
            // The margin is the one in force at the verdict.
            var setup = WorkerSetup()
            setup.decision.absenceMargin = .zero
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
            #expect(try await world.type(of: "ann") == "free")
            #expect(
                try await world.decisions(about: "ann").map(\.rule)
                    == ["store_access", "first_absence", "absence_margin", "absence_confirmed"]
            )
        }
    }

    @Test func `a sign of access between two absences begins the count afresh`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            var setup = WorkerSetup()
            for state in ["active", "none", "active", "none"] {
                try await world.change("ann", #"{"state":"\#(state)"}"#)
                try await world.endPeriods()
                // The last one would demote if it were the second; with this margin, a look follows at once.
                if try await world.decisions(about: "ann").count == 3 { setup.decision.absenceMargin = .zero }
                _ = try await world.reconciled("ann", setup: setup)
            }
            #expect(
                try await world.decisions(about: "ann").map(\.outcome).prefix(4)
                    == ["promoted", "deferred", "unchanged", "deferred"]
            )
        }
    }

    @Test func `181: a subscriber without access hears that it has ended; the reconcile that follows demotes`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").outcome == "restored")
            try await world.change("ann", #"{"state":"expired"}"#)
            let job = try await world.restored("ann")
            #expect(job.outcome == "nothing_to_restore")
            #expect(job.messageKey == "nothing.ended")
            let decisions = try await world.decisions(about: "ann")
            #expect(decisions.map(\.outcome) == ["restored", "nothing_to_restore", "demoted"])
            #expect(decisions.map(\.after) == ["subscriber", "subscriber", "free"])
        }
    }

    @Test func `192: a subscriber for whom nothing was ever seen is never demoted`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            var setup = WorkerSetup()
            setup.decision.absenceMargin = .zero
            try await world.add("ann", .subscriber)
            for _ in 1...3 { #expect(try await world.reconciled("ann", setup: setup).outcome == "deferred") }
            #expect(try await world.restored("ann", setup: setup).outcome == "already_subscriber")
            #expect(Set(try await world.decisions(about: "ann").map(\.rule)) == ["unexplained"])
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test(arguments: [("active", 1), ("cancelled", 3)])
    func `164: demotions beyond the brake are deferred; ends that were announced do not count`(
        _ before: String,
        _ demoted: Int64
    ) async throws {
        let users = ["ann", "bob", "cid"]
        try await World.with(customers: users.map { "{id: \($0), state: \(before)}" }) { world in
            var setup = WorkerSetup()
            setup.brake.minimum = 1
            for user in users {
                try await world.add(user)
                _ = try await world.reconcile(user)
            }
            try await world.work(setup)
            for user in users {
                try await world.change(user, #"{"state":"expired"}"#)
                _ = try await world.reconcile(user)
            }
            try await world.work(setup)
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'free'") == demoted)
            let braked = try await world.number(
                "SELECT count(*) FROM entitlement_sync.decision_log WHERE rule = 'brake' AND outcome = 'deferred'"
            )
            #expect(braked == 3 - demoted)
            #expect(try await world.alarms() == (braked > 0 ? ["demotion_brake", "demotion_brake_half"] : []))
        }
    }

    @Test(arguments: [("promote_only", "promote_only"), ("paused", "demotions_paused")])
    func `promote_only and a pause of demotions demote nobody, and promote all the same`(
        _ way: String,
        _ rule: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            var setup = WorkerSetup()
            if way == "paused" {
                try await world.controls.set("demotions", paused: true)
            } else {
                setup.decision.mode = .promoteOnly
            }
            try await world.add("ann")
            #expect(try await world.reconciled("ann", setup: setup).outcome == "promoted")
            try await world.change("ann", #"{"state":"expired"}"#)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "deferred")
            #expect(try await world.decisions(about: "ann").last?.rule == rule)
            #expect(try await world.type(of: "ann") == "subscriber")
            if way == "paused" {
                try await world.controls.set("demotions", paused: false)
                #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
            }
        }
    }

    @Test func `observe decides and records, and writes neither users, assets nor tickets`() async throws {
        try await World.with(customers: ["{id: ann, state: active}", "{id: claimant, state: none}"]) { world in
            var setup = WorkerSetup()
            setup.decision.mode = .observe
            for user in ["ann", "claimant"] { try await world.add(user) }
            try await world.addAssets(2, of: "ann", frozenFor: ["subscription_lapsed"])
            let job = try await world.restored("ann", setup: setup)
            #expect(job.outcome == "restored")
            let claim = try await world.restored("claimant", clientError: "7", setup: setup)
            #expect(claim.outcome == "store_account_mismatch")
            #expect(try await world.type(of: "ann") == "free")
            #expect(try await world.assets(of: "ann", frozenFor: ["subscription_lapsed"]) == 2)
            #expect(try await world.tickets(of: "claimant").isEmpty)
            let decision = try #require(try await world.decisions(about: "ann").first)
            #expect(decision.explanation.contains("observed only"))
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.purchase") == 1)
        }
    }

    @Test func `a pause of everything lets restores wait; they end after it`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.controls.set("all", paused: true)
            let job = try await world.restore("ann")
            var setup = WorkerSetup()
            setup.lease = .seconds(2)
            try await world.working(setup) {
                // The worker has prolonged its lease, so it has looked at the queue many times.
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.worker
                     WHERE expires_at > started_at + interval '2500 milliseconds'
                    """
                )
                #expect(try await world.status(job).hasEnded == false)
                #expect(try await world.status(job).messageKey == "still_checking")
                #expect(try await world.type(of: "ann") == "free")
                try await world.controls.set("all", paused: false)
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND outcome = 'restored'"
                )
            }
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `the brake counts those who are subscribers now, half of whom may lapse here`() async throws {
        let users = (1...10).map { "user-\($0)" }
        try await World.with(customers: users.map { "{id: \($0), state: active}" }) { world in
            var setup = WorkerSetup()
            setup.brake = DemotionBrake(percent: 50, minimum: 1)
            for user in users {
                try await world.add(user)
                _ = try await world.reconcile(user)
            }
            try await world.work(setup)
            for user in users {
                try await world.change(user, #"{"state":"expired"}"#)
                _ = try await world.reconcile(user)
            }
            // What was counted a moment ago is not counted again.
            try await world.pool.query("UPDATE entitlement_sync.brake SET counted_at = now() - interval '1 second'")
            try await world.work(setup)
            let lapsed: PostgresQuery = "SELECT count(*) FROM users WHERE type = 'free'"
            let first = try await world.number(lapsed)
            #expect(first == 5)

            // Hours later the day's allowance is still used up.
            try await world.pool.query("UPDATE entitlement_sync.brake_minute SET minute = minute - interval '2 hours'")
            for user in users { _ = try await world.reconcile(user) }
            try await world.work(setup)
            #expect(try await world.number(lapsed) == 5)
        }
    }
}
