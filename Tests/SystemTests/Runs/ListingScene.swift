import Configuring
@testable import Composition
import Entitlements
import Foundation
import Postgres
import Runs
import StoreClients
import StoreEvents
import StoreSimulator
import TestSupport
import Testing
import Transport
import UserRequests

/// Users who were read a moment ago, stores that sent something nobody heard, and runs that catch up.
struct ListingScene: Sendable {
    let world: World
    var setup: WorkerSetup

    static let line = "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly"

    /// The App Store with one customer, and what it sent: each a line of YAML without braces.
    static func appStore(_ notifications: [String]) -> String {
        AppStoreRestoreTests.scenario("\(line), expires: +20d")
            + "  notifications:\n" + notifications.map { "    - {\($0)}\n" }.joined()
    }

    /// Builds a world in which `ann` has just shown a proof, so that no sweep since an earlier instant reads her.
    static func with(
        _ scenario: String,
        customers: [String] = [],
        stores: @Sendable (World) throws -> [String: String],
        proof: @Sendable (World) throws -> String,
        _ body: @Sendable (ListingScene) async throws -> Void
    ) async throws {
        try await World.with(customers: customers, scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(try stores(world)) {
                $0.plans = .init()
                $0.role = "entitlement_sync_worker"
            }
            #expect(try await world.restored("ann", proofs: try proof(world), setup: setup).outcome == "restored")
            try await body(ListingScene(world: world, setup: setup))
        }
    }

    /// As `with`, where ann's purchase is the App Store's.
    static func withAppStore(
        _ notifications: [String],
        customers: [String] = [],
        _ body: @Sendable (ListingScene) async throws -> Void
    ) async throws {
        try await with(appStore(notifications), customers: customers) { world in
            customers.isEmpty ? try world.appStore : try world.appStore.merging(world.revenueCat) { first, _ in first }
        } proof: {
            try $0.transactionProof("2000000100000009")
        } _: {
            try await body($0)
        }
    }

    var runs: RunRecords { RunRecords(pool: world.pool) }

    /// Asks for a run since some hours ago.
    func ask(sinceHours hours: Double = 1, isDry: Bool = false) async throws -> Int64 {
        let since = PostgresTimestamp(Date.now.addingTimeInterval(-hours * 3600))
        return try #require(try await runs.ask(.since, isDry: isDry, since: since, by: "test"))
    }

    /// Has a run since some hours ago done, and whatever follows from it.
    func run(sinceHours hours: Double = 1, isDry: Bool = false) async throws -> RunRecord {
        let id = try await ask(sinceHours: hours, isDry: isDry)
        try await world.work(setup)
        return try #require(try await runs.run(id))
    }

    /// How often a list was asked for.
    func listings(_ path: String) -> Int {
        world.simulator.requestReport().byPath.reduce(0) { $1.key.hasSuffix(path) ? $0 + $1.value : $0 }
    }

    static let history = "/app-store/inApps/v1/notifications/history"

    /// The App Store as the program asks it, behind a gate of the test's.
    func appStoreList(_ gate: RequestPermit, bundleID: String = "com.example.app") throws -> StoreList {
        var environment = try world.appStore
        environment["DATABASE_URL"] = world.database.url
        let config = try Config.load(environment: environment)
        let settings = try StoreSettings(config)
        let proofs = AppStoreProofs(roots: settings.transactionRoots, expected: .init(bundleID: "com.example.app"))
        let client = AppStoreClient(
            configuration: try #require(settings.appStore.first),
            proofs: proofs,
            http: HTTPClient(transport: world.transport, target: "app_store"),
            gate: { _, _ in gate },
            logger: .quiet
        )
        let notifications = AppStoreNotifications(proofs: proofs, bundleID: bundleID, appID: nil)
        return .notifications(client, understood: notifications, in: .production, logger: .quiet)
    }
}
