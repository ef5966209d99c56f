import Entitlements
import Foundation
import Postgres
import TestSupport
import Testing
import UserRequests

/// Records that are dated to a time that is still to come: the database's clock was set back since.
struct ClockTests {
    private static let columns = [
        "user_sync.read_at", "user_sync.full_read_at", "user_sync.absent_since", "user_sync.access_event_at",
        "user_sync.moved_away_at", "purchase.observed_at", "purchase.owner_since",
    ]

    /// Dates a column of every row an hour or a year ahead.
    private static func shift(_ column: String, _ world: World, by interval: String = "1 hour") async throws {
        let parts = column.split(separator: ".").map(String.init)
        try await world.pool.query(
            "UPDATE entitlement_sync.\(rawSQL: parts[0]) SET \(rawSQL: parts[1]) = now() + \(interval)::interval"
        )
    }

    private static func ahead(_ world: World) async throws -> Int64 {
        try await world.number(
            """
            SELECT (SELECT count(*) FROM entitlement_sync.user_sync AS u
                     WHERE greatest(u.read_at, u.full_read_at, u.absent_since, u.access_event_at, u.moved_away_at) > now())
                 + (SELECT count(*) FROM entitlement_sync.purchase AS p
                     WHERE greatest(p.observed_at, p.owner_since) > now())
            """
        )
    }

    @Test(arguments: columns, ["1 hour", "400 days"])
    func `109: a payer is restored whatever on record is dated ahead, and the clock is an alarm`(
        column: String,
        interval: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: expired}"]) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").outcome == "nothing_to_restore")
            try await Self.shift(column, world, by: interval)
            try await world.change("ann", #"{"state":"active"}"#)
            let job = try await world.restored("ann")
            #expect(job.outcome == "restored", "\(job)")
            #expect(try await world.alarms() == (column == "user_sync.full_read_at" ? [] : ["clock_set_back"]))
            #expect(try await Self.ahead(world) == 0 || column == "user_sync.full_read_at")
        }
    }

    @Test func `109: what has ended is demoted by the store's own word though every reading on record is dated ahead`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").outcome == "restored")
            // What a clock leaves that was ahead for a while.
            for column in Self.columns
            where ["read_at", "observed_at", "owner_since"].contains(where: column.hasSuffix) {
                try await Self.shift(column, world)
            }
            try await world.change("ann", #"{"state":"expired"}"#)
            let job = try await world.reconciled("ann")
            #expect(job.outcome == "demoted", "\(job)")
            #expect(try await world.alarms() == ["clock_set_back"])
            #expect(try await Self.ahead(world) == 0)
        }
    }
}
