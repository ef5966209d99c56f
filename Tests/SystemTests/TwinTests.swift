import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// Users whose ids Unicode takes for one, and PostgreSQL for two.
@Suite struct TwinTests {
    private static let composed = "caf\u{e9}"
    private static let decomposed = "cafe\u{301}"

    /// Batches in which both of a pair are, so that one could be taken for the other.
    @Test(arguments: ["active", "banned"])
    func `Of two users whose ids look alike only the one who pays gets access`(_ status: String) async throws {
        let payers = (1...40).map { "\(Self.decomposed)-\($0)" }
        let others = (1...40).map { "\(Self.composed)-\($0)" }
        let customers = payers.map { "{id: \"\($0)\", state: active}" } + others.map { "{id: \"\($0)\", state: none}" }
        try await World.with(customers: customers) { world in
            for (payer, other) in zip(payers, others) {
                try await world.add(payer)
                try await world.add(other, status: status)
                for user in [payer, other] {
                    try await world.addAssets(2, of: user, frozenFor: ["subscription_lapsed"])
                }
            }
            var jobs: [(payer: UUID, other: UUID)] = []
            for (payer, other) in zip(payers, others) {
                jobs.append((try await world.restore(payer), try await world.restore(other)))
            }
            try await world.work()
            for (payer, other) in zip(payers, others) {
                #expect(try await world.type(of: payer) == "subscriber")
                #expect(try await world.type(of: other) == "free")
                #expect(try await world.assets(of: payer, frozenFor: []) == 2)
                #expect(try await world.assets(of: other, frozenFor: ["subscription_lapsed"]) == 2)
            }
            for job in jobs {
                #expect(try await world.status(job.payer).outcome == "restored")
                let told = try await world.status(job.other).outcome
                #expect(told == (status == "active" ? "nothing_to_restore" : "not_eligible"))
            }
        }
    }

    @Test(arguments: [[composed, decomposed], [decomposed, composed]])
    func `An event that names both spellings is about the user whom one of them is`(_ names: [String]) async throws {
        try await World.with { world in
            try await world.add(Self.composed)
            try await world.deliver(
                #"{"id":"e1","type":"EXPIRATION","app_user_id":"\#(names[0])","aliases":["\#(names[0])","\#(names[1])"]}"#
            )
            try await world.work()
            #expect(
                try await world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.decision_log
                     WHERE user_id = \(Self.composed) COLLATE "C"
                    """
                ) == 1
            )
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox WHERE state = 'done'") == 1)
        }
    }

    @Test func `Purchases whose identifiers look alike are two purchases`() {
        let names = [Self.composed, Self.decomposed]
        let keys = names.map { PurchaseIdentifierKey(value: $0, store: "app_store", environment: "production") }
        #expect(Set(keys).count == 2)
        #expect(keys[1] < keys[0], "in the order of the bytes")
        let identifiers = keys.map {
            PurchaseIdentifier(value: $0.value, store: $0.store, environment: $0.environment, kind: "store_id")
        }
        #expect(Set(identifiers).count == 2)
        #expect(Set(["\u{212A}", "K"].map(ExactText.init)).count == 2, "a sign that only looks like ASCII")
    }

    @Test func `A restore is not shown to a caller whose id merely looks like its user's`() async throws {
        try await World.with { world in
            try await world.add(Self.composed)
            let requests = AppRequests(pool: world.pool)
            #expect(try await requests.isUser(Self.composed, Self.composed))
            #expect(try await !requests.isUser(Self.composed, Self.decomposed))
        }
    }
}
