import Entitlements
import Foundation
import Postgres
import Queue
import StoreClients
@testable import StoreEvents
import StoreSimulator
import TestSupport
import Testing
import UserRequests
import X509

/// Events that are the first word of a purchase: its store is asked, and its owner has access without a tap.
@Suite struct FirstWordTests {
    static let uuid = "6f1c0e7a-0000-4000-8000-00000000a001"

    // MARK: The App Store

    @Test(arguments: [uuid, uuid.uppercased()])
    func `SUBSCRIBED that names the user by the account token gives access without a proof`(_ id: String) async throws {
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"70001\", product: premium_monthly, expires: +30d, account_token: \(Self.uuid)"
        )
        try await World.with(scenario: scenario) { world in
            try await world.add(id)
            try await world.addProducts()
            try await world.notify(.init(type: "SUBSCRIBED", subtype: "INITIAL_BUY", transaction: "70001"))
            try await world.work(try world.asking(world.appStore))
            #expect(try await world.decisions(about: id).map(\.outcome) == ["promoted"])
            #expect(try await world.owner(of: "70001") == id)
            let asked = world.simulator.requestReport().byPath.filter { $0.key.contains("/inApps/v1/subscriptions/") }
            #expect(!asked.isEmpty)
            #expect(try await world.eventStates() == ["done"])
        }
    }

    @Test(arguments: [("lifetime", "non_consumable"), ("pass30", "non_renewing")])
    func `What does not renew is found by its first notification as well`(
        _ product: String,
        _ type: String
    ) async throws {
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"70002\", product: \(product), type: \(type), purchased: -1d, account_token: \(Self.uuid)"
        )
        try await World.with(scenario: scenario) { world in
            try await world.add(Self.uuid)
            try await world.addProducts()
            try await world.notify(.init(type: "ONE_TIME_CHARGE", transaction: "70002"))
            try await world.work(try world.asking(world.appStore))
            #expect(try await world.type(of: Self.uuid) == "subscriber")
        }
    }

    @Test func `A line that ended long ago and begins again outside the app gives access by its notification`()
        async throws
    {
        let line = #""original":"70003","product":"premium_monthly""#
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"70003\", product: premium_monthly, expires: +20d"
        )
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            #expect(
                try await world.restored("ann", proofs: world.transactionProof("70003"), setup: setup).outcome
                    == "restored"
            )
            let path = "/app-store/customers/alice"
            try await world.steer(path, #"{"transactions":[{\#(line),"state":"expired","expires":"-90d"}]}"#)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
            try await world.steer(
                path,
                #"{"transactions":[{\#(line),"transaction":"70009","state":"active","expires":"+30d"}]}"#
            )
            try await world.notify(.init(type: "SUBSCRIBED", subtype: "RESUBSCRIBE", transaction: "70009"))
            try await world.work(setup)
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `A notification of a purchase that nothing leads to a user by gives access to none, and is parked`()
        async throws
    {
        let scenario = AppStoreRestoreTests.scenario("original: \"70004\", product: premium_monthly, expires: +30d")
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            try await world.notify(.init(type: "SUBSCRIBED", transaction: "70004"))
            let setup = try world.asking(world.appStore)
            for _ in 1...7 {
                try await world.work(setup)
                try await world.makeEventsDue()
            }
            #expect(try await world.eventStates() == ["parked"])
            #expect(try await world.type(of: "ann") == "free")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.purchase") == 0)
        }
    }

    // MARK: Google Play

    static let firstWords: [(String, GooglePlayNotification)] = [
        ("token: tok-new, state: active, acknowledged: false, account: ann", .subscription(kind: 4, token: "tok-new")),
        (
            "token: tok-new, kind: one_time, state: active, acknowledged: false, account: ann",
            .oneTime(kind: 1, token: "tok-new")
        ),
        (
            "token: tok-new, state: active, acknowledged: false, out_of_app: {account: ann}",
            .subscription(kind: 4, token: "tok-new")
        ),
        (
            "token: tok-new, state: active, acknowledged: false, account: ann, order_id: GPA.1111-2222",
            .raw(
                #"{"version":"1.0","packageName":"com.example.app","eventTimeMillis":"1788000000000","#
                    + #""voidedPurchaseNotification":{"orderId":"GPA.1111-2222","productType":1,"refundType":2}}"#
            )
        ),
    ]

    @Test(arguments: firstWords)
    func `Google's first word of a purchase leads to its user, who has access and whose sale is acknowledged once`(
        _ purchase: String,
        _ notification: GooglePlayNotification
    ) async throws {
        try await World.with(scenario: GooglePlayRestoreTests.scenario(purchase)) { world in
            try await world.add("ann")
            try await world.addProducts()
            try await world.notify(notification)
            let setup = world.asking(world.googlePlay)
            try await world.work(setup)
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["promoted"])
            #expect(try await world.owner(of: "tok-new") == "ann")
            #expect(world.acknowledgements == 1)
            #expect(try await world.eventStates() == ["done"])
            // Pub/Sub delivers again, and the user is read again: the sale is kept already.
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
            #expect(world.acknowledgements == 1)
        }
    }

    @Test func `20: The first word of a purchase leads to its user by a derivation of the user's id`() async throws {
        let account = GooglePlayRestoreTests.hmac("former", "ann")
        let scenario = GooglePlayRestoreTests.scenario(
            "token: tok-new, state: active, acknowledged: false, account: \(account)"
        )
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            try await world.notify(.subscription(kind: 4, token: "tok-new"))
            let setup = world.asking(world.googlePlay, ["ACCOUNT_ID_KEYS": "present,former"])
            try await world.working(setup) {
                try await world.waitUntil("SELECT count(*) FROM users WHERE type = 'subscriber'")
                try await world.waitUntil("SELECT count(*) FROM entitlement_sync.inbox WHERE state = 'done'")
            }
            #expect(try await world.owner(of: "tok-new") == "ann")
        }
    }

    @Test(arguments: [[4, 13], [13, 4]])
    func `41: A plan that is changed outside the app keeps its user, the new sale is acknowledged, and no look demotes`(
        _ order: [Int]
    ) async throws {
        try await World.with(scenario: GooglePlayRestoreTests.scenario("token: tok-1, state: active")) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            let shown = try await world.restored("ann", proofs: world.tokenProof("tok-1"), setup: setup)
            #expect(shown.outcome == "restored")
            let acknowledged = world.acknowledgements
            try await world.steer(
                "/google-play/purchases/tok-2",
                #"{"state":"active","linked":"tok-1","acknowledged":false,"expires":"+30d"}"#
            )
            for kind in order {
                try await world.notify(.subscription(kind: kind, token: kind == 4 ? "tok-2" : "tok-1"))
            }
            try await world.work(setup)
            #expect(try await world.owner(of: "tok-2") == "ann")
            #expect(world.acknowledgements == acknowledged + 1)
            try await world.pool.query(
                "UPDATE entitlement_sync.user_sync SET absent_since = absent_since - interval '49 hours'"
            )
            for _ in 1...2 { #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged") }
            #expect(try await world.type(of: "ann") == "subscriber")
            let rows = try await world.number(
                "SELECT count(*) FROM entitlement_sync.purchase WHERE merged_into IS NULL"
            )
            #expect(rows == 1)
        }
    }

    @Test func `40: A purchase made in Play follows the expired one that Google links it to`() async throws {
        try await World.with(scenario: GooglePlayRestoreTests.scenario("token: old, state: active")) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            #expect(
                try await world.restored("ann", proofs: world.tokenProof("old"), setup: setup).outcome == "restored"
            )
            try await world.steer("/google-play/purchases/old", #"{"state":"expired","expires":"-70d"}"#)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
            try await world.steer(
                "/google-play/purchases/again",
                #"{"state":"active","acknowledged":false,"out_of_app":{"expired_token":"old"}}"#
            )
            let acknowledged = world.acknowledgements
            try await world.notify(.subscription(kind: 4, token: "again"))
            try await world.work(setup)
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await world.owner(of: "again") == "ann")
            #expect(world.acknowledgements == acknowledged + 1)
        }
    }

    @Test func `A voided order is followed by its number where the token is not known`() async throws {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-a, state: active, order_id: GPA.3333")
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            #expect(
                try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup).outcome == "restored"
            )
            try await world.steer(
                "/google-play/purchases/tok-a",
                #"{"state":"expired","expires":"-1d","order_id":"GPA.3333"}"#
            )
            try await world.notify(.voided(token: "tok-other", order: "GPA.3333..4", productKind: 1))
            try await world.work(setup)
            #expect(try await world.eventStates() == ["done"])
            #expect(try await world.type(of: "ann") == "free")
        }
    }

    @Test func `What an event tells of another user's purchase gives nothing to the user whom it names`() async throws {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-b, state: active, account: bob")
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            try await world.accept([
                StoreEvent(
                    source: .googlePlay,
                    id: "e",
                    kind: "subscription.4",
                    users: ["ann"],
                    purchases: [.init(store: "google_play", value: "tok-b")]
                )
            ])
            try await world.work(world.asking(world.googlePlay))
            #expect(try await world.type(of: "ann") == "free")
            #expect(try await world.tickets(of: "ann").isEmpty)
        }
    }

    @Test func `A store in trouble loses no first word: it is asked again, and no try is used up`() async throws {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-new, state: active, account: ann")
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            try await world.notify(.subscription(kind: 4, token: "tok-new"))
            try await world.inject(#"{"endpoint":"google_play.subscription","status":503}"#)
            for _ in 1...8 {
                try await world.work(setup)
                try await world.makeEventsDue()
            }
            #expect(try await world.eventStates() == ["waiting"])
            try await world.heal()
            try await world.working(setup) {
                try await world.waitUntil("SELECT count(*) FROM users WHERE type = 'subscriber'")
            }
            #expect(try await world.eventStates() == ["done"])
        }
    }

    @Test func `A storm of events about one purchase asks its store a few times`() async throws {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-new, state: active, account: ann")
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            for _ in 1...40 { try await world.notify(.subscription(kind: 4, token: "tok-new")) }
            try await world.work(world.asking(world.googlePlay))
            #expect(try await world.type(of: "ann") == "subscriber")
            let asked = world.simulator.requestReport().byPath.filter { $0.key.contains("/tokens/") }.map(\.value)
            #expect(asked.reduce(0, +) < 12)
        }
    }

    @Test func `Observe mode finds the owner and records what it would do, and no more`() async throws {
        let scenario = GooglePlayRestoreTests.scenario(
            "token: tok-new, state: active, acknowledged: false, account: ann"
        )
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            try await world.notify(.subscription(kind: 4, token: "tok-new"))
            try await world.work(
                world.asking(world.googlePlay, ["MODE": "observe"]) { $0.decision.mode = .observe }
            )
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["promoted"])
            #expect(try await world.type(of: "ann") == "free")
            #expect(world.acknowledgements == 0)
        }
    }

    // MARK: RevenueCat's customers without a name

    @Test
    func `9, 121: An event of an anonymous customer waits, and is read again once the customer has our user's name`()
        async throws
    {
        let anonymous = "$RCAnonymousID:aa"
        try await World.with(customers: ["{id: \"\(anonymous)\", state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").outcome == "nothing_to_restore")
            try await world.deliver(
                """
                {"id":"e1","type":"INITIAL_PURCHASE","app_user_id":"\(anonymous)",
                "original_app_user_id":"\(anonymous)","aliases":["\(anonymous)"]}
                """
            )
            try await world.work()
            #expect(try await world.state(ofEvent: "e1") == "waiting")
            try await world.change(anonymous, #"{"state":"active","aliases":["ann"]}"#)
            try await world.makeEventsDue()
            try await world.work()
            #expect(try await world.state(ofEvent: "e1") == "done")
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `An anonymous customer's purchase that our records know leads to its owner at once`() async throws {
        try await World.with(
            customers: ["{id: ann, subscriptions: [{state: active, store_subscription_identifier: \"70007\"}]}"]
        ) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").outcome == "restored")
            let decided = try await world.decisions(about: "ann").count
            try await world.deliver(
                """
                {"id":"e1","type":"RENEWAL","app_user_id":"$RCAnonymousID:bb","aliases":[],"store":"APP_STORE",
                "environment":"PRODUCTION","original_transaction_id":"70007","transaction_id":"70008"}
                """
            )
            try await world.work()
            #expect(try await world.state(ofEvent: "e1") == "done")
            #expect(try await world.decisions(about: "ann").count == decided + 1)
        }
    }
}

extension World {
    /// Delivers a notification of the App Store's.
    func notify(_ request: AppStoreWebhookRequest) async throws {
        let proofs = AppStoreProofs(
            roots: [try StoreSimulator.appStoreRoot],
            expected: .init(bundleID: "com.example.app")
        )
        let sender = AppStoreNotifications(proofs: proofs, bundleID: "com.example.app", appID: nil)
        let body = Array(try simulator.appStoreWebhook(request).body.utf8)
        try await inbox.accept([try Inbox.Event(try await sender.event(body), body: body)], from: .appStore)
    }

    /// Delivers a notification of Google Play's.
    func notify(_ notification: GooglePlayNotification) async throws {
        let body = Array(try simulator.googlePlayWebhook(notification).body.utf8)
        let event = try PlayNotification.read(body, package: "com.example.app")
        try await inbox.accept([try Inbox.Event(event, body: body)], from: .googlePlay)
    }

    /// How often Google was told that a sale is kept.
    var acknowledgements: Int {
        simulator.requestReport().byPath.filter { $0.key.contains(":acknowledge") }.map(\.value).reduce(0, +)
    }

    /// The states of all events, in the order in which they came.
    func eventStates() async throws -> [String] {
        try await texts("SELECT i.state FROM entitlement_sync.inbox AS i ORDER BY i.id")
    }
}
