import Foundation
import StoreSimulator
import TestSupport
import Testing

/// What `inspect` says of app receipts, without a store and without a database.
struct InspectReceiptTests {
    private func with(_ body: (Inspection) async throws -> Void) async throws {
        try await Inspection.with("RECEIPT_ROOT_CERTIFICATES", body)
    }

    @Test(arguments: ["sha256", "sha1"])
    func `what was signed by OpenSSL under a root of its own verifies there, and nowhere else`(
        digest: String
    ) async throws {
        try await with { bench in
            let complaint = try await SigningFixture.run("sign_receipt.py", in: bench.folder, [digest], to: "receipt")
            let proof = "app_receipt=@\(bench.folder)/receipt"
            let genuine = try await bench.inspect([proof, "--output", "json"], root: bench.root)
            #expect(genuine.code == 0, "\(genuine) \(complaint)")
            let said = try Inspection.Answer(genuine)
            #expect(said.verifies && said.kind == "app_receipt" && said.store == "app_store")
            #expect(said.reasons == ["It was signed under a root of RECEIPT_ROOT_CERTIFICATES."])
            #expect(said.facts["environment"] == "Production" && said.facts["bundle_id"] == "com.example.app")
            #expect(said.facts["app_version"] == "42" && said.facts["purchases"] == "1")
            #expect(said.facts["created_at"]?.wholeMatch(of: /20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z/) != nil)
            #expect(said.facts["purchase_1_product_id"] == "monthly")
            #expect(said.facts["purchase_1_original_transaction_id"] == "2000000700000001")
            #expect(said.facts["purchase_1_originally_purchased_at"] == "2020-07-22T18:33:15.000Z")
            #expect(said.facts["purchase_1_canceled_at"] == nil && said.facts["purchase_1_is_trial"] == "false")
            try await bench.verifiesOnlyHere(proof)

            let text = try Paths.text(bench.folder + "/receipt").trimmingCharacters(in: .newlines)
            let bytes = try #require(Data(base64Encoded: text))
            for place in stride(from: 0, to: bytes.count, by: bytes.count / 12) {
                var altered = bytes
                altered[place] ^= 0x01
                let ending = try await bench.inspect(["app_receipt=\(altered.base64EncodedString())"], root: bench.root)
                #expect(ending.code == 65 && ending.out.contains("does not verify"), "byte \(place): \(ending)")
            }
        }
    }

    @Test func `a receipt of the simulator verifies under the root that it gives out`() async throws {
        try await with { bench in
            try bench.write(StoreSimulator.receiptRoot(), to: "root.pem")
            let purchases = (1...25).map {
                ReceiptDescription.Purchase(productID: "product\($0)", transactionID: "\($0)")
            }
            let sandbox = ReceiptDescription(type: "ProductionSandbox", purchases: purchases)
            let receipt = try ReceiptAuthority.shared().receipt(sandbox)
            try bench.write(receipt, to: "receipt")
            let ending = try await bench.inspect(["app_receipt=@\(bench.folder)/receipt"], root: bench.root)
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
        try await with { bench in
            let ending = try await bench.inspect([proof])
            #expect(ending.code == 65 && (ending.err + ending.out).contains(text), "\(ending)")
        }
    }

    @Test func `a file without certificates is a fault of the configuration`() async throws {
        try await with { try await $0.needsCertificates(for: "app_receipt=AAAA") }
    }
}
