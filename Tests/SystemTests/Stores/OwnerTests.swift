import Entitlements
import Foundation
import HTTPTypes
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// Whose a purchase is by all that is known: RevenueCat, the app's ids, proofs and the ledger.
@Suite struct OwnerTests {
    @Test func `4: what RevenueCat holds for another user is not had by a proof`() async throws {
        try await World.with(
            customers: [WitnessTests.holding("owner"), "{id: claimant, state: none}"],
            scenario: WitnessTests.appStore
        ) { world in
            for user in ["owner", "claimant"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            let status = try await world.restored(
                "claimant",
                proofs: world.transactionProof("2000000100000009"),
                setup: setup
            )
            #expect(status.outcome == "store_account_mismatch")
            #expect(
                try await world.tickets(of: "claimant") == [
                    TicketRow(kind: "owner_mismatch", owner: "owner", state: "new", touches: 0)
                ]
            )
            #expect(try await world.type(of: "claimant") == "free")
            #expect(try await world.type(of: "owner") == "subscriber", "whose it is was found, and had not asked")
        }
    }

    @Test(arguments: [true, false])
    func `7: what an anonymous customer holds becomes the claimant's by a verified proof`(_ asksStore: Bool)
        async throws
    {
        let anonymous = "$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0"
        try await World.with(
            customers: [WitnessTests.holding(anonymous), "{id: claimant, state: none}"],
            scenario: WitnessTests.appStore
        ) { world in
            try await world.add("claimant")
            try await world.addProducts()
            var stores = try world.appStore
            // Without credentials of the App Store's API proofs are verified all the same.
            if !asksStore {
                stores = stores.filter {
                    !["ISSUER_ID", "KEY_ID", "PRIVATE_KEY"].map { "APP_STORE_" + $0 }.contains($0.key)
                }
            }
            let setup = world.asking(world.revenueCat, stores)
            let status = try await world.restored(
                "claimant",
                proofs: world.transactionProof("2000000100000009"),
                setup: setup
            )
            #expect(status.outcome == "restored")
            #expect(try await world.owner(of: "2000000100000009") == "claimant")
        }
    }

    @Test func `8: what an anonymous customer holds who is another of our users is a mismatch`() async throws {
        let anonymous = "$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0"
        try await World.with(
            customers: [WitnessTests.holding(anonymous, more: "aliases: [owner], "), "{id: claimant, state: none}"],
            scenario: WitnessTests.appStore
        ) { world in
            for user in ["owner", "claimant"] { try await world.add(user) }
            try await world.addProducts()
            let status = try await world.restored(
                "claimant",
                proofs: world.transactionProof("2000000100000009"),
                setup: world.asking(world.revenueCat, world.appStore)
            )
            #expect(status.outcome == "store_account_mismatch")
            #expect(try await world.tickets(of: "claimant").map(\.owner) == ["owner"])
        }
    }

    @Test(arguments: ["free", "subscriber"])
    func `21: RevenueCat and the app's id name different users: everything stays, and people decide`(
        _ type: String
    ) async throws {
        let other = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly,"
                + " expires: +20d, account_token: \(other)"
        )
        try await World.with(customers: [WitnessTests.holding("alice")], scenario: scenario) { world in
            try await world.add("alice", type == "free" ? .free : .subscriber)
            try await world.add(other)
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            for _ in 1...2 {
                let status = try await world.restored("alice", proofs: proof, setup: setup)
                #expect(status.outcome == (type == "free" ? "store_account_mismatch" : "already_subscriber"))
                #expect(try await world.type(of: "alice") == type)
            }
            // RevenueCat alone does not get its way afterwards.
            _ = try await world.restored("alice", setup: setup)
            #expect(try await world.type(of: "alice") == type)
            #expect(try await world.tickets(of: "alice").map(\.kind) == ["sources_disagree"])
            #expect(try await world.tickets(of: "alice").map(\.owner) == [other])
        }
    }

    @Test func `Nobody becomes an owner by a proof while RevenueCat can't say whose it is`() async throws {
        try await World.with(customers: ["{id: alice, state: none}"], scenario: WitnessTests.appStore) { world in
            try await world.add("alice")
            try await world.addProducts()
            try await world.steer("/faults", #"{"endpoint":"find_subscriptions","status":503}"#, method: .post)
            let setup = try world.asking(world.revenueCat, world.appStore) { $0.retry.maxAttempts = 2 }
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "store_unavailable")
            #expect(try await world.type(of: "alice") == "free")
        }
    }

    @Test func `18: a typed id does not give what RevenueCat holds for somebody else, whatever the app's id says`()
        async throws
    {
        let me = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly,"
                + " expires: +20d, account_token: \(me)"
        )
        try await World.with(customers: [WitnessTests.holding("owner")], scenario: scenario) { world in
            for user in [me, "owner"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            let claim = world.proof("app_store", "transaction_id", "2000000100000009")
            #expect(try await world.restored(me, proofs: claim, setup: setup).messageKey == "nothing")
            #expect(try await world.type(of: me) == "free")
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored(me, proofs: proof, setup: setup).outcome == "store_account_mismatch")
            #expect(try await world.tickets(of: me).map(\.owner).contains("owner"))
        }
    }

    @Test(arguments: [
        ("-5m", nil, false, "first_seen_elsewhere", Int64(0)), ("-5m", "7", false, "first_seen_elsewhere", 0),
        ("-5h", nil, false, "first_seen_elsewhere", 0), ("-5m", nil, true, "owner_mismatch", 0),
        ("-5h", nil, true, "owner_mismatch", 1), ("-30d", nil, false, "owner_mismatch", 1),
    ])
    func `16, 17, 178: whoever shows what another account has had is helped first where it was just bought`(
        _ bought: String,
        _ error: String?,
        _ hasRestored: Bool,
        _ kind: String,
        _ priority: Int64
    ) async throws {
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly,"
                + " expires: +20d, purchased: \(bought), originally: \(bought)"
        )
        try await World.with(
            customers: [WitnessTests.holding("owner"), "{id: claimant, state: none}"],
            scenario: scenario
        ) { world in
            for user in ["owner", "claimant"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            // A notification of the store's came first, under the other account.
            try await world.deliver(#"{"id":"e","type":"INITIAL_PURCHASE","app_user_id":"owner"}"#)
            try await world.work(setup)
            #expect(try await world.type(of: "owner") == "subscriber")
            if hasRestored { _ = try await world.restored("owner", setup: setup) }
            let proof = try world.transactionProof("2000000100000009")
            let job = try await world.restored("claimant", proofs: proof, clientError: error, setup: setup)
            #expect(job.outcome == "store_account_mismatch" && job.ticketID != nil)
            #expect(
                try await world.tickets(of: "claimant")
                    == [TicketRow(kind: kind, owner: "owner", state: "new", touches: 0)]
            )
            #expect(try await world.number("SELECT t.priority::bigint FROM entitlement_sync.ticket AS t") == priority)
            #expect(try await world.type(of: "claimant") == "free")
        }
    }

    @Test func `A token of somebody else's hides nothing of one's own`() async throws {
        let scenario = GooglePlayRestoreTests.scenario(
            "token: tok-own, state: active",
            "token: tok-theirs, state: active"
        )
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            for (user, token) in [("ann", "tok-own"), ("bob", "tok-theirs")] {
                let status = try await world.restored(user, proofs: world.tokenProof(token), setup: setup)
                #expect(status.outcome == "restored")
            }
            // Put aside by mistake: what is theirs has to be asked about before anybody says no.
            try await world.pool.query("UPDATE users SET type = 'free' WHERE id = 'ann'")
            let status = try await world.restored("ann", proofs: world.tokenProof("tok-theirs"), setup: setup)
            #expect(status.outcome == "restored")
        }
    }

    @Test func `A proof of somebody else's purchase hides nothing of one's own`() async throws {
        let scenario = """
            app_store:
              customers:
                - {id: one, transactions: [{original: "2000000100000001", transaction: "2000000100000001", product: premium_monthly, expires: +20d}]}
                - {id: two, transactions: [{original: "2000000100000002", transaction: "2000000100000002", product: premium_monthly, expires: +20d}]}
            """
        try await World.with(scenario: scenario) { world in
            for user in ["one", "two"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            let proofs = try ["2000000100000001", "2000000100000002"].map(world.transactionProof)
            #expect(try await world.restored("one", proofs: proofs[0], setup: setup).outcome == "restored")
            #expect(try await world.restored("two", proofs: proofs[1], setup: setup).outcome == "restored")
            try await world.pool.query("UPDATE users SET type = 'free'")
            #expect(try await world.restored("one", proofs: proofs[1], setup: setup).outcome == "restored")
        }
    }

    @Test(arguments: ["2000000100000008", "2000000100000010"])
    func `4: RevenueCat's holder is found though it knows the purchase by another transaction`(_ known: String)
        async throws
    {
        // It has not heard of the last renewal, or is one ahead; any transaction of the purchase finds it.
        let owner =
            "{id: owner, subscriptions: [{state: active, store_subscription_identifier: \"\(known)\","
            + " past_identifiers: [\"2000000100000001\"]}]}"
        try await World.with(customers: [owner, "{id: claimant, state: none}"], scenario: WitnessTests.appStore) {
            world in
            for user in ["owner", "claimant"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(
                try await world.restored("claimant", proofs: proof, setup: setup).outcome == "store_account_mismatch"
            )
            #expect(try await world.type(of: "claimant") == "free")
            #expect(try await world.restored("owner", proofs: proof, setup: setup).outcome != "store_account_mismatch")
            #expect(try await world.type(of: "owner") == "subscriber")
            let rows = try await world.number(
                "SELECT count(*) FROM entitlement_sync.purchase WHERE merged_into IS NULL AND owner_key IS NOT NULL"
            )
            #expect(rows == 1, "one purchase, by all of its names")
        }
    }

    @Test func `9: whose RevenueCat customer has another id of theirs is not refused their own purchase`() async throws
    {
        try await World.with(
            customers: [WitnessTests.holding("legacy-7", more: "aliases: [alice], ")],
            scenario: WitnessTests.appStore
        ) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.ticket") == 0)
        }
    }

    @Test func `21, 194: RevenueCat does not move what the app's id names as its owner's`() async throws {
        let owner = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly,"
                + " expires: +20d, account_token: \(owner)"
        )
        try await World.with(customers: ["{id: \(owner), state: none}"], scenario: scenario) { world in
            for user in [owner, "other"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored(owner, proofs: proof, setup: setup).outcome == "restored")
            // Somebody moves it in RevenueCat's dashboard.
            try await world.steer(
                "/customers/other",
                #"{"subscriptions":[{"state":"active","store_subscription_identifier":"2000000100000009"}]}"#
            )
            #expect(try await world.restored("other", setup: setup).outcome == "store_account_mismatch")
            #expect(try await world.tickets(of: "other").map(\.kind) == ["sources_disagree"])
            #expect(try await world.owner(of: "2000000100000009") == owner)
            #expect(try await world.type(of: "other") == "free")
            #expect(try await world.reconciled(owner, setup: setup).outcome != "demoted")
        }
    }

    @Test func `185: the passes of another account lengthen nobody's`() async throws {
        let scenario = """
            app_store:
              customers:
                - {id: one, transactions: [{original: "2000000100000001", transaction: "2000000100000001", product: pass30, type: non_renewing, purchased: -40d}]}
                - {id: two, transactions: [{original: "2000000100000002", transaction: "2000000100000002", product: pass30, type: non_renewing, purchased: -35d}]}
            """
        try await World.with(scenario: scenario) { world in
            try await world.add("alice")
            try await world.addProducts()
            let proofs = try ["2000000100000001", "2000000100000002"].map {
                try world.transactionProof($0).dropFirst().dropLast()
            }
            let status = try await world.restored(
                "alice",
                proofs: "[\(proofs.joined(separator: ","))]",
                setup: world.asking(world.appStore)
            )
            #expect(status.messageKey == "nothing.expired")
        }
    }

    @Test func `Whoever shows more than RevenueCat is asked about becomes the owner of no purchase unasked`()
        async throws
    {
        let lines = (10...40).map { number in
            "{original: \"20000001000000\(number)\", transaction: \"20000001000000\(number)\", product: lifetime,"
                + " type: non_consumable}"
        }
        let scenario = "app_store:\n  customers:\n    - {id: alice, transactions: [\(lines.joined(separator: ", "))]}\n"
        try await World.with(customers: ["{id: alice, state: none}"], scenario: scenario) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("2000000100000010")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            #expect(
                try await world.number("SELECT count(*) FROM entitlement_sync.purchase WHERE owner_key IS NOT NULL")
                    == 20
            )
        }
    }
}
