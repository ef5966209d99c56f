import Foundation
import Postgres
import StoreEvents
import TestSupport
import Testing
import UserRequests

/// Events that announce access before RevenueCat's own API shows it.
@Suite struct ReadLagTests {
    @Test func `74: what an event promises is waited for, and promotes once RevenueCat shows it`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            try await world.deliver(#"{"id":"e","type":"INITIAL_PURCHASE","app_user_id":"ann"}"#)
            try await world.working {
                try await world.waitUntil(Self.waits)
                let decisions = try await world.decisions(about: "ann")
                #expect(decisions.isEmpty, "a no was believed")
                try await world.change("ann", #"{"state":"active"}"#)
                try await world.makeJobsDue()
                try await world.waitUntil("SELECT count(*) FROM users WHERE type = 'subscriber'")
            }
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["promoted"])
            let attempts = try await world.number("SELECT sum(attempt)::bigint FROM entitlement_sync.job_history")
            #expect(attempts == 0, "it was no failure")
        }
    }

    @Test(arguments: [("free", "none", "unchanged"), ("subscriber", "expired", "demoted")])
    func `74: no negative is believed within the settle time of a promise; after it, it is, and looked at again`(
        _ type: String,
        _ shown: String,
        _ outcome: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            if type == "subscriber" { #expect(try await world.reconciled("ann").outcome == "promoted") }
            let before = try await world.decisions(about: "ann").count
            try await world.change("ann", #"{"state":"\#(shown)"}"#)
            try await world.deliver(#"{"id":"e","type":"RENEWAL","app_user_id":"ann"}"#)
            try await world.working {
                try await world.waitUntil(Self.waits)
                // Another look within the time is of no more use.
                try await world.pool.query(
                    "UPDATE entitlement_sync.queue SET reconcile_error = NULL WHERE owner IS NULL"
                )
                try await world.makeJobsDue()
                try await world.waitUntil(Self.waits)
                let kept = try await world.type(of: "ann")
                let decided = try await world.decisions(about: "ann").count
                #expect(kept == type && decided == before)
                try await world.pool.query(
                    "UPDATE entitlement_sync.user_sync SET access_event_at = access_event_at - interval '140 seconds'"
                )
                try await world.makeJobsDue()
                try await world.waitUntil("SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.queue")
            }
            #expect(try await world.decisions(about: "ann").last?.outcome == outcome)
            #expect(try await world.type(of: "ann") == "free")
            let looks = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE next_check_at = access_event_at + interval '5 minutes'"
            )
            #expect(looks == 1, "nobody looks again")
        }
    }

    @Test func `74: a yes is believed at once`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.deliver(#"{"id":"e","type":"INITIAL_PURCHASE","app_user_id":"ann"}"#)
            try await world.work()
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["promoted"])
            #expect(try await world.storeRequests(for: "ann") == 1)
        }
    }

    @Test func `74: a tap within the settle time waits as well, and a yes is given at once`() async throws {
        try await World.with(customers: ["{id: ann, state: none}", "{id: bob, state: active}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            for user in ["ann", "bob"] {
                try await world.deliver(#"{"id":"of-\#(user)","type":"INITIAL_PURCHASE","app_user_id":"\#(user)"}"#)
            }
            #expect(try await world.inbox.drain().queued == 2)
            let (waiting, answered) = (try await world.restore("ann"), try await world.restore("bob"))
            try await world.working {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.queue WHERE restore_error = 'read_lag' AND owner IS NULL"
                )
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(answered) AND state = 'done'"
                )
            }
            let status = try await world.status(waiting)
            #expect(status.state == "queued" && status.attempt == 0 && status.lastError == "read_lag")
            #expect(try await world.status(answered).outcome == "restored")
            #expect(try await world.decisions(about: "ann").isEmpty)
        }
    }

    @Test func `74: an event that was on its way for long promises nothing any more`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            let hourAgo = Int64(Date().timeIntervalSince1970 * 1000) - 3_600_000
            try await world.deliver(
                #"{"id":"e","type":"RENEWAL","app_user_id":"ann","event_timestamp_ms":\#(hourAgo)}"#
            )
            try await world.work()
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["unchanged"])
            #expect(try await world.storeRequests(for: "ann") == 2, "one reading of two lists")
            let promised = try await world.number(
                "SELECT (extract(epoch FROM access_event_at) * 1000)::bigint FROM entitlement_sync.user_sync"
            )
            #expect(promised == hourAgo)
        }
    }

    @Test func `74: an older event does not take back what a newer one promised`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let now = Int64(Date().timeIntervalSince1970 * 1000)
            for (id, time) in [("new", now - 1000), ("old", now - 3_600_000)] {
                try await world.deliver(
                    #"{"id":"\#(id)","type":"RENEWAL","app_user_id":"ann","event_timestamp_ms":\#(time)}"#
                )
                #expect(try await world.inbox.drain().queued == 1)
            }
            let kept = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE access_event_at > now() - interval '1 minute'"
            )
            #expect(kept == 1)
        }
    }

    @Test(arguments: [
        #""type":"INITIAL_PURCHASE","environment":"SANDBOX""#, #""type":"RENEWAL","environment":"SANDBOX""#,
        #""type":"NON_RENEWING_PURCHASE","environment":"PRODUCTION","entitlement_ids":[]"#, #""type":"EXPIRATION""#,
        #""type":"CANCELLATION""#,
    ])
    func `74: events of the sandbox, of coins and of endings promise nothing: a no is believed at once`(
        _ members: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            try await world.deliver(#"{"id":"e","app_user_id":"ann",\#(members)}"#)
            try await world.work()
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["unchanged"])
            #expect(try await world.storeRequests(for: "ann") == 2, "one reading of two lists")
            let promised = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE access_event_at IS NOT NULL"
            )
            #expect(promised == 0)
        }
    }

    /// A reconcile was put off because of a promise.
    private static let waits: PostgresQuery =
        "SELECT count(*) FROM entitlement_sync.queue WHERE reconcile_error = 'read_lag' AND owner IS NULL"
}
