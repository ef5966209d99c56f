import Foundation
@testable import SignedTokens
@testable import StoreClients
import StoreSimulator
import TestSupport
import Testing

/// Altered receipts: in whatever byte and however, nothing but the genuine one is taken.
struct AppReceiptMutationTests {
    private static let authority = Result { try ReceiptAuthority() }
    private static let description = ReceiptDescription(purchases: [
        ReceiptDescription.Purchase(productID: "monthly", transactionID: "2", expiresAt: Date())
    ])

    private func base64(_ bytes: [UInt8]) -> String { Data(bytes).base64EncodedString() }

    /// Alters bytes in a few ways, or in all; returns the places where the receipt still verified, with the values.
    private func altered(
        _ genuine: [UInt8],
        _ verifier: AppReceiptProofs,
        values: (UInt8) -> [UInt8]
    ) async -> [(place: Int, value: UInt8)] {
        var accepted: [(place: Int, value: UInt8)] = []
        for place in Mutations.places(of: genuine) {
            for value in values(genuine[place]) where value != genuine[place] {
                var bytes = genuine
                bytes[place] = value
                if await AppReceiptTests.refusal(base64(bytes), verifier) == nil { accepted.append((place, value)) }
            }
        }
        return accepted
    }

    @Test(arguments: [nil, 100] as [Int?])
    func `altered in any byte it does not verify`(inPieces: Int?) async throws {
        let authority = try Self.authority.get()
        let verifier = AppReceiptTests.proofs(authority)
        let genuine = try authority.sign(Self.description.payload()).bytes(inPieces: inPieces)
        #expect(await AppReceiptTests.refusal(base64(genuine), verifier) == nil)
        let accepted = await altered(genuine, verifier) { inPieces == nil ? [$0 ^ 0x01, $0 ^ 0xA4] : [$0 ^ 0x01] }
        #expect(accepted.isEmpty, "\(accepted)")
    }

    @Test func `the one byte that may be another says the same in another way`() async throws {
        let authority = try Self.authority.get()
        let verifier = AppReceiptTests.proofs(authority)
        var container = try authority.sign(Self.description.payload())
        let genuine = container.bytes()
        container.signers[0].algorithm = ReceiptContainer.Algorithm.sha256WithRSA
        let other = container.bytes()
        let place = try #require(genuine.indices.first { genuine[$0] != other[$0] })
        #expect(genuine.count == other.count && genuine[place] == 0x01 && other[place] == 0x0B)
        // The signer's algorithms, of which no other byte may be any other.
        let places = Profile.isFull ? genuine.indices : (place - 30)..<(place + 10)
        for index in places {
            for value in UInt8.min...UInt8.max where value != genuine[index] {
                var bytes = genuine
                bytes[index] = value
                let code = await AppReceiptTests.refusal(base64(bytes), verifier)
                #expect((code == nil) == (bytes == other), "byte \(index), \(value)")
            }
        }
    }

    @Test(arguments: ["sha256", "sha1"])
    func `what OpenSSL signed verifies, and altered in any byte it does not`(digest: String) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let complaint = try await SigningFixture.run("sign_receipt.py", in: folder, [digest], to: "receipt")
        #expect(complaint.isEmpty)
        let text = try String(contentsOfFile: folder + "/receipt", encoding: .utf8).trimmingCharacters(in: .newlines)
        let root = try String(contentsOfFile: folder + "/root.pem", encoding: .utf8)
        let verifier = AppReceiptProofs(
            roots: try AppStoreRoots.read(pem: root),
            expected: .init(bundleID: "com.example.app")
        )
        let receipt = try await verifier.receipt(text)
        #expect(
            receipt.appID == 1_234_567_890 && receipt.purchases.map(\.originalTransactionID) == ["2000000700000001"]
        )
        let genuine = Array(try #require(Data(base64Encoded: text)))
        let accepted = await altered(genuine, verifier) { [$0 ^ 0x01] }
        #expect(accepted.isEmpty, "\(accepted)")
    }

    @Test(arguments: [UInt64(1), 2])
    func `whatever is done to a receipt, nothing but the genuine one is taken`(seed: UInt64) async throws {
        let authority = try Self.authority.get()
        let verifier = AppReceiptTests.proofs(authority)
        var container = try authority.sign(Self.description.payload())
        let seeds = [container.bytes(), container.bytes(inPieces: 100)]
        container.signers[0].algorithm = ReceiptContainer.Algorithm.sha256WithRSA
        let same = [container.bytes(), container.bytes(inPieces: 100)]
        let interesting: [UInt8] = [0x00, 0x01, 0x02, 0x04, 0x06, 0x0B, 0x24, 0x30, 0x31, 0x80, 0x81, 0x82, 0xA0, 0xFF]
        var random = SeededGenerator(seed: seed)
        for number in 0..<Mutations.signed {
            let genuine = seeds[random.oneIn(4) ? 1 : 0]
            let bytes = Mutations.alter(genuine, interesting, &random)
            guard !seeds.contains(bytes), !same.contains(bytes) else { continue }
            let code = await AppReceiptTests.refusal(base64(bytes), verifier)
            #expect(code != nil, "mutation \(number)")
            if code == nil { return }
        }
    }
}
