import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// How long people are told that they will wait.
@Suite struct EstimatedWaitTests {
    @Test func `173: what has ended, and what nobody knows, waits no longer`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let job = try await world.ask(RestoreWish(userID: "ann"))
            try await world.work()
            #expect(try await world.app.estimatedWait(job) == 0)
            #expect(try await world.app.estimatedWait(UUID()) == 0)
        }
    }

    @Test func `173: a restore that is due waits a moment, and one in backoff until its time`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let job = try await world.ask(RestoreWish(userID: "ann"))
            #expect(try await world.app.estimatedWait(job) == 1)
            try await world.pool.query(
                "UPDATE entitlement_sync.queue SET due = now() + interval '90 s', restore_due = now() + interval '90 s'"
            )
            let wait = try #require(try await world.app.estimatedWait(job))
            #expect(wait > 60 && wait <= 90)
        }
    }

    @Test func `173: while everything is paused nobody can say`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let job = try await world.ask(RestoreWish(userID: "ann"))
            try await world.controls.set("all", paused: true)
            #expect(try await world.app.estimatedWait(job) == nil)
            try await world.controls.set("all", paused: false)
            #expect(try await world.app.estimatedWait(job) == 1)
            try await world.controls.set("demotions", paused: true)
            #expect(try await world.app.estimatedWait(job) == 1)
        }
    }

    @Test func `173: the wait grows with the restores ahead, by what the store's limit leaves`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let job = try await world.ask(RestoreWish(userID: "ann"))
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.rate_budget (credential, tokens, per_minute)
                VALUES ('revenuecat', 0, 60), ('app_store.production.history', 7, 0)
                """
            )
            // Two requests at one a second.
            #expect(try await world.app.estimatedWait(job) == 2)
            // Restores that are due before; events, sweeps, what runs, and what is due later stand behind.
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.queue (user_key, due, lane, owner, restore_id, restore_due)
                SELECT 1000 + n, now() + CASE WHEN n > 80 THEN interval '1 minute' ELSE interval '-1 minute' END,
                       CASE WHEN n BETWEEN 60 AND 69 THEN 1 WHEN n BETWEEN 70 AND 74 THEN 2 ELSE 0 END,
                       CASE WHEN n BETWEEN 75 AND 80 THEN 5 END, entitlement_sync.new_id(), now()
                  FROM generate_series(1, 90) AS n
                """
            )
            #expect(try await world.app.estimatedWait(job) == 120)
            try await world.pool.query(
                "UPDATE entitlement_sync.rate_budget SET tokens = 40 WHERE credential = 'revenuecat'"
            )
            #expect(try await world.app.estimatedWait(job) == 80)
            // The store's own limit is lower.
            try await world.pool.query(
                "UPDATE entitlement_sync.rate_budget SET seen_limit = 30 WHERE credential = 'revenuecat'"
            )
            #expect(try await world.app.estimatedWait(job) == 160)
            // What nobody has asked for ten minutes says nothing.
            try await world.pool.query(
                "UPDATE entitlement_sync.rate_budget SET refilled_at = now() - interval '11 minutes'"
            )
            #expect(try await world.app.estimatedWait(job) == 1)
        }
    }

    @Test func `173: whoever waits for a store that wants to be left alone waits as long`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let job = try await world.ask(RestoreWish(userID: "ann"))
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.rate_budget (credential, tokens, per_minute, refilled_at, blocked_until)
                VALUES ('revenuecat', 60, 480, now() - interval '1 hour', now() + interval '4 minutes')
                """
            )
            let blocked = try #require(try await world.app.estimatedWait(job))
            #expect(blocked > 200 && blocked <= 240)
            try await world.pool.query("UPDATE entitlement_sync.rate_budget SET blocked_until = now() - interval '1 s'")
            #expect(try await world.app.estimatedWait(job) == 1)
        }
    }

    @Test func `78, 173: the successor of a job that runs has a wait of its own`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let first = try await world.ask(RestoreWish(userID: "ann"))
            // As a worker holds it.
            try await world.pool.query("UPDATE entitlement_sync.queue SET owner = 5, active = 0")
            let next = try await world.ask(RestoreWish(userID: "ann"))
            #expect(next != first)
            for job in [first, next] { #expect(try await world.app.estimatedWait(job) == 1) }
        }
    }
}
