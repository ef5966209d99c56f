import Entitlements
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// Purchase tokens of which Google Play says no more: only for what is over is that an absence.
@Suite struct GoneTokenTests {
    /// What Google answers, and the alarms that it raises.
    struct Answer: Sendable {
        var status: Int
        var word: String
        var alarms = ["unknown_to_store.google_play"]
    }

    static let answers = [
        Answer(status: 410, word: "purchaseTokenNoLongerValid"),
        Answer(status: 410, word: "subscriptionPurchaseNoLongerAvailable"),
        Answer(status: 404, word: "purchaseTokenNotFound"),
        Answer(status: 400, word: "invalid"),
        Answer(
            status: 400,
            word: "purchaseTokenDoesNotMatchPackageName",
            alarms: ["credentials.google_play"]
        ),
    ]

    /// Runs a test with a subscriber whose only purchase is behind `tok-a`.
    private static func subscriber(
        _ purchase: String,
        _ body: @Sendable (World, WorkerSetup) async throws -> Void
    ) async throws {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-a, \(purchase)", "token: tok-b, state: active")
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.googlePlay) { $0.retry.maxAttempts = 2 }
            let proof = world.tokenProof("tok-a")
            #expect(try await world.restored("ann", proofs: proof, setup: setup).outcome == "restored")
            try await body(world, setup)
        }
    }

    /// Lets Google answer so about `tok-a` as a subscription and as a one-time product.
    private static func forget(_ answer: Answer, _ world: World) async throws {
        for endpoint in ["subscription", "product"] {
            try await world.inject(
                #"{"endpoint":"google_play.\#(endpoint)","customer":"tok-a","status":\#(answer.status),"#
                    + #""error_type":"\#(answer.word)"}"#
            )
        }
    }

    /// Lets the margin of a first absence be over.
    private static func letDaysPass(_ world: World) async throws {
        try await world.pool.query(
            "UPDATE entitlement_sync.user_sync SET absent_since = absent_since - interval '49 hours'"
        )
    }

    @Test(arguments: ["kind: one_time, state: active", "state: active, expires: +20d"], answers)
    func `What was never refunded, and what is paid for still, is never absent`(
        _ purchase: String,
        _ answer: Answer
    ) async throws {
        try await Self.subscriber(purchase) { world, setup in
            try await Self.forget(answer, world)
            for _ in 1...2 {
                #expect(try await world.reconciled("ann", setup: setup).outcome == "store_unavailable")
                try await Self.letDaysPass(world)
            }
            let shown = try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup)
            #expect(shown.outcome == "store_unavailable")
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await world.alarms() == answer.alarms)
            // Google tells of it again.
            try await world.heal()
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
        }
    }

    @Test(arguments: answers.prefix(3))
    func `Once the period is over, a token that is gone is an absence, and two demote`(_ answer: Answer) async throws {
        try await Self.subscriber("state: active, expires: +2d") { world, setup in
            try await world.endPeriods()
            try await Self.forget(answer, world)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "deferred", "one absence demotes nobody")
            #expect(try await world.decisions(about: "ann").last?.rule == "first_absence")
            try await Self.letDaysPass(world)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
            #expect(try await world.decisions(about: "ann").last?.rule == "absence_confirmed")
        }
    }

    @Test(arguments: answers.prefix(3))
    func `A token that is gone takes nothing from the user's other purchases`(_ answer: Answer) async throws {
        try await Self.subscriber("state: active, expires: +2d") { world, setup in
            let other = try await world.restored("ann", proofs: world.tokenProof("tok-b"), setup: setup)
            #expect(other.outcome == "already_subscriber")
            try await Self.forget(answer, world)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
            try await world.endPeriods()
            for _ in 1...2 {
                #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
                try await Self.letDaysPass(world)
            }
            #expect(try await world.alarms().isEmpty)
        }
    }
}
