import Foundation
import StoreSimulator
import TestSupport
import Testing

/// What `inspect` says of proofs, without a store and without a database.
struct InspectTests {
    /// A transaction that was signed at a time in milliseconds.
    ///
    /// - Parameter signed: a number, or a word that is replaced by one.
    /// - Returns: what is to be signed.
    private static func payload(signed: String) -> String {
        """
        {"transactionId":"2000000700000002","originalTransactionId":"2000000700000001","bundleId":"com.example.app",\
        "productId":"monthly","type":"Auto-Renewable Subscription","inAppOwnershipType":"PURCHASED",\
        "environment":"Production","purchaseDate":\(signed),"signedDate":\(signed)}
        """
    }

    private func with(_ body: (Inspection) async throws -> Void) async throws {
        try await Inspection.with("APP_STORE_ROOT_CERTIFICATES", body)
    }

    @Test func `what was signed by OpenSSL under a root of its own verifies there, and nowhere else`() async throws {
        try await with { bench in
            try bench.write(Self.payload(signed: #""$NOW""#), to: "payload")
            let complaint = try await SigningFixture.run(
                "sign_transaction.py",
                in: bench.folder,
                from: "payload",
                to: "jws"
            )
            let proof = "storekit_jws=@\(bench.folder)/jws"
            let genuine = try await bench.inspect([proof, "--output", "json"], root: bench.root)
            #expect(genuine.code == 0, "\(genuine) \(complaint)")
            let said = try Inspection.Answer(genuine)
            #expect(said.verifies && said.kind == "storekit_jws" && said.store == "app_store")
            #expect(said.facts["original_transaction_id"] == "2000000700000001")
            #expect(said.facts["purchased_at"]?.wholeMatch(of: /20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil)
            #expect(said.reasons == ["It was signed under a root of APP_STORE_ROOT_CERTIFICATES."])
            try await bench.verifiesOnlyHere(proof)
        }
    }

    @Test func `an app transaction says which store account a device has, and of no purchase`() async throws {
        try await with { bench in
            let authority = try AppStoreAuthority()
            try bench.write(authority.certificates.rootPEM(), to: "root.pem")
            let now = Int64(Date().timeIntervalSince1970 * 1000)
            let text = try authority.sign(
                """
                {"receiptType":"Production","bundleId":"com.example.app","appTransactionId":"704289572311513293",\
                "applicationVersion":"7","receiptCreationDate":\(now)}
                """
            )
            let genuine = try await bench.inspect(["app_transaction=\(text)", "--output", "json"], root: bench.root)
            #expect(genuine.code == 0, "\(genuine)")
            let said = try Inspection.Answer(genuine)
            #expect(said.verifies && said.kind == "app_transaction" && said.store == "app_store")
            #expect(said.facts["app_transaction_id"] == "704289572311513293" && said.facts["product_id"] == nil)
            let other = try await bench.inspect(["storekit_jws=\(text)", "--output", "json"], root: bench.root)
            #expect(other.code == 65, "\(other)")
        }
    }

    @Test func `a signature of somebody else is told apart from what it says`() async throws {
        try await with { bench in
            let (ours, other) = (try AppStoreAuthority(), try AppStoreAuthority())
            try bench.write(ours.certificates.rootPEM(), to: "root.pem")
            let forged = try other.sign(
                Self.payload(signed: "\(Int64(Date().timeIntervalSince1970 * 1000))"),
                header: ["alg": "ES256", "x5c": ours.chain()]
            )
            let ending = try await bench.inspect(["storekit_jws=\(forged)", "--output", "json"], root: bench.root)
            #expect(ending.code == 65, "\(ending)")
            let said = try Inspection.Answer(ending)
            #expect(!said.verifies)
            #expect(said.reasons == ["The signature is not one of the signer's over this text."])
            #expect(said.facts["product_id"] == "monthly", "what it claims is shown for whoever looks into it")
            let text = try await bench.inspect(["storekit_jws=\(forged)"], root: bench.root)
            #expect(text.out.contains("does not verify") && text.out.contains("without anybody who vouches for it"))
        }
    }

    @Test(arguments: [
        ("storekit_jws", "write [STORE:]KIND=VALUE"), ("no_such_kind=x", "unknown kind"),
        ("storekit_jws=@/nonexistent", "the file can't be read"), ("purchase_token=x", "Google Play tells"),
        ("google_play:storekit_jws=a.b.c", "leave the store out"),
        ("storekit_jws=a.b", "three parts with dots"), ("order_id=GPA.1", "It is a claim"),
        ("transaction_id=1", "It is a claim"), ("onside_history=a.b.c", "without its keys"),
    ])
    func `what can't be inspected is an error that says what to write`(
        proof: String,
        text: String
    ) async throws {
        try await with { bench in
            let ending = try await bench.inspect([proof])
            #expect(ending.code == 65 && (ending.err + ending.out).contains(text), "\(ending)")
        }
    }

    @Test func `a history of Onside is told apart by the key set, and shown without one`() async throws {
        try await with { bench in
            let order = "{order: 5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33, account: ann, expires: +2d}"
            let simulator = try StoreSimulator(
                scenario: try Scenario(yaml: "onside:\n  orders: [\(order)]\n"),
                logger: .silent
            )
            let keys = bench.folder + "/keys.json"
            try bench.write(simulator.onsideKeySet(), to: "keys.json")
            let history = try simulator.onsideHistory(account: "ann")
            let proof = "onside_history=\(history)"
            let ending = try await bench.inspect([proof, "--keys", keys, "--output", "json"])
            #expect(ending.code == 0, "\(ending)")
            let said = try Inspection.Answer(ending)
            #expect(said.verifies && said.store == "onside" && said.facts["transaction_1_app_account_token"] == "ann")
            simulator.rotateOnsideKeys(keepOld: false)
            try bench.write(simulator.onsideKeySet(), to: "keys.json")
            let foreign = try await bench.inspect([proof, "--keys", keys])
            #expect(foreign.code == 65 && foreign.out.contains("does not verify"), "\(foreign)")
            let without = try await bench.inspect([proof])
            #expect(without.code == 65 && without.out.contains("ann"), "\(without)")
        }
    }

    @Test func `a file without certificates is a fault of the configuration`() async throws {
        try await with { try await $0.needsCertificates(for: "storekit_jws=a.b.c") }
    }
}
