import Entitlements
import Foundation
import HTTPTypes
import Postgres
import Queue
import Runs
import SignedTokens
import StoreClients
import StoreEvents
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// Two store apps over one user base: what is known of one says nothing of the other.
@Suite struct StoreAppsTests {
    private static let line =
        "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly"
    private static let other =
        "original: \"2000000100000051\", transaction: \"2000000100000059\", product: premium_monthly"

    // MARK: The App Store

    @Test func `A proof of the second app restores, and its purchase is read in its app alone`() async throws {
        try await StoreAppsScene.with(appStore: ("\(Self.line), expires: +20d", "\(Self.other), expires: +20d")) {
            scene in
            let world = scene.world
            try await world.add("alice")
            let setup = try scene.asking(.appStore)
            let proof = try scene.second.transactionProof("2000000100000059")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            #expect(try await scene.apps() == [StoreAppsScene.secondApp])
            #expect(try await world.reconciled("alice", setup: setup).outcome == "unchanged")
            #expect(world.requests("/app-store") == 0, "the first app's credentials have no part in it")
            #expect(scene.second.requests("/subscriptions/") == 2)
            #expect(try await scene.explained("alice").contains { $0.contains(", \(StoreAppsScene.secondApp))") })
            let first = try world.transactionProof("2000000100000009")
            try await world.add("ben")
            #expect(try await world.restored("ben", proofs: first, setup: setup).outcome == "restored")
            #expect(try await scene.apps() == [StoreAppsScene.secondApp, "com.example.app"])
            let names = try await scene.credentials()
            #expect(names.contains("app_store.production.statuses.com.example.app"), "\(names)")
            #expect(names.contains("app_store.production.statuses.\(StoreAppsScene.secondApp)"))
        }
    }

    @Test func `A proof of an app that is not configured restores nothing`() async throws {
        try await StoreAppsScene.with(appStore: (nil, "\(Self.other), expires: +20d")) { scene in
            try await scene.world.add("alice")
            let foreign = try StoreSimulator(
                scenario: try Scenario(
                    yaml:
                        "app_store:\n  bundle_id: com.example.third\n  customers:\n    - id: alice\n      transactions:\n"
                        + "        - {\(Self.other), expires: +20d}\n"
                ),
                logger: .quiet
            )
            let text = try #require(try foreign.appStoreProof(ofTransaction: "2000000100000059"))
            let proof = scene.world.proof("app_store", "storekit_jws", text)
            let status = try await scene.world.restored("alice", proofs: proof, setup: scene.asking(.appStore))
            #expect(status.outcome == "nothing_to_restore")
            #expect(scene.second.requests("/subscriptions/") == 0)
        }
    }

    @Test func `A purchase of an app that is configured no more is not read, and nothing is taken for that`()
        async throws
    {
        try await StoreAppsScene.with(appStore: ("\(Self.line), expires: +20d", "\(Self.other), expires: +20d")) {
            scene in
            let world = scene.world
            try await world.add("alice")
            let proof = try scene.second.transactionProof("2000000100000059")
            #expect(
                try await world.restored("alice", proofs: proof, setup: scene.asking(.appStore)).outcome == "restored"
            )
            try await world.endPeriods()
            for _ in 1...2 {
                let status = try await world.reconciled("alice", setup: scene.asking(.appStore, apps: [0]))
                #expect(status.state == "dead" && status.outcome == "store_unavailable")
            }
            #expect(try await world.type(of: "alice") == "subscriber")
            #expect(world.requests("/subscriptions/") == 0)
        }
    }

    @Test func `A purchase whose app is not known is asked for in each, and a failure of one is no absence`()
        async throws
    {
        try await StoreAppsScene.with(appStore: (nil, "\(Self.other), expires: +20d")) { scene in
            let world = scene.world
            try await world.add("alice")
            let setup = try scene.asking(.appStore)
            let proof = try scene.second.transactionProof("2000000100000059")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            try await world.pool.query("UPDATE entitlement_sync.purchase SET store_app = NULL")
            #expect(try await world.reconciled("alice", setup: setup).outcome == "unchanged")
            #expect(world.requests("/subscriptions/") > 0, "the first app was asked, and does not know it")
            // The second app fails: that the first does not know the purchase is no word on it.
            try await world.endPeriods()
            try await world.pool.query("UPDATE entitlement_sync.purchase SET store_app = NULL")
            try await scene.second.inject(#"{"status":500}"#)
            let outcomes = try await world.unread("alice", setup)
            #expect(outcomes.allSatisfy { $0 == "store_unavailable" || $0 == "deferred" }, "\(outcomes)")
            #expect(try await world.type(of: "alice") == "subscriber")
        }
    }

    @Test func `A notification of each app leads to its purchase, one of another app is refused`() async throws {
        try await StoreAppsScene.with(appStore: ("\(Self.line), expires: +20d", "\(Self.other), expires: +20d")) {
            scene in
            let world = scene.world
            try await world.add("alice")
            let setup = try scene.asking(.appStore)
            let proof = try scene.second.transactionProof("2000000100000059")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            try await scene.second.steer(
                "/app-store/customers/alice",
                #"""
                {"transactions":[{"original":"2000000100000051","transaction":"2000000100000059",
                "product":"premium_monthly","state":"revoked","expires":"+20d"}]}
                """#
            )
            let bundles = ["com.example.app", StoreAppsScene.secondApp]
            let proofs = AppStoreProofs(roots: [try StoreSimulator.appStoreRoot], expected: .init(bundleIDs: bundles))
            let apps = bundles.map { AppStoreNotifications.App(bundleID: $0, appID: nil) }
            let sender = AppStoreNotifications(proofs: proofs, apps: apps)
            let request = AppStoreWebhookRequest(type: "REFUND", transaction: "2000000100000059")
            let body = Array(try scene.second.simulator.appStoreWebhook(request).body.utf8)
            let event = try await sender.event(body)
            #expect(event.purchases.allSatisfy { $0.app == StoreAppsScene.secondApp } && !event.purchases.isEmpty)
            let alone = AppStoreNotifications(proofs: proofs, apps: Array(apps.prefix(1)))
            await #expect(throws: AppStoreNotifications.Refusal.untrusted(.wrongBundle)) { try await alone.event(body) }
            #expect(try await world.inbox.accept([try Inbox.Event(event, body: body)], from: .appStore) == 1)
            try await world.work(setup)
            #expect(try await world.decisions(about: "alice").map(\.outcome) == ["restored", "demoted"])
            #expect(world.requests("/subscriptions/") == 0)
        }
    }

    // MARK: Google Play

    @Test func `A token is found in the second package, and acknowledged there`() async throws {
        let purchase = "token: tok-b, state: active, acknowledged: false"
        try await StoreAppsScene.with(googlePlay: ("token: tok-a, state: active", purchase)) { scene in
            let world = scene.world
            try await world.add("ann")
            let setup = try scene.asking(.googlePlay) { $0.retry.maxAttempts = 3 }
            let status = try await world.restored("ann", proofs: world.tokenProof("tok-b"), setup: setup)
            #expect(status.outcome == "restored")
            #expect(try await scene.apps() == [StoreAppsScene.secondApp])
            #expect(scene.second.requests(":acknowledge") == 1 && world.requests(":acknowledge") == 0)
            let asked = world.requests("/google-play")
            #expect(asked > 0, "a token does not say its package")
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
            #expect(world.requests("/google-play") == asked, "by now its package is known")
            let names = try await scene.credentials()
            #expect(
                names.isSuperset(of: [
                    "google_play.subscriptions.com.example.app",
                    "google_play.subscriptions.\(StoreAppsScene.secondApp)",
                ])
            )
        }
    }

    @Test func `A token that one package does not know, while the other can't be asked, is not absent`() async throws {
        try await StoreAppsScene.with(googlePlay: ("token: tok-a, state: active", "token: tok-b, state: active")) {
            scene in
            let world = scene.world
            try await world.add("ann")
            let setup = try scene.asking(.googlePlay)
            let proof = world.tokenProof("tok-b")
            try await scene.second.inject(#"{"status":503}"#)
            let failed = try await world.restored("ann", proofs: proof, setup: setup)
            #expect(failed.state == "dead" && failed.outcome == "store_unavailable", "not: nothing to restore")
            try await scene.second.heal()
            #expect(try await world.restored("ann", proofs: proof, setup: setup).outcome == "restored")
            try await world.endPeriods()
            try await world.pool.query("UPDATE entitlement_sync.purchase SET store_app = NULL")
            try await scene.second.inject(#"{"status":503}"#)
            let outcomes = try await world.unread("ann", setup)
            #expect(outcomes.allSatisfy { $0 == "store_unavailable" || $0 == "deferred" }, "\(outcomes)")
            #expect(try await world.type(of: "ann") == "subscriber")
            let unknown = try await world.restored(
                "ann",
                proofs: world.tokenProof("tok-c"),
                setup: scene.asking(.googlePlay, apps: [0])
            )
            #expect(unknown.outcome != "demoted")
        }
    }

    @Test func `An order number leads to the package that sold it, and does not tell in its time which it was`()
        async throws
    {
        let order = "GPA.5555-2222-3333-44444"
        let purchases = ("token: tok-a, state: active", "token: tok-b, state: active, order_id: \(order), account: bob")
        try await StoreAppsScene.with(googlePlay: purchases) { scene in
            let world = scene.world
            for user in ["ann", "bob"] { try await world.add(user) }
            let setup = try scene.asking(.googlePlay)
            func requests() -> Int { world.requests("/google-play") + scene.second.requests("/google-play") }
            func ask(_ user: String, _ id: String) async throws -> String? {
                let proof = world.proof("google_play", "order_id", id)
                return try await world.restored(user, proofs: proof, setup: setup).outcome
            }
            // The access tokens are for all.
            _ = try await ask("ann", "GPA.1111-2222-3333-44444")
            let start = requests()
            #expect(try await ask("ann", "GPA.9999-2222-3333-44444") == "nothing_to_restore")
            let middle = requests()
            #expect(try await ask("ann", order) == "nothing_to_restore", "it is bob's")
            #expect(requests() - middle == middle - start)
            #expect(try await ask("bob", order) == "restored")
            #expect(try await scene.apps() == [StoreAppsScene.secondApp])
        }
    }

    @Test func `A push names its package, and a message's number is its package's`() throws {
        let scenario = try Scenario(yaml: "google_play:\n  package: \(StoreAppsScene.secondApp)\n")
        let simulator = try StoreSimulator(scenario: scenario, logger: .quiet)
        let post = try simulator.googlePlayWebhook(.subscription(kind: 13, token: "tok-b"), messageID: "7")
        let body = Array(post.body.utf8)
        let both: Set = ["com.example.app", StoreAppsScene.secondApp]
        let event = try PlayNotification.read(body, packages: both, isOnly: false)
        #expect(event.purchases.map(\.app) == [StoreAppsScene.secondApp])
        #expect(event.id == "\(StoreAppsScene.secondApp)/7")
        let foreign = try PlayNotification.read(body, packages: ["com.example.app"], isOnly: false)
        #expect(foreign.kind == "foreign_package" && foreign.purchases.isEmpty)
        let only = try PlayNotification.read(body, package: StoreAppsScene.secondApp)
        #expect(only.id == "7" && only.purchases.map(\.app) == [nil])
    }

    @Test func `A run reads what the stores list of each app, and one that fails takes no list from the other`()
        async throws
    {
        try await StoreAppsScene.with { scene in
            let setup = try scene.asking(.appStore, .googlePlay) {
                $0.plans = .init()
                $0.role = "entitlement_sync_worker"
            }
            let runs = ListingScene(world: scene.world, setup: setup)
            let run = try await runs.run()
            #expect(run.state == .done && run.errors.isEmpty && run.isListed, "\(run)")
            let names = ["com.example.app", StoreAppsScene.secondApp].flatMap { app in
                ["app_store", "app_store_sandbox", "google_play"].map { "\($0).\(app)" }
            }
            #expect(Set(run.listed.keys) == Set(names) && run.listed.values.allSatisfy(\.complete))
            for world in [scene.world, scene.second] {
                #expect(world.requests("/notifications/history") == 2 && world.requests("voided") == 1)
            }
            try await scene.second.inject(#"{"status":500}"#)
            let half = try await runs.run()
            #expect(half.listed["google_play.com.example.app"]?.complete == true)
            #expect(half.listed["google_play.\(StoreAppsScene.secondApp)"]?.complete != true && !half.isListed)
        }
    }

    // MARK: RevenueCat

    @Test func `What a user has is what both projects list`() async throws {
        let line =
            "subscriptions: [{state: expired, id: sub_first, store_subscription_identifier: \"2000000100000081\"}]"
        let customers = (["{id: ann, \(line)}"], ["{id: ann, state: active}", "{id: bob, state: active}"])
        try await StoreAppsScene.with(customers: customers) { scene in
            let world = scene.world
            for user in ["ann", "bob"] { try await world.add(user) }
            let setup = try scene.asking(.revenueCat)
            #expect(try await world.restored("ann", setup: setup).outcome == "restored")
            #expect(try await world.restored("bob", setup: setup).outcome == "restored")
            #expect(Set(try await scene.apps()) == ["proj0a1b2c3d", StoreAppsScene.secondProject])
            #expect(try await scene.explained("bob").contains { $0.contains(", \(StoreAppsScene.secondProject))") })
            let names = try await scene.credentials()
            #expect(names == ["revenuecat.proj0a1b2c3d", "revenuecat.\(StoreAppsScene.secondProject)"])
            try await scene.second.change("bob", #"{"state":"expired"}"#)
            #expect(try await world.reconciled("bob", setup: setup).outcome == "demoted")
        }
    }

    @Test func `While the second project is unavailable nobody is demoted`() async throws {
        try await StoreAppsScene.with(customers: (["{id: zoe, state: active}"], ["{id: bob, state: active}"])) {
            scene in
            let world = scene.world
            try await world.add("bob")
            try await world.add("eve")
            let setup = try scene.asking(.revenueCat)
            #expect(try await world.restored("bob", setup: setup).outcome == "restored")
            try await world.endPeriods()
            try await scene.second.inject(#"{"status":500}"#)
            let outcomes = try await world.unread("bob", setup)
            #expect(outcomes.allSatisfy { $0 == "store_unavailable" || $0 == "deferred" }, "\(outcomes)")
            #expect(try await world.type(of: "bob") == "subscriber")
            let status = try await world.restored("eve", setup: setup)
            #expect(status.outcome == "store_unavailable", "the other project's silence is no answer")
        }
    }

    @Test func `The silence of the projects that are left says nothing of another one's purchase`() async throws {
        try await StoreAppsScene.with(customers: (["{id: zoe, state: active}"], ["{id: bob, state: active}"])) {
            scene in
            let world = scene.world
            try await world.add("bob")
            #expect(try await world.restored("bob", setup: scene.asking(.revenueCat)).outcome == "restored")
            try await world.endPeriods()
            let setup = try scene.asking(.revenueCat, apps: [0]) { $0.decision.absenceMargin = .zero }
            for _ in 1...3 { #expect(try await world.reconciled("bob", setup: setup).outcome == "deferred") }
            #expect(try await world.type(of: "bob") == "subscriber")
        }
    }

    @Test
    func `Another key that knows no customer of its project pauses demotions, though the other project knows its own`()
        async throws
    {
        let customers = ["ann", "bob"].map { "{id: \($0), subscriptions: [{state: active, ends: +20d}]}" }
        try await StoreAppsScene.with(customers: ([customers[0]], [customers[1]])) { scene in
            let world = scene.world
            let setup = try scene.asking(.revenueCat)
            for user in ["ann", "bob"] {
                try await world.add(user)
                #expect(try await world.restored(user, setup: setup).outcome == "restored")
            }
            try await world.working(setup) {
                try await world.waitUntil(
                    "SELECT (count(*) = 2)::integer::bigint FROM entitlement_sync.store_credential WHERE digest IS NOT NULL"
                )
            }
            try await scene.second.change("bob", #"{"state":"none"}"#)
            try await world.working(scene.asking(.revenueCat, secondKey: "sk_other")) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.control WHERE name = 'demotions' AND paused"
                )
            }
            #expect(try await world.alarms() == ["credentials_unknown.revenuecat.\(StoreAppsScene.secondProject)"])
            let states = try await world.texts(
                "SELECT concat_ws(' ', c.store, c.state) FROM entitlement_sync.store_credential AS c ORDER BY 1"
            )
            #expect(
                states == ["revenuecat.proj0a1b2c3d confirmed", "revenuecat.\(StoreAppsScene.secondProject) doubted"]
            )
        }
    }

    @Test func `One store app has the names of limits and events that it always had`() async throws {
        try await StoreAppsScene.with(
            customers: (["{id: ann, state: active}"], []),
            googlePlay: ("token: tok-a, state: active", nil)
        ) { scene in
            try await scene.world.add("ann")
            let setup = try scene.asking(.revenueCat, .googlePlay, apps: [0])
            let proof = scene.world.tokenProof("tok-a")
            #expect(try await scene.world.restored("ann", proofs: proof, setup: setup).outcome == "restored")
            let names = try await scene.credentials()
            #expect(names.contains("revenuecat") && names.contains("google_play.subscriptions"), "\(names)")
            #expect(!names.contains { $0.contains("com.example") })
        }
    }

    @Test func `A webhook is the project's whose secret it is signed with`() throws {
        let simulator = try StoreSimulator(scenario: try Scenario(yaml: "rate_limit_per_minute: 0"), logger: .quiet)
        let senders = ["hush-a", "hush-b"].compactMap { RevenueCatWebhooks(authorization: nil, secret: $0) }
        let event = #"{"id":"e1","type":"RENEWAL","app_user_id":"ann"}"#
        for (secret, isTaken) in [("hush-a", true), ("hush-b", true), ("hush-c", false)] {
            let post = try simulator.revenueCatWebhook(event, secret: secret)
            var fields = HTTPFields()
            for (name, value) in post.headers { fields[try #require(HTTPField.Name(name))] = value }
            let candidates = try senders.candidates(fields)
            #expect(!candidates.areShownByHeaders)
            if isTaken {
                try candidates.check(Array(post.body.utf8))
            } else {
                #expect(throws: WebhookRefusal.wrongSignature) { try candidates.check(Array(post.body.utf8)) }
            }
        }
    }
}

extension World {
    /// The outcomes of three reconciles in a row, with the clock of absences at rest.
    fileprivate func unread(_ user: String, _ setup: WorkerSetup) async throws -> [String?] {
        var setup = setup
        setup.retry.maxAttempts = 2
        setup.decision.absenceMargin = .zero
        setup.decision.absenceMarginGooglePlay = .zero
        var outcomes: [String?] = []
        for _ in 1...3 { outcomes.append(try await reconciled(user, setup: setup).outcome) }
        return outcomes
    }
}
