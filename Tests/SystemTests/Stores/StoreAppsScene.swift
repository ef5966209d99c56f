import Entitlements
import Foundation
import Logging
import Postgres
import Queue
import StoreEvents
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// Two store apps over one user base: each has a simulator of its own, so that it shows which was asked.
struct StoreAppsScene: Sendable {
    static let secondApp = "com.example.second"
    static let secondProject = "proj9z8y7x6w"

    /// The database with the stores of the first app.
    let world: World
    /// The same database with the stores of the second app.
    let second: World

    /// Builds both, lets the test act in them, and takes them down.
    ///
    /// The customers are RevenueCat's, each a line of YAML; `appStore` and `googlePlay`: the transactions of one customer, and
    /// the purchases, of each app.
    static func with(
        customers: (first: [String], second: [String]) = ([], []),
        appStore: (first: String?, second: String?) = (nil, nil),
        googlePlay: (first: String?, second: String?) = (nil, nil),
        _ body: @Sendable (StoreAppsScene) async throws -> Void
    ) async throws {
        let first = scenario("com.example.app", appStore.first, googlePlay.first)
        var text = "rate_limit_per_minute: 0\nproject: \(secondProject)\n"
        if !customers.second.isEmpty {
            text += "customers:\n" + customers.second.map { "  - \($0)\n" }.joined()
        }
        text += scenario(secondApp, appStore.second, googlePlay.second)
        let simulator = try StoreSimulator(scenario: try Scenario(yaml: text), logger: .quiet)
        try await World.with(customers: customers.first, scenario: first) { world in
            let (ports, announce) = AsyncStream.makeStream(of: Int.self)
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await simulator.run { announce.yield($0) } }
                let port = try #require(await ports.first { _ in true })
                let second = World(
                    database: world.database,
                    pool: world.pool,
                    workerPool: world.workerPool,
                    transport: world.transport,
                    simulatorPort: port,
                    simulator: simulator
                )
                try await world.addProducts()
                try await body(StoreAppsScene(world: world, second: second))
                group.cancelAll()
            }
        }
    }

    private static func scenario(_ app: String, _ transaction: String?, _ purchase: String?) -> String {
        var text = "app_store:\n  bundle_id: \(app)\n"
        if let transaction {
            text += "  customers:\n    - id: alice\n      transactions:\n        - {\(transaction)}\n"
        }
        text += "google_play:\n  package: \(app)\n"
        if let purchase { text += "  purchases:\n    - {\(purchase)}\n" }
        return text
    }

    // MARK: The configuration

    /// A store of both apps, as an entry each.
    private func entries(_ variables: (World) throws -> [String: String], _ own: [String: String]) throws -> [[String:
        String]]
    {
        try [variables(world), variables(second).merging(own) { $1 }].map { variables in
            Dictionary(uniqueKeysWithValues: variables.map { ($0.key.lowercased(), $0.value) })
        }
    }

    /// A worker that asks some stores of both apps, or of those whose places are given.
    func asking(
        _ stores: Store...,
        apps: Set<Int> = [0, 1],
        secondKey: String = "sk_test",
        transferKey: String? = nil,
        change: (inout WorkerSetup) -> Void = { _ in }
    ) throws
        -> WorkerSetup
    {
        let transfer = transferKey.map { ["REVENUECAT_TRANSFER_API_KEY": $0] } ?? [:]
        var lists: [String: [[String: String]]] = [:]
        for store in stores {
            let entries: [[String: String]] =
                switch store {
                case .appStore:
                    try entries({ try $0.appStore }, ["APP_STORE_BUNDLE_ID": Self.secondApp])
                case .googlePlay:
                    try entries({ $0.googlePlay }, ["GOOGLE_PLAY_PACKAGE_NAME": Self.secondApp])
                case .revenueCat:
                    try entries(
                        { $0.revenueCat.merging(transfer) { $1 } },
                        ["REVENUECAT_PROJECT_ID": Self.secondProject, "REVENUECAT_API_KEY": secondKey]
                    )
                case .onside: []
                }
            lists[store.rawValue] = entries.enumerated().filter { apps.contains($0.offset) }.map(\.element)
        }
        // JSON is YAML.
        let text = String(decoding: try JSONEncoder().encode(lists), as: UTF8.self) + "\n"
        var setup = WorkerSetup()
        setup.stores = ["STORE_APPS": text.replacing("],", with: "],\n")]
        change(&setup)
        return setup
    }

    // MARK: The records

    /// The apps and projects that purchases remember, in the order of their numbers.
    func apps() async throws -> [String] {
        try await world.pool.query(
            """
            SELECT concat_ws(' ', p.store_app, p.revenuecat_project) FROM entitlement_sync.purchase AS p
             WHERE p.merged_into IS NULL ORDER BY p.id
            """
        ).map { try $0.decode(String.self) }
    }

    /// The names of the limits that workers have shared.
    func credentials() async throws -> Set<String> {
        Set(
            try await world.pool.query("SELECT b.credential FROM entitlement_sync.rate_budget AS b").map {
                try $0.decode(String.self)
            }
        )
    }

    /// What `explain` says of a user.
    func explained(_ user: String) async throws -> [String] {
        try #require(try await Timeline(pool: world.pool).events(of: user, until: nil)).map(\.text)
    }
}

extension World {
    /// How often stores were asked by paths that contain a text.
    func requests(_ part: String) -> Int {
        simulator.requestReport().byPath.reduce(0) { $1.key.contains(part) ? $0 + $1.value : $0 }
    }
}
