import Foundation
import StoreSimulator
import SwiftASN1
import TestSupport
import Testing
import X509

/// What `inspect` says of proofs, without a store and without a database.
struct InspectTests {
    private struct Answer: Decodable {
        var kind: String
        var store: String
        var verifies: Bool
        var reasons: [String]
        var facts: [String: String]
    }

    /// Signed in a minute, because the certificates are yet to be made.
    private static let payload = """
        {"transactionId":"2000000700000002","originalTransactionId":"2000000700000001","bundleId":"com.example.app",\
        "productId":"monthly","type":"Auto-Renewable Subscription","inAppOwnershipType":"PURCHASED",\
        "environment":"Production","purchaseDate":\(Int64(Date().timeIntervalSince1970 * 1000)),\
        "signedDate":\(Int64(Date().timeIntervalSince1970 * 1000) + 60_000)}
        """

    private func withFolder(_ body: (String) async throws -> Void) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try await body(folder)
    }

    private func inspect(
        _ words: [String],
        root: String? = nil,
        bundleID: String? = "com.example.app"
    ) async throws -> Program.Ending {
        var settings: [String: String] = [:]
        settings["APP_STORE_ROOT_CERTIFICATES"] = root
        settings["APP_STORE_BUNDLE_ID"] = bundleID
        return try await Site.run(["inspect"] + words, settings: settings)
    }

    private func answer(_ ending: Program.Ending) throws -> Answer {
        try JSONDecoder().decode(Answer.self, from: Data(ending.out.utf8))
    }

    @Test func `what was signed by OpenSSL under a root of its own verifies there, and nowhere else`() async throws {
        try await withFolder { folder in
            try Data(Self.payload.utf8).write(to: URL(fileURLWithPath: folder + "/payload"))
            let log = folder + "/signing"
            let script = Paths.fixtures + "/sign_transaction.py"
            let python = try #require(ChildProcess.find("python3"))
            let shell = "\"$0\" \"$1\" \"$2\" < \"$2/payload\" > \"$2/jws\""
            let signer = try ChildProcess.start(["/bin/sh", "-c", shell, python, script, folder], output: log)
            while waitpid(signer, nil, WNOHANG) == 0 { try await Task.sleep(for: .milliseconds(20)) }
            let proof = "storekit_jws=@\(folder)/jws"
            let genuine = try await inspect([proof, "--output", "json"], root: folder + "/root.pem")
            #expect(genuine.code == 0, "\(genuine) \((try? String(contentsOfFile: log, encoding: .utf8)) ?? "")")
            let said = try answer(genuine)
            #expect(said.verifies && said.kind == "storekit_jws" && said.store == "app_store")
            #expect(said.facts["original_transaction_id"] == "2000000700000001")
            #expect(said.facts["purchased_at"]?.wholeMatch(of: /20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil)
            #expect(said.reasons == ["It was signed under a root of APP_STORE_ROOT_CERTIFICATES."])
            let elsewhere = try await inspect([proof, "--output", "json"])
            #expect(elsewhere.code == 65)
            #expect(try answer(elsewhere).reasons == ["The certificates do not lead to a pinned root."])
            let foreign = try await inspect([proof], root: folder + "/root.pem", bundleID: "com.example.other")
            #expect(foreign.code == 65 && foreign.out.contains("It is about another app."), "\(foreign)")
            let any = try await inspect([proof], root: folder + "/root.pem", bundleID: nil)
            #expect(any.code == 0 && any.out.contains("APP_STORE_BUNDLE_ID is not set"), "\(any)")
        }
    }

    @Test func `a signature of somebody else is told apart from what it says`() async throws {
        try await withFolder { folder in
            let (ours, other) = (try AppStoreAuthority(), try AppStoreAuthority())
            let root = folder + "/root.pem"
            try ours.root.serializeAsPEM().pemString.write(toFile: root, atomically: false, encoding: .utf8)
            let forged = try other.sign(Self.payload, header: ["alg": "ES256", "x5c": ours.chain()])
            let ending = try await inspect(["storekit_jws=\(forged)", "--output", "json"], root: root)
            #expect(ending.code == 65, "\(ending)")
            let said = try answer(ending)
            #expect(!said.verifies)
            #expect(said.reasons == ["The signature is not one of the signer's over this text."])
            #expect(said.facts["product_id"] == "monthly", "what it claims is shown for whoever looks into it")
            let text = try await inspect(["storekit_jws=\(forged)"], root: root)
            #expect(text.out.contains("does not verify") && text.out.contains("without anybody who vouches for it"))
        }
    }

    @Test(arguments: [
        ("storekit_jws", 65, "write [STORE:]KIND=VALUE"), ("no_such_kind=x", 65, "unknown kind"),
        ("storekit_jws=@/nonexistent", 65, "the file can't be read"), ("purchase_token=x", 65, "Google Play tells"),
        ("google_play:storekit_jws=a.b.c", 65, "leave the store out"),
        ("storekit_jws=a.b", 65, "three parts with dots"), ("order_id=GPA.1", 65, "It is a claim"),
        ("transaction_id=1", 65, "It is a claim"), ("onside_history=a.b.c", 65, "without its keys"),
    ])
    func `what can't be inspected is an error that says what to write`(
        proof: String,
        code: Int32,
        text: String
    ) async throws {
        let ending = try await inspect([proof])
        #expect(ending.code == code && (ending.err + ending.out).contains(text), "\(ending)")
    }

    @Test func `a history of Onside is told apart by the key set, and shown without one`() async throws {
        try await withFolder { folder in
            let order = "{order: 5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33, account: ann, expires: +2d}"
            let simulator = try StoreSimulator(
                scenario: try Scenario(yaml: "onside:\n  orders: [\(order)]\n"),
                logger: .silent
            )
            let keys = folder + "/keys.json"
            try simulator.onsideKeySet().write(toFile: keys, atomically: false, encoding: .utf8)
            let history = try simulator.onsideHistory(account: "ann")
            let proof = "onside_history=\(history)"
            let ending = try await inspect([proof, "--keys", keys, "--output", "json"])
            #expect(ending.code == 0, "\(ending)")
            let said = try answer(ending)
            #expect(said.verifies && said.store == "onside" && said.facts["transaction_1_app_account_token"] == "ann")
            simulator.rotateOnsideKeys(keepOld: false)
            try simulator.onsideKeySet().write(toFile: keys, atomically: false, encoding: .utf8)
            let foreign = try await inspect([proof, "--keys", keys])
            #expect(foreign.code == 65 && foreign.out.contains("does not verify"), "\(foreign)")
            let without = try await inspect([proof])
            #expect(without.code == 65 && without.out.contains("ann"), "\(without)")
        }
    }

    @Test func `a file without certificates is a fault of the configuration`() async throws {
        let ending = try await inspect(["storekit_jws=a.b.c"], root: "/dev/null")
        #expect(ending.code == 78 && ending.err.contains("APP_STORE_ROOT_CERTIFICATES"), "\(ending)")
    }
}
