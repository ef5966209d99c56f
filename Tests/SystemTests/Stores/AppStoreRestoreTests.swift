import Entitlements
import Foundation
import HTTPTypes
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// The App Store as the only witness: every state of its table, shown by a signed transaction.
@Suite struct AppStoreRestoreTests {
    static let line = "original: \"2000000100000001\", transaction: \"2000000100000009\""

    static func scenario(_ transactions: String...) -> String {
        "app_store:\n  customers:\n    - id: alice\n      transactions:\n"
            + transactions.map { "        - {\($0)}\n" }.joined()
    }

    static let states: [(String, String, String)] = [
        ("product: premium_monthly, state: active, expires: +20d", "restored", "restored"),
        ("product: premium_monthly, state: grace, expires: -1d", "restored", "restored"),
        ("product: premium_monthly, state: expired, expires: -2d", "nothing_to_restore", "nothing.expired"),
        ("product: premium_monthly, state: billing_retry, expires: -2d", "nothing_to_restore", "nothing.billing_retry"),
        ("product: premium_monthly, state: revoked, expires: +2d", "nothing_to_restore", "nothing.refunded"),
        ("product: premium_monthly, state: refunded, expires: +2d", "nothing_to_restore", "nothing.refunded"),
        ("product: premium_monthly, state: unknown, expires: +2d", "nothing_to_restore", "nothing"),
        ("product: badge, state: active, expires: +20d", "nothing_to_restore", "nothing"),
        ("product: premium_monthly, state: active, ownership: FAMILY_SHARED, expires: +9d", "restored", "restored"),
        ("product: lifetime, type: non_consumable, state: active", "restored", "restored"),
        ("product: lifetime, type: non_consumable, state: refunded", "nothing_to_restore", "nothing.refunded"),
        ("product: gems, type: consumable, state: active", "nothing_to_restore", "nothing"),
        ("product: pass30, type: non_renewing, state: active, purchased: -20d", "restored", "restored"),
        (
            "product: pass30, type: non_renewing, state: active, purchased: -31d", "nothing_to_restore",
            "nothing.expired"
        ),
        (
            "product: pass30, type: non_renewing, state: refunded, purchased: -2d", "nothing_to_restore",
            "nothing.refunded"
        ),
    ]

    @Test(arguments: states)
    func `24, 27, 28, 55, 62, 68, 69, 71, 186: every state has its outcome`(
        _ transaction: String,
        _ outcome: String,
        _ key: String
    ) async throws {
        try await World.with(scenario: Self.scenario("\(Self.line), \(transaction)")) { world in
            try await world.add("alice")
            try await world.addProducts()
            let status = try await world.restored(
                "alice",
                proofs: world.transactionProof("2000000100000009"),
                setup: world.asking(world.appStore)
            )
            #expect(status.outcome == outcome && status.messageKey == key)
            let isRestored = outcome == "restored"
            #expect(try await world.type(of: "alice") == (isRestored ? "subscriber" : "free"))
            #expect(try await world.tickets(of: "alice").isEmpty)
            if isRestored { #expect(try await world.owner(of: "2000000100000001") == "alice") }
        }
    }

    @Test func `185: overlapping passes add up`() async throws {
        let passes = (0..<3).map { number in
            "original: \"200000010000000\(number)\", transaction: \"200000010000000\(number)\", product: pass30,"
                + " type: non_renewing, purchased: -\(80 - number)d"
        }
        // Bought within three days, each for thirty: the last ends ninety days after the first began.
        try await World.with(scenario: Self.scenario(passes[0], passes[1], passes[2])) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            let status = try await world.restored(
                "alice",
                proofs: world.transactionProof("2000000100000000"),
                setup: setup
            )
            #expect(status.outcome == "restored")
            let ends = try await world.number(
                """
                SELECT round(extract(epoch FROM max(p.period_ends_at) - now()) / 86400)::bigint
                  FROM entitlement_sync.purchase AS p
                """
            )
            #expect(ends == 10)
        }
    }

    @Test func `159: a pass without a duration counts as not mapped until somebody sets one`() async throws {
        let pass = "\(Self.line), product: pass60, type: non_renewing, purchased: -2d"
        try await World.with(scenario: Self.scenario(pass)) { world in
            try await world.add("alice")
            try await world.pool.query(
                "INSERT INTO entitlement_sync.product (store, product_id, entitlement) VALUES ('app_store', 'pass60', 'premium')"
            )
            let setup = try world.asking(world.appStore) { $0.retry.maxAttempts = 2 }
            let job = try await world.restore("alice", proofs: world.transactionProof("2000000100000009"))
            try await world.work(setup)
            let status = try await world.status(job)
            #expect(status.state == "dead" && status.lastError == "product_unmapped")
            try await world.pool.query("UPDATE entitlement_sync.product SET duration = interval '60 days'")
            try await world.work(setup)
            #expect(try await world.status(job).outcome == "restored")
        }
    }

    @Test func `157, 190: a sandbox purchase restores only who is allowed`() async throws {
        let scenario = """
            app_store:
              customers:
                - id: alice
                  environment: Sandbox
                  transactions:
                    - {\(Self.line), product: premium_monthly, state: active, expires: +20d}
            """
        try await World.with(scenario: scenario) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).messageKey == "nothing.sandbox")
            try await world.pool.query(
                "INSERT INTO entitlement_sync.sandbox_user VALUES ('alice', now() + interval '1 day')"
            )
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
        }
    }

    @Test func `A receipt proves what its account has bought, though another is in it`() async throws {
        let scenario = Self.scenario("\(Self.line), product: premium_monthly, state: active, expires: +20d")
        try await World.with(scenario: scenario) { world in
            try await world.add("alice")
            try await world.addProducts()
            let receipt = try ReceiptAuthority.shared().receipt(
                ReceiptDescription(
                    type: "Production",
                    bundleID: "com.example.app",
                    createdAt: Date(),
                    purchases: [
                        .init(
                            productID: "premium_monthly",
                            transactionID: "2000000100000005",
                            originalTransactionID: "2000000100000001",
                            purchasedAt: Date() - 86_400 * 40,
                            kind: 3
                        )
                    ]
                )
            )
            let proofs = world.proof("app_store", "app_receipt", receipt)
            let status = try await world.restored("alice", proofs: proofs, setup: world.asking(world.appStore))
            #expect(status.outcome == "restored")
        }
    }

    @Test func `104: one bad proof never spoils the others, and alone it is nothing`() async throws {
        let scenario = Self.scenario("\(Self.line), product: premium_monthly, state: active, expires: +20d")
        try await World.with(scenario: scenario) { world in
            for user in ["alice", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            let good = try #require(try world.simulator.appStoreProof(ofTransaction: "2000000100000009"))
            let bad = String(good.dropLast(4)) + "AAAA"
            let alone = world.proof("app_store", "storekit_jws", bad)
            #expect(try await world.restored("bob", proofs: alone, setup: setup).messageKey == "nothing")
            let text = try await world.decisions(about: "bob").last?.explanation
            #expect(
                text?.hasSuffix("What was shown did not verify: storekit_jws (bad_signature).") == true,
                "\(text ?? "")"
            )
            let both =
                #"[{"store":"app_store","kind":"storekit_jws","value":"\#(bad)"},"#
                + #"{"store":"app_store","kind":"app_receipt","value":"bm90IGEgcmVjZWlwdA=="},"#
                + #"{"store":"app_store","kind":"storekit_jws","value":"\#(good)"}]"#
            #expect(try await world.restored("alice", proofs: both, setup: setup).outcome == "restored")
        }
    }

    @Test func `96, 97: what the store does not show yet is no absence`() async throws {
        let scenario = """
            app_store:
              customers:
                - id: alice
                  visible_after: 1h
                  transactions:
                    - {\(Self.line), product: premium_monthly, state: active, expires: +20d}
            """
        try await World.with(scenario: scenario) { world in
            try await world.add("alice")
            try await world.addProducts()
            let job = try await world.restore("alice", proofs: world.transactionProof("2000000100000009"))
            let setup = try world.asking(world.appStore) { $0.retry.maxAttempts = 3 }
            try await world.work(setup)
            #expect(try await world.status(job).outcome == "store_unavailable")
        }
    }

    @Test func `What the store denies, or can't be looked up, takes nothing from what else was shown or typed`()
        async throws
    {
        let me = "3F2504E0-4F89-41D3-9A0C-0305E82C3301"
        let ours =
            "{original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly, expires: +20d"
        let scenario = """
            app_store:
              customers:
                - {id: mine, transactions: [\(ours), account_token: \(me.lowercased())}]}
                - {id: gone, transactions: [{original: "2000000100000050", product: premium_monthly, expires: +20d}]}
                - {id: other, transactions: [{original: "2000000100000060", product: premium_monthly, expires: +20d}]}
            """
        try await World.with(scenario: scenario) { world in
            for user in [me, "bob"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.appStore) { $0.retry.maxAttempts = 1 }
            // The account of one of the two proofs is gone; no sandbox answers for what is not the user's own.
            for rule in [
                #"{"endpoint":"app_store.statuses","customer":"gone","status":404,"error_type":"4040001"}"#,
                #"{"endpoint":"app_store.transaction","customer":"other","status":503}"#,
            ] {
                try await world.steer("/faults", rule, method: .post)
            }
            let shown = try [world.transactionProof("2000000100000050"), world.transactionProof("2000000100000060")]
                .map { $0.dropFirst().dropLast() }.joined(separator: ",")
            #expect(try await world.restored("bob", proofs: "[\(shown)]", setup: setup).outcome == "restored")
            let typed = ["2000000100000060", "2000000100000009"]
                .map { world.proof("app_store", "transaction_id", $0).dropFirst().dropLast() }.joined(separator: ",")
            #expect(try await world.restored(me, proofs: "[\(typed)]", setup: setup).outcome == "restored")
            let failures = world.simulator.requestReport().byStatus
            #expect(failures[404] != nil && failures[503] != nil, "\(failures)")
        }
    }

    @Test func `18, 19: the app's id names the owner, and somebody else's is a mismatch`() async throws {
        let me = "3F2504E0-4F89-41D3-9A0C-0305E82C3301"
        let scenario = Self.scenario(
            "\(Self.line), product: premium_monthly, expires: +20d, account_token: \(me.lowercased())"
        )
        try await World.with(scenario: scenario) { world in
            for user in [me, "thief"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            let theirs = try await world.restored("thief", proofs: proof, setup: setup)
            #expect(theirs.outcome == "store_account_mismatch" && theirs.ticketID != nil)
            #expect(try await world.tickets(of: "thief").map(\.owner) == [me])
            #expect(try await world.type(of: me) == "subscriber", "whose it is was found, and had not asked")
            // A typed id decides nothing, but the app's id in the answer does.
            let claim = world.proof("app_store", "transaction_id", "2000000100000009")
            #expect(try await world.restored(me, proofs: claim, setup: setup).outcome == "already_subscriber")
            #expect(try await world.restored("thief", proofs: claim, setup: setup).messageKey == "nothing")
        }
    }

    @Test func `5, 6: a typed id is answered alike whether it exists or not`() async throws {
        let scenario = Self.scenario(
            "\(Self.line), product: premium_monthly, expires: +20d, order_id: MABCDEFGH1"
        )
        try await World.with(scenario: scenario) { world in
            for user in ["owner", "real", "order", "made-up"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("owner", proofs: proof, setup: setup).outcome == "restored")
            let claims = [
                "real": world.proof("app_store", "transaction_id", "2000000100000009"),
                "order": world.proof("app_store", "order_id", "MABCDEFGH1"),
                "made-up": world.proof("app_store", "transaction_id", "999999999999"),
            ]
            var requests: [String: Int] = [:]
            for (user, claim) in claims {
                let before = world.simulator.requestReport().total
                let status = try await world.restored(user, proofs: claim, setup: setup)
                requests[user] = world.simulator.requestReport().total - before
                #expect(
                    status.outcome == "nothing_to_restore" && status.messageKey == "nothing" && status.ticketID == nil
                )
                #expect(try await world.tickets(of: user).map(\.kind) == (user == "made-up" ? [] : ["needs_proof"]))
            }
            #expect(requests["real"] == requests["made-up"], "nor does the time tell: \(requests)")
        }
    }

    @Test func `After the restore the store is asked about what our records hold`() async throws {
        let scenario = Self.scenario("\(Self.line), product: premium_monthly, state: active, expires: +20d")
        try await World.with(scenario: scenario) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            #expect(try await world.reconciled("alice", setup: setup).outcome == "unchanged")
            try await world.steer(
                "/app-store/customers/alice",
                #"""
                {"transactions":[{"original":"2000000100000001","transaction":"2000000100000009",
                "product":"premium_monthly","state":"expired","expires":"-1d"}]}
                """#
            )
            #expect(try await world.reconciled("alice", setup: setup).outcome == "demoted")
            #expect(try await world.type(of: "alice") == "free")
        }
    }
}
