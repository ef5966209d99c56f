import Entitlements
import Foundation
import Postgres
import Runs
import TestSupport
import Testing

/// Users of every sort, and runs over all of them.
struct RunScene: Sendable {
    let world: World
    var setup = WorkerSetup(plans: .init(), role: "entitlement_sync_worker")

    /// Free users who have paid, subscribers whose subscription has ended, subscribers who pay, users without a purchase.
    static let (payers, ended, subscribers, others) = (4, 6, 5, 3)

    var runs: RunRecords { RunRecords(pool: world.pool) }

    static func with(_ body: @Sendable (RunScene) async throws -> Void) async throws {
        var customers: [String] = []
        for n in 1...payers { customers.append("{id: payer-\(n), subscriptions: [{state: active}]}") }
        for n in 1...ended { customers.append("{id: ended-\(n), subscriptions: [{state: expired}]}") }
        for n in 1...subscribers { customers.append("{id: subscriber-\(n), subscriptions: [{state: active}]}") }
        for n in 1...others { customers.append("{id: other-\(n), state: none}") }
        try await World.with(customers: customers) { world in
            for n in 1...payers { try await world.add("payer-\(n)") }
            for n in 1...ended {
                try await world.add("ended-\(n)", .subscriber)
                try await world.addAssets(2, of: "ended-\(n)", frozenFor: [])
            }
            for n in 1...subscribers { try await world.add("subscriber-\(n)", .subscriber) }
            for n in 1...others { try await world.add("other-\(n)") }
            try await world.add("banned", status: "banned")
            try await body(RunScene(world: world))
        }
    }

    /// Asks for a run and has it followed to where it does not go on by itself.
    func run(
        _ scope: RunRecord.Scope = .all,
        isDry: Bool = false,
        since: PostgresTimestamp? = nil,
        maxDemotions: Int32? = nil
    ) async throws -> RunRecord {
        let id = try #require(
            try await runs.ask(scope, isDry: isDry, since: since, maxDemotions: maxDemotions, by: "test")
        )
        return try await followed(id)
    }

    /// Works until a run does not go on by itself.
    func followed(_ id: Int64) async throws -> RunRecord {
        try await world.working(setup) { try await world.waitUntil(Self.hasEnded(id), comment: "the run goes on") }
        return try #require(try await runs.run(id))
    }

    static func hasEnded(_ id: Int64) -> PostgresQuery {
        "SELECT count(*) FROM entitlement_sync.run AS r WHERE r.id = \(id) AND r.state NOT IN ('reading', 'applying')"
    }

    /// How many users of a sort have a type.
    func count(_ sort: String, _ type: UserType) async throws -> Int64 {
        try await world.number(
            "SELECT count(*) FROM users AS u WHERE u.id LIKE \(sort + "-%") AND u.type = \(type.rawValue)"
        )
    }

    /// A brake that allows so many demotions a day.
    func braked(at limit: Int) -> RunScene {
        var scene = self
        scene.setup.brake = DemotionBrake(percent: 0, minimum: limit)
        return scene
    }
}
