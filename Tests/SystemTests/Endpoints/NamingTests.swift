import Diagnostics
import Entitlements
import Foundation
import Postgres
import Queue
import StoreClients
@testable import StoreEvents
import TestSupport
import Testing

/// Whom a store's event is about.
@Suite struct NamingTests {
    private static let anonymous = "$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0"

    @Test func `121: an event about somebody who signs up a moment later waits, is looked into again, and then counts`()
        async throws
    {
        try await World.with(customers: ["{id: late, state: active}"]) { world in
            try await world.deliver(#"{"id":"early","type":"INITIAL_PURCHASE","app_user_id":"late"}"#)
            for _ in 1...2 {
                let drained = try await world.inbox.drain()
                #expect(drained.examined == 1 && drained.queued == 0)
                #expect(try await world.state(ofEvent: "early") == "waiting")
                #expect(try await world.inbox.drain().examined == 0, "it was examined before its time")
                try await world.makeEventsDue()
            }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.user_sync") == 0)
            try await world.add("late")
            let drained = try await world.inbox.drain()
            #expect(drained.examined == 1 && drained.queued == 1)
            #expect(try await world.state(ofEvent: "early") == "done")
            try await world.work()
            #expect(try await world.type(of: "late") == "subscriber")
        }
    }

    @Test func `121: an event whose user never comes is looked into six times within hours, and then parked`()
        async throws
    {
        try await World.with { world in
            try await world.accept([.about("never", id: "lost")])
            for wait: Int64 in [10, 60, 300, 1800, 7200] {
                #expect(try await world.inbox.drain().examined == 1)
                #expect(try await world.state(ofEvent: "lost") == "waiting")
                let left = try await world.number(
                    "SELECT extract(epoch FROM i.due - clock_timestamp())::bigint FROM entitlement_sync.inbox AS i"
                )
                #expect(left > wait / 2 && left <= wait)
                try await world.makeEventsDue()
            }
            #expect(try await world.inbox.drain().examined == 1)
            #expect(try await world.state(ofEvent: "lost") == "parked")
            // That is all, whoever comes later.
            try await world.add("never")
            try await world.pool.query("UPDATE entitlement_sync.inbox SET due = now()")
            #expect(try await !world.inbox.hasNew())
            #expect(try await world.inbox.drain().examined == 0)
            #expect(try await world.queued() == 0)
        }
    }

    @Test(arguments: ["null", "guest", "undefined", "[object Object]", "-1"])
    func `15: an event of a customer who is everybody raises the alarm and is parked at once; nothing is written`(
        _ id: String
    ) async throws {
        try await World.with { world in
            // A host with such a user is broken as well.
            try await world.add(id)
            let event = #"{"id":"e","type":"RENEWAL","app_user_id":"\#(id)","original_app_user_id":"\#(id)"}"#
            try await world.deliver(event)
            let drained = try await world.inbox.drain()
            #expect(drained.examined == 1 && drained.queued == 0)
            #expect(try await world.state(ofEvent: "e") == "parked")
            #expect(try await world.alarms() == ["blocked_customer_id"])
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.user_sync") == 0)
            #expect(try await world.queued() == 0)
            #expect(try await world.deliver(event) == 0)
            #expect(try await world.inbox.drain().examined == 0)
            #expect(try await world.number("SELECT a.count FROM entitlement_sync.alarm AS a") == 1)
            #expect(try await world.type(of: id) == "free")
        }
    }

    @Test func `15: beside a blocked id a user of ours is read all the same, and the alarm is raised`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.deliver(
                #"{"id":"e","type":"TRANSFER","transferred_from":["null"],"transferred_to":["ann"]}"#
            )
            let drained = try await world.inbox.drain()
            #expect(drained.examined == 1 && drained.queued == 1)
            #expect(try await world.state(ofEvent: "e") == "done")
            #expect(try await world.alarms() == ["blocked_customer_id"])
            try await world.work()
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `9, 11: whose own id stands among the aliases alone is found, and nobody is made up`() async throws {
        let customer = "{id: \"\(Self.anonymous)\", aliases: [ann], state: active}"
        try await World.with(customers: [customer]) { world in
            try await world.add("ann")
            try await world.deliver(
                """
                {"id":"e","type":"RENEWAL","app_user_id":"\(Self.anonymous)","original_app_user_id":"\(Self.anonymous)",
                "aliases":["\(Self.anonymous)","legacy-7","ann"]}
                """
            )
            try await world.work()
            #expect(try await world.state(ofEvent: "e") == "done")
            #expect(try await world.type(of: "ann") == "subscriber")
            let known = try await world.pool.query("SELECT user_id FROM entitlement_sync.user_sync").map {
                try $0.decode(String?.self)
            }
            #expect(known == ["ann"])
            #expect(try await world.number("SELECT count(*) FROM users") == 1)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.ticket") == 0)
        }
    }

    @Test(arguments: ["app_user_id", "original_app_user_id", "aliases", "transferred_from", "transferred_to"])
    func `9: an id is found wherever an event has it`(_ member: String) async throws {
        try await World.with { world in
            try await world.add("ann")
            let value = member.hasSuffix("user_id") ? #""ann""# : #"["\#(Self.anonymous)","ann"]"#
            try await world.deliver(#"{"id":"e","type":"PRODUCT_CHANGE","\#(member)":\#(value)}"#)
            #expect(try await world.inbox.drain().queued == 1)
            #expect(try await world.state(ofEvent: "e") == "done")
        }
    }

    @Test func `12: an id that differs by letter case is somebody else's`() async throws {
        try await World.with { world in
            try await world.add("Ann")
            try await world.deliver(#"{"id":"other","type":"RENEWAL","app_user_id":"ann","aliases":["ANN"]}"#)
            #expect(try await world.inbox.drain().queued == 0)
            #expect(try await world.state(ofEvent: "other") == "waiting")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.user_sync") == 0)
            try await world.deliver(#"{"id":"own","type":"RENEWAL","app_user_id":"Ann"}"#)
            #expect(try await world.inbox.drain().queued == 1)
            #expect(try await world.state(ofEvent: "own") == "done")
            // Nobody is guessed, and people hear of it.
            #expect(try await world.state(ofEvent: "other") == "waiting")
            let check = await Doctor(pool: world.pool).checks().first { $0.name == "letter_case" }
            #expect(check?.ok == false && check?.detail.contains("such as event other") == true)
        }
    }

    @Test(arguments: ["erased", "gone from the host"])
    func `An event about somebody who is no user any more leads to nothing`(_ way: String) async throws {
        try await World.with { world in
            try await world.add("ann")
            try await world.meet("ann")
            if way == "erased" { try await world.pool.query("SELECT * FROM entitlement_sync.erase_user('ann')") }
            try await world.pool.query("DELETE FROM users")
            try await world.accept([.about("ann", id: "e", announcesAccess: true)])
            let drained = try await world.inbox.drain()
            #expect(drained.examined == 1 && drained.queued == 0)
            #expect(try await world.state(ofEvent: "e") == "waiting")
            let known = try await world.pool.query("SELECT user_id FROM entitlement_sync.user_sync").map {
                try $0.decode(String?.self)
            }
            let left: [String?] = [way == "erased" ? nil : "ann"]
            #expect(known == left)
            #expect(try await world.queued() == 0)
        }
    }

    @Test func `85: an event about a purchase of somebody who was erased ends without a word`() async throws {
        try await World.with { world in
            try await world.add("ann")
            try await world.meet("ann")
            try await Self.addPurchase(1, of: "ann", "app_store", "production", "2000000100000001", in: world)
            try await world.pool.query("SELECT * FROM entitlement_sync.erase_user('ann')")
            try await world.pool.query("DELETE FROM users")
            try await world.accept([Self.event("e", "app_store", "production", "2000000100000001")])
            try await world.work()
            #expect(try await world.state(ofEvent: "e") == "done")
            let ends = try await world.pool.query(
                "SELECT state || ' ' || outcome FROM entitlement_sync.job_history"
            ).map { try $0.decode(String.self) }
            #expect(ends == ["done not_eligible"])
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.ticket") == 0)
        }
    }

    @Test func `An event about a purchase is about its owner, by any of its ids in its own store and environment`()
        async throws
    {
        try await World.with { world in
            for user in ["ann", "bob"] {
                try await world.add(user)
                try await world.meet(user)
            }
            try await Self.addPurchase(1, of: "ann", "app_store", "production", "2000000100000001", in: world)
            try await Self.addPurchase(2, of: "ann", "app_store", "sandbox", "2000000100000002", in: world)
            try await Self.addPurchase(3, of: nil, "app_store", "production", "2000000100000003", in: world)
            try await Self.addPurchase(4, of: "bob", "google_play", "production", "GPA.4", in: world)
            // A row that was merged into another is a pointer, whoever owned it.
            try await Self.addPurchase(5, of: "ann", "google_play", "production", "tok-5", mergedInto: 4, in: world)
            let cases: [(store: String, environment: String?, value: String, owners: [String])] = [
                ("app_store", "production", "2000000100000001", ["ann"]),
                ("app_store", nil, "2000000100000001", ["ann"]),
                ("app_store", "sandbox", "2000000100000001", []),
                ("google_play", "production", "2000000100000001", []),
                ("app_store", "sandbox", "2000000100000002", ["ann"]),
                ("app_store", "production", "2000000100000002", []),
                ("app_store", "production", "2000000100000003", []),
                ("google_play", nil, "GPA.4", ["bob"]),
                ("google_play", nil, "tok-5", ["bob"]),
                ("google_play", nil, "TOK-5", []),
                ("app_store", "production", "2000000199999999", []),
            ]
            for (number, item) in cases.enumerated() {
                let id = "event-\(number)"
                try await world.accept([Self.event(id, item.store, item.environment, item.value)])
                let drained = try await world.inbox.drain()
                #expect(drained.examined == 1 && drained.queued == Int64(item.owners.count), "\(item)")
                #expect(try await Self.found(by: id, in: world) == item.owners, "\(item)")
            }
        }
    }

    @Test func `An event that names a user and another one's purchase is about both`() async throws {
        try await World.with { world in
            for user in ["ann", "bob"] {
                try await world.add(user)
                try await world.meet(user)
            }
            try await Self.addPurchase(1, of: "ann", "google_play", "production", "tok-1", in: world)
            var event = Self.event("e", "google_play", nil, "tok-1")
            event.users = ["bob", "nobody"]
            // Named twice is named once.
            event.purchases += event.purchases
            try await world.accept([event])
            #expect(try await world.inbox.drain().queued == 2)
            #expect(try await Self.found(by: "e", in: world) == ["ann", "bob"])
        }
    }

    // MARK: Parts

    private static func event(_ id: String, _ store: String, _ environment: String?, _ value: String) -> StoreEvent {
        StoreEvent(
            source: store == "app_store" ? .appStore : .googlePlay,
            id: id,
            kind: "REFUND",
            purchases: [StoreEvent.Purchase(store: store, environment: environment, value: value)]
        )
    }

    /// Who was found to be meant.
    private static func found(by event: String, in world: World) async throws -> [String] {
        try await world.pool.query(
            """
            SELECT u.user_id FROM entitlement_sync.inbox AS i
              JOIN entitlement_sync.user_sync AS u ON u.user_key = ANY (i.user_keys)
             WHERE i.event_id = \(event) ORDER BY u.user_id
            """
        ).map { try $0.decode(String.self) }
    }

    /// Writes a purchase into the ledger, with one of its ids.
    private static func addPurchase(
        _ id: Int64,
        of owner: String?,
        _ store: String,
        _ environment: String,
        _ identifier: String,
        mergedInto: Int64? = nil,
        in world: World
    ) async throws {
        try await world.pool.query(
            """
            INSERT INTO entitlement_sync.purchase (id, owner_key, merged_into, observed_at, source, store, environment,
                                                   kind, status, ownership, owner_rule, gives_access, entitlements)
            VALUES (\(id), (SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = \(owner)),
                    \(mergedInto), now(), \(store), \(store), \(environment), 'subscription', 'active', 'purchased',
                    'account_id', true, '{premium}')
            """
        )
        try await world.pool.query(
            """
            INSERT INTO entitlement_sync.purchase_identifier (value, store, environment, kind, purchase_id)
            VALUES (\(identifier), \(store), \(environment), 'store_id', \(id))
            """
        )
    }
}
