import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// Several items of one reading on one record of the ledger.
@Suite struct SharedRowTests {
    private static let new =
        "{id: sub-new, state: active, store_subscription_identifier: \"2000000100000009\", auto_renewal_status: will_not_renew}"
    private static let old =
        "{id: sub-old, state: expired, store_subscription_identifier: \"2000000100000001\"}"

    @Test(arguments: [[new, old], [old, new]])
    func `An old subscription object never stands before the running one, whatever the order of the list`(
        objects: [String]
    ) async throws {
        let customer = "{id: alice, subscriptions: [\(objects.joined(separator: ", "))]}"
        try await World.with(customers: [customer], scenario: WitnessTests.appStore) { world in
            try await world.add("alice")
            try await world.addProducts()
            let both = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("alice", proofs: proof, setup: both).outcome == "restored")
            // From here on both objects are one record.
            for _ in 1...2 { #expect(try await world.reconciled("alice", setup: both).outcome == "unchanged") }
            let row = try #require(
                try await world.pool.query(
                    """
                    SELECT count(*) OVER (), p.status, p.gives_access, p.period_ends_at > now()
                      FROM entitlement_sync.purchase AS p WHERE p.merged_into IS NULL
                    """
                ).first?.decode(Int64.self, String.self, Bool.self, Bool.self)
            )
            #expect(row.0 == 1 && row.1 == "active" && row.2 && row.3)
            // Silence about a running period is no absence, and one silence about a period that is over is a first one:
            // nothing has said that the running object ended.
            try await world.change("alice", #"{"state":"none"}"#)
            let alone = world.asking(world.revenueCat) { $0.retry.maxAttempts = 2 }
            #expect(try await world.reconciled("alice", setup: alone).outcome == "store_unavailable")
            try await world.pool.query(
                "UPDATE entitlement_sync.purchase SET period_ends_at = now() - interval '3 days'"
            )
            #expect(try await world.reconciled("alice", setup: alone).outcome == "deferred")
            #expect(try await world.decisions(about: "alice").last?.rule == "first_absence")
            #expect(try await world.type(of: "alice") == "subscriber")
        }
    }
}
