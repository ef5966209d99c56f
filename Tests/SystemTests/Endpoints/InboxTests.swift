import Entitlements
import Foundation
import Postgres
import Queue
import StoreClients
@testable import StoreEvents
import TestSupport
import Testing
import UserRequests

/// What becomes of stores' events between their arrival and the reconcile that they lead to.
@Suite struct InboxTests {
    // MARK: Kept once

    @Test func `72: an event that comes ten times, in whatever order, is kept once; ids are each sender's own`()
        async throws
    {
        try await World.with { world in
            try await world.add("ann")
            let events = (1...60).map { StoreEvent.about("ann", id: "event-\($0)") }
            var generator = SeededGenerator(seed: 72)
            var kept: Int64 = 0
            for _ in 1...10 {
                var left = events.shuffled(using: &generator)
                while !left.isEmpty {
                    let size = min(left.count, 1 + generator.below(20))
                    kept += try await world.accept(Array(left.prefix(size)))
                    left.removeFirst(size)
                }
            }
            #expect(kept == 60)
            let theirs = events.map { event -> StoreEvent in
                var same = event
                same.source = .appStore
                return same
            }
            #expect(try await world.accept(theirs) == 60)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox_log") == 120)
            let drained = try await world.inbox.drain()
            #expect(drained.examined == 120 && drained.queued == 1)
            #expect(try await world.queued() == 1)
            // What was looked into stays so.
            #expect(try await world.accept(events) == 0)
            #expect(try await world.inbox.drain().examined == 0)
            #expect(try await world.state(ofEvent: "event-1") == "done")
        }
    }

    @Test func `72: an event that stands twice in one batch is one; its words are kept as they came`() async throws {
        let words: [String: [UInt8]] = ["a": [0, 1, 255], "b": Array(#"{"event":{"id":"b"}}"#.utf8), "c": []]
        try await World.with { world in
            let events = try ["b", "a", "b", "c", "a"].map { id in
                try Inbox.Event(StoreEvent.about("ann", id: id), body: words[id] ?? [])
            }
            #expect(try await world.inbox.accept(events, from: .revenueCat) == 3)
            let rows = try await world.pool.query(
                """
                SELECT i.event_id, b.body FROM entitlement_sync.inbox AS i
                  LEFT JOIN entitlement_sync.inbox_body AS b ON b.id = i.id
                """
            )
            var kept: [String: [UInt8]] = [:]
            for row in rows {
                let (id, body) = try row.decode(String.self, PostgresBytes.self)
                kept[id] = body.bytes
            }
            #expect(rows.count == 3)
            #expect(kept == words)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox_body") == 3)
        }
    }

    @Test func `72: an event that comes again after it was forgotten changes nothing`() async throws {
        let event = #"{"id":"first","type":"INITIAL_PURCHASE","app_user_id":"ann"}"#
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.deliver(event) == 1)
            try await world.work()
            try await world.pool.query(
                "UPDATE entitlement_sync.inbox SET received_at = now() - interval '1 year 1 day'"
            )
            _ = try await world.inbox.forget(bodiesAfter: 30, eventsAfter: 365)
            #expect(try await world.state(ofEvent: "first") == nil)
            #expect(try await world.deliver(event) == 1)
            try await world.work()
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["promoted", "unchanged"])
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `Two who keep the same events in opposite orders never wait for each other`() async throws {
        try await World.with { world in
            for round in 1...20 {
                let events = (1...400).map { StoreEvent.about("ann", id: "event-\(round)-\($0)") }
                let backwards = Array(events.reversed())
                async let forth = world.accept(events)
                async let back = world.accept(backwards)
                let kept = try await [forth, back]
                #expect(kept[0] + kept[1] == 400)
            }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox_log") == 8000)
        }
    }

    @Test func `Events that are about nobody are kept, and nobody looks into them`() async throws {
        try await World.with { world in
            try await world.add("ann")
            for type in ["TEST", "INVOICE_ISSUANCE", "VIRTUAL_CURRENCY_TRANSACTION"] {
                let event = #"{"id":"\#(type)","type":"\#(type)","app_user_id":"ann","aliases":["ann"]}"#
                #expect(try await world.deliver(event) == 1)
                #expect(try await world.state(ofEvent: type) == "ignored")
            }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox_body") == 0)
            #expect(try await !world.inbox.hasNew())
            #expect(try await world.inbox.drain().examined == 0)
            #expect(try await world.queued() == 0)
        }
    }

    // MARK: Many at once

    @Test func `75: two thousand events about five users with jobs of their own are five reconciles`() async throws {
        let users = (0..<5).map { "user-\($0)" }
        let customers = (users + ["tapper", "swept"]).map { "{id: \($0), state: active}" }
        try await World.with(customers: customers) { world in
            for user in users + ["tapper", "swept"] { try await world.add(user) }
            // Two of the five have jobs waiting already: a sweep's, which the events join, and a tap's, beside theirs.
            let joined = try await world.reconcile("user-0")
            _ = try await world.restore("user-1")
            let tap = try await world.restore("tapper")
            let sweep = try await world.reconcile("swept")
            let events = (0..<2000).map { StoreEvent.about(users[$0 % 5], id: "event-\($0)") }
            for start in stride(from: 0, to: 2000, by: 500) {
                #expect(try await world.accept(Array(events[start..<start + 500])) == 500)
            }
            for _ in 1...4 {
                let drained = try await world.inbox.drain()
                #expect(drained.examined == 500 && drained.queued == 5)
            }
            #expect(try await world.inbox.drain().examined == 0)
            let reconciles = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.job_status AS s
                 WHERE s.user_id LIKE 'user-%' AND s.kind = 'reconcile' AND s.state = 'queued'
                """
            )
            #expect(reconciles == 5)
            // Whom a person waits for comes first, then whom an event is about; a sweep that is joined waits no longer.
            let lanes = try await world.pool.query(
                """
                SELECT u.user_id || ' ' || q.lane FROM entitlement_sync.queue AS q
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = q.user_key ORDER BY u.user_id
                """
            ).map { try $0.decode(String.self) }
            #expect(lanes == ["swept 2", "tapper 0", "user-0 1", "user-1 0", "user-2 1", "user-3 1", "user-4 1"])
            try await world.work()
            for user in users {
                #expect(try await world.storeRequests(for: user) == (user == "user-1" ? 2 : 1), "\(user)")
            }
            #expect(try await world.status(joined).outcome == "promoted")
            #expect(try await world.status(tap).outcome == "restored")
            #expect(try await world.status(sweep).outcome == "promoted")
        }
    }

    @Test func `75: a restore and a sweep behind the events of a thousand users do not wait for all`() async throws {
        try await World.with(scenario: "default_customer: {state: active}") { world in
            try await world.pool.query(
                "INSERT INTO users (id) SELECT 'user-' || n FROM generate_series(1, 1000) AS n"
            )
            for user in ["tapper", "swept"] { try await world.add(user) }
            let events = (1...1000).map { StoreEvent.about("user-\($0)", id: "event-\($0)") }
            for half in [events.prefix(500), events.suffix(500)] {
                try await world.accept(Array(half))
                let drained = try await world.inbox.drain()
                #expect(drained.examined == 500 && drained.queued == 500)
            }
            let restore = try await world.restore("tapper")
            let sweep = try await world.reconcile("swept")
            try await world.work()
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == 1002)
            // Sixty-four places, of which events leave a quarter; every eighth round begins with sweeps.
            for (job, least) in [(restore, Int64(700)), (sweep, 300)] {
                let later = try await world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.decision AS d
                     WHERE d.id > (SELECT x.id FROM entitlement_sync.decision AS x WHERE x.job_id = \(job))
                    """
                )
                #expect(later > least)
            }
        }
    }

    @Test func `Several who look at the same time look into each event once`() async throws {
        try await World.with { world in
            try await world.pool.query("INSERT INTO users (id) SELECT 'user-' || n FROM generate_series(0, 19) AS n")
            let events = (1...400).map { number in
                StoreEvent.about("user-\(number % 20)", id: "event-\(number)", announcesAccess: number % 2 == 0)
            }
            try await world.accept(events)
            let looked = try await withThrowingTaskGroup(of: Int64.self) { group in
                for _ in 1...4 {
                    group.addTask {
                        let drained = try await world.inbox.drain(upTo: 100)
                        return drained.examined
                    }
                }
                var sum: Int64 = 0
                for try await count in group { sum += count }
                return sum
            }
            #expect(looked == 400)
            // Users whom two of them met at the same moment come again.
            try await world.makeEventsDue()
            _ = try await world.inbox.drain()
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox WHERE state = 'done'") == 400)
            #expect(try await world.queued() == 20)
        }
    }

    @Test func `A worker that ends when idle looks into every event first`() async throws {
        let users = ["ann", "bob", "cid"]
        try await World.with(customers: users.map { "{id: \($0), state: active}" }) { world in
            for user in users { try await world.add(user) }
            var events = (0..<1200).map { StoreEvent.about(users[$0 % 3], id: "event-\($0)") }
            events.append(.about("nobody", id: "unknown"))
            events.append(StoreEvent(source: .revenueCat, id: "test", kind: "TEST"))
            try await world.accept(events)
            try await world.work()
            for user in users { #expect(try await world.type(of: user) == "subscriber") }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox WHERE state = 'done'") == 1200)
            #expect(try await world.state(ofEvent: "unknown") == "waiting", "it is not due for a while")
            #expect(try await world.state(ofEvent: "test") == "ignored")
            #expect(try await world.queued() == 0)
        }
    }

    // MARK: Held by others

    @Test(arguments: ["queue", "user_sync"])
    func `A row that an open transaction holds is left for the next second, and nothing else waits for it`(
        _ table: String
    ) async throws {
        try await World.with { world in
            for user in ["held", "ann"] { try await world.add(user) }
            _ = try await world.restore("held")
            let key = try await world.meet("held")
            try await world.accept([
                .about("held", id: "of-held", announcesAccess: true),
                .about("ann", id: "of-ann", announcesAccess: true),
            ])
            let (during, states) = try await world.pool.withTransaction { host in
                try await host.query(
                    "SELECT 1 FROM entitlement_sync.\(rawSQL: table) AS t WHERE t.user_key = \(key) FOR UPDATE"
                )
                let drained = try await world.inbox.drain()
                let held = try await world.state(ofEvent: "of-held")
                let ann = try await world.state(ofEvent: "of-ann")
                return (drained, [held, ann])
            }
            #expect(during.examined == 2 && during.queued == 1)
            #expect(states == ["received", "done"])
            // It was no try of the event's, and the next one comes within a second.
            let soon = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.inbox AS i
                 WHERE i.event_id = 'of-held' AND i.attempt = 0 AND i.due <= clock_timestamp() + interval '1 second'
                """
            )
            #expect(soon == 1)
            try await world.makeEventsDue()
            let after = try await world.inbox.drain()
            #expect(after.examined == 1 && after.queued == 1)
            #expect(try await world.state(ofEvent: "of-held") == "done")
            let noted = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE access_event_at IS NOT NULL"
            )
            #expect(noted == 2)
            let reconciles = try await world.number(
                "SELECT count(*) FROM entitlement_sync.queue WHERE reconcile_id IS NOT NULL"
            )
            #expect(reconciles == 2)
        }
    }

    @Test func `An event that promises nothing asks for nothing of a user's row that is held`() async throws {
        try await World.with { world in
            try await world.add("held")
            let key = try await world.meet("held")
            try await world.accept([.about("held", id: "of-held")])
            let drained = try await world.pool.withTransaction { host in
                try await host.query("SELECT 1 FROM entitlement_sync.user_sync WHERE user_key = \(key) FOR UPDATE")
                return try await world.inbox.drain()
            }
            #expect(drained.queued == 1)
            #expect(try await world.state(ofEvent: "of-held") == "done")
        }
    }

    @Test func `Somebody whom an open transaction makes known just now is found a little later; nobody waits for it`()
        async throws
    {
        try await World.with { world in
            for user in ["fresh", "ann"] { try await world.add(user) }
            try await world.accept([.about("fresh", id: "of-fresh"), .about("ann", id: "of-ann")])
            let drained = try await world.pool.withTransaction { host in
                // The host's own first tap for a new user.
                try await host.query("SELECT entitlement_sync.request_restore('fresh')")
                return try await world.inbox.drain()
            }
            #expect(drained.examined == 2 && drained.queued == 1)
            #expect(try await world.state(ofEvent: "of-fresh") == "waiting")
            #expect(try await world.state(ofEvent: "of-ann") == "done")
            try await world.makeEventsDue()
            let later = try await world.inbox.drain()
            #expect(later.examined == 1 && later.queued == 1)
            #expect(try await world.state(ofEvent: "of-fresh") == "done")
        }
    }

    // MARK: Forgotten

    @Test func `Words of events go first, then events, a bounded number at a time`() async throws {
        try await World.with { world in
            let events = (1...12).map { StoreEvent.about("ann", id: "event-\($0)") }
            try await world.accept(events)
            // Five are a quarter of a year old, two a week, five new; nobody ever came for the sixth and the eighth.
            try await world.pool.query(
                """
                UPDATE entitlement_sync.inbox AS i
                   SET received_at = now() - CASE WHEN i.event_id = ANY ('{event-6,event-7}') THEN interval '8 days'
                                                  ELSE interval '91 days' END
                 WHERE i.event_id = ANY ('{event-1,event-2,event-3,event-4,event-5,event-6,event-7}')
                """
            )
            try await world.pool.query(
                """
                UPDATE entitlement_sync.inbox_body AS b SET received_at = i.received_at
                  FROM entitlement_sync.inbox AS i WHERE i.id = b.id
                """
            )
            try await world.pool.query(
                "UPDATE entitlement_sync.inbox SET state = 'parked' WHERE event_id = ANY ('{event-6,event-8}')"
            )
            var steps: [[Int64]] = []
            for _ in 1...3 {
                let more = try await world.number("SELECT entitlement_sync.forget_events(7, 90, 3)::integer::bigint")
                let words = try await world.number("SELECT count(*) FROM entitlement_sync.inbox_body")
                let left = try await world.number("SELECT count(*) FROM entitlement_sync.inbox")
                steps.append([more, words, left])
            }
            #expect(steps == [[1, 9, 9], [1, 6, 7], [0, 5, 7]], "whether there is more, words, events")
            let words = try await world.pool.query(
                """
                SELECT i.event_id FROM entitlement_sync.inbox AS i
                  JOIN entitlement_sync.inbox_body AS b ON b.id = i.id ORDER BY i.id
                """
            ).map { try $0.decode(String.self) }
            #expect(Set(words) == ["event-8", "event-9", "event-10", "event-11", "event-12"])
            // Whom a parked event was about goes with its words.
            let named = try await world.pool.query(
                "SELECT event_id FROM entitlement_sync.inbox WHERE state = 'parked' AND about IS NOT NULL"
            ).map { try $0.decode(String.self) }
            #expect(named == ["event-8"])
            #expect(try await !world.inbox.forget(bodiesAfter: 7, eventsAfter: 90))
        }
    }
}
