import Foundation
import StoreSimulator
import TestSupport
import Testing

/// What `inspect` says of app receipts, without a store and without a database.
struct InspectReceiptTests {
    private struct Answer: Decodable {
        var kind: String
        var store: String
        var verifies: Bool
        var reasons: [String]
        var facts: [String: String]
    }

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
        settings["RECEIPT_ROOT_CERTIFICATES"] = root
        settings["APP_STORE_BUNDLE_ID"] = bundleID
        return try await Site.run(["inspect"] + words, settings: settings)
    }

    private func answer(_ ending: Program.Ending) throws -> Answer {
        try JSONDecoder().decode(Answer.self, from: Data(ending.out.utf8))
    }

    @Test(arguments: ["sha256", "sha1"])
    func `what was signed by OpenSSL under a root of its own verifies there, and nowhere else`(
        digest: String
    ) async throws {
        try await withFolder { folder in
            let log = folder + "/signing"
            let script = Paths.fixtures + "/sign_receipt.py"
            let python = try #require(ChildProcess.find("python3"))
            let shell = "\"$0\" \"$1\" \"$2\" \"$3\" > \"$2/receipt\""
            let signer = try ChildProcess.start(["/bin/sh", "-c", shell, python, script, folder, digest], output: log)
            while waitpid(signer, nil, WNOHANG) == 0 { try await Task.sleep(for: .milliseconds(20)) }
            let root = folder + "/root.pem"
            let proof = "app_receipt=@\(folder)/receipt"
            let genuine = try await inspect([proof, "--output", "json"], root: root)
            #expect(genuine.code == 0, "\(genuine) \((try? String(contentsOfFile: log, encoding: .utf8)) ?? "")")
            let said = try answer(genuine)
            #expect(said.verifies && said.kind == "app_receipt" && said.store == "app_store")
            #expect(said.reasons == ["It was signed under a root of RECEIPT_ROOT_CERTIFICATES."])
            #expect(said.facts["environment"] == "Production" && said.facts["bundle_id"] == "com.example.app")
            #expect(said.facts["app_version"] == "42" && said.facts["purchases"] == "1")
            #expect(said.facts["created_at"]?.wholeMatch(of: /20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z/) != nil)
            #expect(said.facts["purchase_1_product_id"] == "monthly")
            #expect(said.facts["purchase_1_original_transaction_id"] == "2000000700000001")
            #expect(said.facts["purchase_1_originally_purchased_at"] == "2020-07-22T18:33:15.000Z")
            #expect(said.facts["purchase_1_canceled_at"] == nil && said.facts["purchase_1_is_trial"] == "false")
            let elsewhere = try await inspect([proof, "--output", "json"])
            #expect(elsewhere.code == 65)
            #expect(try answer(elsewhere).reasons == ["The certificates do not lead to a pinned root."])
            let foreign = try await inspect([proof], root: root, bundleID: "com.example.other")
            #expect(foreign.code == 65 && foreign.out.contains("It is about another app."), "\(foreign)")
            let any = try await inspect([proof], root: root, bundleID: nil)
            #expect(any.code == 0 && any.out.contains("APP_STORE_BUNDLE_ID is not set"), "\(any)")

            let text = try Paths.text(folder + "/receipt").trimmingCharacters(in: .newlines)
            let bytes = try #require(Data(base64Encoded: text))
            for place in stride(from: 0, to: bytes.count, by: bytes.count / 12) {
                var altered = bytes
                altered[place] ^= 0x01
                let ending = try await inspect(["app_receipt=\(altered.base64EncodedString())"], root: root)
                #expect(ending.code == 65 && ending.out.contains("does not verify"), "byte \(place): \(ending)")
            }
        }
    }

    @Test func `a receipt of the simulator verifies under the root that it gives out`() async throws {
        try await withFolder { folder in
            let root = folder + "/root.pem"
            try StoreSimulator.receiptRoot().write(toFile: root, atomically: false, encoding: .utf8)
            let purchases = (1...25).map {
                ReceiptDescription.Purchase(productID: "product\($0)", transactionID: "\($0)")
            }
            let sandbox = ReceiptDescription(type: "ProductionSandbox", purchases: purchases)
            let receipt = try ReceiptAuthority.shared().receipt(sandbox)
            try receipt.write(toFile: folder + "/receipt", atomically: false, encoding: .utf8)
            let ending = try await inspect(["app_receipt=@\(folder)/receipt"], root: root)
            #expect(ending.code == 0, "\(ending)")
            #expect(ending.out.contains("app_receipt of app_store: verifies") && ending.out.contains("product20"))
            #expect(!ending.out.contains("product21"), "the first 20 are enough")
            #expect(ending.out.contains(/purchases +25/))
            let numbers = ending.out.matches(of: /purchase_(\d+)_product_id/).compactMap { Int($0.output.1) }
            #expect(numbers == Array(1...20), "in the order of their numbers")
        }
    }

    @Test(arguments: [
        ("app_receipt=@/nonexistent", "the file can't be read"),
        ("google_play:app_receipt=AAAA", "leave the store out"),
        ("app_receipt=AAAA", "not a signed container"), ("app_receipt=A A", "not base64 without line breaks"),
    ])
    func `what can't be inspected is an error that says what to write`(proof: String, text: String) async throws {
        let ending = try await inspect([proof])
        #expect(ending.code == 65 && (ending.err + ending.out).contains(text), "\(ending)")
    }

    @Test func `a file without certificates is a fault of the configuration`() async throws {
        let ending = try await inspect(["app_receipt=AAAA"], root: "/dev/null")
        #expect(ending.code == 78 && ending.err.contains("RECEIPT_ROOT_CERTIFICATES"), "\(ending)")
    }
}
