import Crypto
import Entitlements
import Foundation
@testable import SignedTokens
@testable import StoreClients
import StoreSimulator
import SwiftASN1
import TestSupport
import Testing
import X509

/// Signed transactions: whose signature counts, and what has to be right beside it.
struct AppStoreProofTests {
    private static let authority = Result { try AppStoreAuthority() }

    private func payload(_ changes: [String: Any] = [:]) throws -> String {
        var members: [String: Any] = [
            "transactionId": "2000000700000002", "originalTransactionId": "2000000700000001",
            "bundleId": "com.example.app", "productId": "monthly", "type": "Auto-Renewable Subscription",
            "inAppOwnershipType": "PURCHASED", "environment": "Production",
            "purchaseDate": Self.now - 86_400_000, "expiresDate": Self.now + 86_400_000, "signedDate": Self.now,
            "appAccountToken": "7E3FB204-2B4B-4D5A-9D4A-7F5F6D3B5C10", "storefront": "DEU", "price": 4_990,
        ]
        for (name, value) in changes { members[name] = value is NSNull ? nil : value }
        return String(
            decoding: try JSONSerialization.data(withJSONObject: members, options: .sortedKeys),
            as: UTF8.self
        )
    }

    private static let now = Int64(Date().timeIntervalSince1970 * 1000)

    private func proofs(
        _ authority: AppStoreAuthority,
        bundleID: String? = "com.example.app",
        environments: Set<String> = ["Production", "Sandbox"]
    ) -> AppStoreProofs {
        AppStoreProofs(
            roots: [authority.certificates.root],
            expected: AppStoreProofs.Expectation(bundleID: bundleID, environments: environments)
        )
    }

    private func refusal(
        _ text: String,
        _ proofs: AppStoreProofs
    ) async -> ProofRefusal.Code? {
        do throws(ProofRefusal) {
            _ = try await proofs.transaction(text)
            return nil
        } catch {
            return error.code
        }
    }

    @Test func `a transaction that the store signed verifies and says what it says`() async throws {
        let authority = try Self.authority.get()
        let transaction = try await proofs(authority).transaction(authority.sign(payload()))
        #expect(transaction.transactionID == "2000000700000002")
        #expect(transaction.originalTransactionID == "2000000700000001")
        #expect(transaction.productID == "monthly" && transaction.bundleID == "com.example.app")
        #expect(
            transaction.appAccountToken == "7e3fb204-2b4b-4d5a-9d4a-7f5f6d3b5c10",
            "tokens are compared in lower case"
        )
        #expect(transaction.signedAt == Instant(milliseconds: Self.now))
        #expect(transaction.expiresAt == Instant(milliseconds: Self.now + 86_400_000))
        #expect(transaction.revokedAt == nil && !transaction.isUpgraded)
    }

    @Test func `the root that is shipped is Apple's, and trusts nobody else`() async throws {
        let roots = try AppStoreRoots.shipped()
        #expect(
            roots.map { "\($0.subject)" } == [
                "C=US,O=Apple Inc.,OU=Apple Certification Authority,CN=Apple Root CA - G3"
            ]
        )
        let authority = try Self.authority.get()
        let proofs = AppStoreProofs(roots: roots, expected: .init(bundleID: nil))
        #expect(await refusal(try authority.sign(payload()), proofs) == .untrustedChain)
    }

    @Test(arguments: [
        (SigningCertificates.Flaws.noLeafMarker, ProofRefusal.Code.missingLeafMarker),
        (.noIntermediateMarker, .missingIntermediateMarker), (.intermediateIsNoAuthority, .untrustedChain),
        (.intermediateMayNotSign, .badCertificate), (.strangeLeaf, .untrustedChain),
    ])
    func `a flaw of the certificates is named`(flaw: SigningCertificates.Flaws, code: ProofRefusal.Code) async throws {
        let flawed = try AppStoreAuthority(flaws: flaw)
        #expect(await refusal(try flawed.sign(payload()), proofs(flawed)) == code)
    }

    @Test func `an authority's certificate that leaves its key's usage out is judged by the rest of it`() async throws {
        let fine = try AppStoreAuthority(flaws: .intermediateHasNoUsage)
        #expect(await refusal(try fine.sign(payload()), proofs(fine)) == nil)
        let odd = try AppStoreAuthority(flaws: [.intermediateHasNoUsage, .intermediateIsNoAuthority])
        #expect(await refusal(try odd.sign(payload()), proofs(odd)) == .untrustedChain)
    }

    @Test func `only a pinned root counts, whatever stands in third place`() async throws {
        let (ours, other) = (try Self.authority.get(), try AppStoreAuthority())
        #expect(await refusal(try other.sign(payload()), proofs(ours)) == .untrustedChain)
        let chain = try other.chain().prefix(2) + [ours.chain()[2]]
        let disguised = try other.sign(payload(), header: ["alg": "ES256", "x5c": Array(chain)])
        #expect(await refusal(disguised, proofs(ours)) == .untrustedChain)
        // The third is counted and not used: the same root, issued again, is as good.
        let odd = try ours.chain().prefix(2) + [other.chain()[2]]
        let genuine = try ours.sign(payload(), header: ["alg": "ES256", "x5c": Array(odd)])
        #expect(await refusal(genuine, proofs(ours)) == nil)
    }

    @Test func `a swapped leaf does not carry another's signature`() async throws {
        let (ours, other) = (try Self.authority.get(), try AppStoreAuthority())
        let header: [String: any Sendable] = ["alg": "ES256", "x5c": try ours.chain()]
        #expect(await refusal(try other.sign(payload(), header: header), proofs(ours)) == .badSignature)
    }

    @Test(arguments: [0, 1, 2, 4])
    func `a chain of another length is refused`(count: Int) async throws {
        let authority = try Self.authority.get()
        let chain = try authority.chain() + authority.chain().prefix(1)
        let text = try authority.sign(payload(), header: ["alg": "ES256", "x5c": Array(chain.prefix(count))])
        #expect(await refusal(text, proofs(authority)) == .wrongChainLength)
    }

    @Test(arguments: ["none", "HS256", "ES384", "RS256", "es256", ""])
    func `another algorithm is refused`(algorithm: String) async throws {
        let authority = try Self.authority.get()
        let text = try authority.sign(payload(), header: ["alg": algorithm, "x5c": authority.chain()])
        #expect(await refusal(text, proofs(authority)) == (algorithm.isEmpty ? .malformed : .wrongAlgorithm))
    }

    @Test func `HS256 with the public key as its secret, and no signature at all, are refused`() async throws {
        let authority = try Self.authority.get()
        let whole = try authority.sign(payload(), header: ["alg": "HS256", "x5c": authority.chain()])
        let signed = whole.split(separator: ".").prefix(2).joined(separator: ".")
        let key = try #require(P256.Signing.PublicKey(authority.certificates.leaf.publicKey))
        let code = HMAC<SHA256>.authenticationCode(
            for: Data(signed.utf8),
            using: SymmetricKey(data: key.x963Representation)
        )
        let text =
            signed + "."
            + Data(code).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_")
            .replacing("=", with: "")
        #expect(await refusal(text, proofs(authority)) == .wrongAlgorithm)
        let unsigned = try authority.sign(payload()).split(separator: ".").prefix(2).joined(separator: ".") + "."
        #expect(await refusal(unsigned, proofs(authority)) == .badSignature)
    }

    @Test func `the certificates have to be valid when it was signed, not today; also where the chain is known`()
        async throws
    {
        let day: Int64 = 86_400_000
        let start = Date(timeIntervalSince1970: 1_500_000_000)
        let old = try AppStoreAuthority(validFrom: start, validUntil: start + 86_400)
        let verifier = proofs(old)
        let first = Int64(1_500_000_000_000)
        #expect(await refusal(try old.sign(payload(["signedDate": first + day / 2])), verifier) == nil)
        #expect(await refusal(try old.sign(payload(["signedDate": first - 1])), verifier) == .notYetValid)
        #expect(await refusal(try old.sign(payload(["signedDate": first + day + 1])), verifier) == .expired)
        #expect(await refusal(try old.sign(payload()), verifier) == .expired)
    }

    @Test func `app and environment have to be ours`() async throws {
        let authority = try Self.authority.get()
        let foreign = try authority.sign(payload(["bundleId": "com.example.other"]))
        #expect(await refusal(foreign, proofs(authority)) == .wrongBundle)
        #expect(await refusal(foreign, proofs(authority, bundleID: nil)) == nil)
        let sandbox = try authority.sign(payload(["environment": "Sandbox"]))
        #expect(await refusal(sandbox, proofs(authority)) == nil)
        #expect(await refusal(sandbox, proofs(authority, environments: ["Production"])) == .wrongEnvironment)
        for name in ["Xcode", "LocalTesting", "production", ""] {
            let text = try authority.sign(payload(["environment": name]))
            let all = proofs(authority, environments: ["Production", "Sandbox", "Xcode", "LocalTesting", ""])
            #expect(await refusal(text, all) == (name.isEmpty ? .malformed : .wrongEnvironment), "\(name)")
        }
    }

    @Test(arguments: [
        "transactionId", "originalTransactionId", "bundleId", "productId", "type", "inAppOwnershipType", "environment",
        "purchaseDate", "signedDate",
    ])
    func `a member that has to be there is missed`(name: String) async throws {
        let authority = try Self.authority.get()
        #expect(await refusal(try authority.sign(payload([name: NSNull()])), proofs(authority)) == .malformed)
    }

    @Test func `what is no signed transaction is refused before anything is computed`() async throws {
        let authority = try Self.authority.get()
        let verifier = proofs(authority)
        let genuine = try authority.sign(payload())
        let parts = genuine.split(separator: ".")
        let deep = String(repeating: "[", count: 100) + String(repeating: "]", count: 100)
        let malformed = [
            "", ".", "..", "a.b", genuine + ".", genuine + "=", " " + genuine, genuine + "\n",
            "\(parts[0]).\(parts[1])",
            try authority.sign("[]"), try authority.sign(""), try authority.sign("{}"), try authority.sign(deep),
            try authority.sign(payload() + " x"), try authority.sign(#"{"signedDate":1,"signedDate":2}"#),
            try authority.sign(payload(["signedDate": "now"])), try authority.sign(payload(["signedDate": 1.5])),
            try authority.sign(payload(), header: ["alg": "ES256", "x5c": authority.chain(), "crit": ["b64"]]),
        ]
        for text in malformed { #expect(await refusal(text, verifier) == .malformed, "\(text.prefix(40))") }
        let large = try authority.sign(payload(["note": String(repeating: "x", count: 70_000)]))
        #expect(await refusal(large, verifier) == .tooLarge)
        #expect(await refusal(genuine, verifier) == nil)
    }

    @Test func `altered in any byte it does not verify`() async throws {
        let authority = try Self.authority.get()
        try await refusesEveryNeighbour(of: authority.sign(payload()), proofs(authority))
    }

    @Test func `what OpenSSL signed verifies, and altered in any byte it does not`() async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        // The certificates are yet to be made: however long that takes, it is signed after it.
        let written = try payload(["signedDate": "$NOW"])
        try written.write(toFile: folder + "/payload", atomically: false, encoding: .utf8)
        let complaint = try await SigningFixture.run("sign_transaction.py", in: folder, from: "payload", to: "jws")
        #expect(complaint.isEmpty)
        let root = try String(contentsOfFile: folder + "/root.pem", encoding: .utf8)
        let text = try String(contentsOfFile: folder + "/jws", encoding: .utf8).trimmingCharacters(in: .newlines)
        let verifier = AppStoreProofs(
            roots: try AppStoreRoots.read(pem: root),
            expected: .init(bundleID: "com.example.app")
        )
        try await refusesEveryNeighbour(of: text, verifier)
    }

    /// A text verifies, and with any one character replaced by another it does not.
    private func refusesEveryNeighbour(of text: String, _ verifier: AppStoreProofs) async throws {
        let genuine = Array(text.utf8)
        #expect(await refusal(text, verifier) == nil)
        for index in Mutations.places(of: genuine) {
            var altered = genuine
            altered[index] = altered[index] == UInt8(ascii: "A") ? UInt8(ascii: "B") : UInt8(ascii: "A")
            #expect(await refusal(String(decoding: altered, as: UTF8.self), verifier) != nil, "byte \(index)")
        }
        // Bits of the last character that mean nothing, and a signature in the other writing of itself.
        let last = try #require(genuine.last)
        for other in UInt8(ascii: "A")...UInt8(ascii: "z") where other != last {
            let altered = String(decoding: genuine.dropLast() + [other], as: UTF8.self)
            #expect(await refusal(altered, verifier) != nil, "last character \(other)")
        }
    }

    @Test(arguments: [UInt64(1), 2])
    func `whatever is done to a text, nothing but the genuine one is taken`(seed: UInt64) async throws {
        let authority = try Self.authority.get()
        let verifier = proofs(authority)
        for forgery in Mutations.forgeries(of: try authority.sign(payload()), seed: seed) {
            try #require(await refusal(forgery, verifier) != nil, "\(forgery)")
        }
    }
}
