import CryptoExtras
import Entitlements
import Foundation
@testable import SignedTokens
@testable import StoreClients
import StoreSimulator
import SwiftASN1
import Testing
import X509

/// App receipts: whose signature counts, and what has to be right around it.
struct AppReceiptTests {
    typealias Attribute = ReceiptDescription.Attribute
    typealias Algorithm = ReceiptContainer.Algorithm

    private static let authority = Result { try ReceiptAuthority() }
    private static let otherKeys = Result { try ReceiptAuthority.Keys() }

    static func proofs(
        _ authority: ReceiptAuthority,
        bundleID: String? = "com.example.app",
        environments: Set<String> = ["Production", "Sandbox"]
    ) -> AppReceiptProofs {
        AppReceiptProofs(
            roots: [authority.certificates.root],
            expected: AppStoreProofs.Expectation(bundleID: bundleID, environments: environments)
        )
    }

    static func refusal(_ text: String, _ proofs: AppReceiptProofs) async -> ProofRefusal.Code? {
        do throws(ProofRefusal) {
            _ = try await proofs.receipt(text)
            return nil
        } catch {
            return error.code
        }
    }

    private func base64(_ bytes: [UInt8]) -> String { Data(bytes).base64EncodedString() }

    /// A container that was altered after it was signed.
    private func altered(
        _ payload: [UInt8] = ReceiptDescription().payload(),
        digest: ReceiptAuthority.Digest = .sha256,
        _ change: (inout ReceiptContainer) throws -> Void
    ) throws -> String {
        var container = try Self.authority.get().sign(payload, digest: digest)
        try change(&container)
        return container.text()
    }

    @Test func `a receipt that the store signed verifies and says what it says`() async throws {
        let authority = try Self.authority.get()
        let now = Date(timeIntervalSince1970: Date().timeIntervalSince1970.rounded(.down))
        func instant(_ date: Date) -> Instant { Instant(microseconds: Int64(date.timeIntervalSince1970) * 1_000_000) }
        var monthly = ReceiptDescription.Purchase(
            productID: "monthly",
            transactionID: "2000000700000002",
            originalTransactionID: "2000000700000001",
            purchasedAt: now - 86_400,
            expiresAt: now + 86_400
        )
        monthly.quantity = 2
        monthly.canceledAt = now - 3_600
        monthly.webOrderLineItemID = 2_000_000_000_000_007
        monthly.isTrial = true
        monthly.isIntroOffer = true
        monthly.promotionalOfferID = "spring"
        let once = ReceiptDescription.Purchase(productID: "lifetime", transactionID: "7", purchasedAt: now, kind: 0)
        var description = ReceiptDescription(createdAt: now, purchases: [monthly, once])
        description.appID = 1_234_567_890
        description.expiresAt = now + 1_000_000
        let receipt = try await Self.proofs(authority).receipt(authority.receipt(description))
        #expect(receipt.environment == "Production" && !receipt.isSandbox && receipt.bundleID == "com.example.app")
        #expect(receipt.appVersion == "42" && receipt.originalAppVersion == "1.0" && receipt.appID == 1_234_567_890)
        #expect(receipt.createdAt == instant(now) && receipt.expiresAt == instant(now + 1_000_000))
        #expect(
            receipt.purchases == [
                AppReceipt.InApp(
                    quantity: 2,
                    productID: "monthly",
                    transactionID: "2000000700000002",
                    originalTransactionID: "2000000700000001",
                    purchasedAt: instant(now - 86_400),
                    originallyPurchasedAt: instant(now - 86_400),
                    expiresAt: instant(now + 86_400),
                    canceledAt: instant(now - 3_600),
                    kind: 3,
                    webOrderLineItemID: 2_000_000_000_000_007,
                    isTrial: true,
                    isIntroOffer: true,
                    promotionalOfferID: "spring"
                ),
                AppReceipt.InApp(
                    quantity: 1,
                    productID: "lifetime",
                    transactionID: "7",
                    originalTransactionID: "7",
                    purchasedAt: instant(now),
                    originallyPurchasedAt: instant(now),
                    kind: 0,
                    isTrial: false,
                    isIntroOffer: false
                ),
            ],
            "what is empty or zero does not apply"
        )
    }

    @Test(arguments: ReceiptAuthority.Digest.allCases, ReceiptAuthority.Digest.allCases)
    func `either digest counts under certificates of either generation`(
        generation: ReceiptAuthority.Digest,
        digest: ReceiptAuthority.Digest
    ) async throws {
        let authority = try ReceiptAuthority(generation)
        let verifier = Self.proofs(authority)
        let text = try authority.receipt(ReceiptDescription(), digest: digest)
        #expect(await Self.refusal(text, verifier) == nil)
        #expect(await Self.refusal(text, verifier) == nil, "also where the chain is known")
    }

    @Test func `the root that is shipped is Apple's, and trusts nobody else`() async throws {
        let roots = try AppStoreRoots.shippedForReceipts()
        #expect(
            roots.map { "\($0.subject)" } == ["CN=Apple Root CA,OU=Apple Certification Authority,O=Apple Inc.,C=US"]
        )
        let proofs = AppReceiptProofs(roots: roots, expected: .init(bundleID: nil))
        let text = try Self.authority.get().receipt(ReceiptDescription())
        #expect(await Self.refusal(text, proofs) == .untrustedChain)
    }

    @Test(arguments: [
        (SigningCertificates.Flaws.noLeafMarker, ProofRefusal.Code.missingLeafMarker),
        (.noIntermediateMarker, .missingIntermediateMarker), (.intermediateIsNoAuthority, .untrustedChain),
        (.intermediateMayNotSign, .badCertificate), (.strangeLeaf, .untrustedChain),
    ])
    func `a flaw of the certificates is named`(flaw: SigningCertificates.Flaws, code: ProofRefusal.Code) async throws {
        let flawed = try ReceiptAuthority(flaws: flaw)
        #expect(await Self.refusal(try flawed.receipt(ReceiptDescription()), Self.proofs(flawed)) == code)
    }

    @Test func `no key is shorter than 2048 bits, and no certificate is huge`() async throws {
        var keys = try ReceiptAuthority.Keys.shared()
        keys.leaf = try _RSA.Signing.PrivateKey(unsafeKeySize: .init(bitCount: 1024))
        let short = try ReceiptAuthority(keys: keys)
        #expect(await Self.refusal(try short.receipt(ReceiptDescription()), Self.proofs(short)) == .badCertificate)
        let huge = try altered { $0.certificates[2] = DERBytes.element(0x30, Array(repeating: 5, count: 20_000)) }
        #expect(await Self.refusal(huge, Self.proofs(try Self.authority.get())) == .badCertificate)
    }

    @Test func `an authority's certificate that leaves its key's usage out is judged by the rest of it`() async throws {
        let fine = try ReceiptAuthority(flaws: .intermediateHasNoUsage)
        #expect(await Self.refusal(try fine.receipt(ReceiptDescription()), Self.proofs(fine)) == nil)
        let odd = try ReceiptAuthority(flaws: [.intermediateHasNoUsage, .intermediateIsNoAuthority])
        #expect(await Self.refusal(try odd.receipt(ReceiptDescription()), Self.proofs(odd)) == .untrustedChain)
    }

    @Test func `only a pinned root counts; in a receipt it may be issued anew`() async throws {
        let ours = try Self.authority.get()
        let other = try ReceiptAuthority(keys: Self.otherKeys.get())
        let verifier = Self.proofs(ours)
        #expect(await Self.refusal(try other.receipt(ReceiptDescription()), verifier) == .untrustedChain)
        // The same keys and names, issued again: the root, then one that only has its name.
        let again = try ReceiptAuthority().sign([]).certificates[2]
        #expect(try again != ours.sign([]).certificates[2])
        #expect(await Self.refusal(try altered { $0.certificates[2] = again }, verifier) == nil)
        let disguised = try other.sign([]).certificates[2]
        #expect(await Self.refusal(try altered { $0.certificates[2] = disguised }, verifier) == .untrustedChain)
        let doubled = try altered { $0.certificates[2] = $0.certificates[1] }
        #expect(await Self.refusal(doubled, verifier) == .untrustedChain)
    }

    @Test func `a swapped leaf does not carry another's signature`() async throws {
        let ours = try Self.authority.get()
        let other = try ReceiptAuthority(keys: Self.otherKeys.get())
        let verifier = Self.proofs(ours)
        let forged = try other.sign(ReceiptDescription().payload())
        let swapped = try altered { $0.signers[0].signature = forged.signers[0].signature }
        #expect(await Self.refusal(swapped, verifier) == .badSignature)
        let unnamed = try altered { $0.certificates[0] = forged.certificates[0] }
        #expect(await Self.refusal(unnamed, verifier) == .badCertificate)
        let named = try altered {
            $0.certificates[0] = forged.certificates[0]
            $0.signers = forged.signers
        }
        #expect(await Self.refusal(named, verifier) == .untrustedChain)
    }

    @Test func `certificates are found in any order, and there are three`() async throws {
        let verifier = Self.proofs(try Self.authority.get())
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
            let text = try altered { container in container.certificates = order.map { container.certificates[$0] } }
            #expect(await Self.refusal(text, verifier) == nil, "\(order)")
        }
        for order in [[], [0], [0, 1], [0, 1, 2, 2], [0, 1, 2, 0]] {
            let text = try altered { container in container.certificates = order.map { container.certificates[$0] } }
            #expect(await Self.refusal(text, verifier) == .wrongChainLength, "\(order)")
        }
    }

    @Test func `bits of a certificate that nobody signed may not be altered`() async throws {
        let verifier = Self.proofs(try Self.authority.get())
        // How many bits of the signature do not count stands before its 256 bytes.
        for index in 0..<3 {
            let text = try altered { container in
                let place = container.certificates[index].count - 257
                container.certificates[index][place] = 1
            }
            #expect(await Self.refusal(text, verifier) == .badCertificate)
        }
    }

    @Test func `the certificates have to be valid when it was made, not today; also where the chain is known`()
        async throws
    {
        let start = Date(timeIntervalSince1970: 1_500_000_000)
        let old = try ReceiptAuthority(.sha1, validFrom: start, validUntil: start + 86_400)
        let verifier = Self.proofs(old)
        func code(_ date: Date) async throws -> ProofRefusal.Code? {
            await Self.refusal(try old.receipt(ReceiptDescription(createdAt: date), digest: .sha1), verifier)
        }
        #expect(try await code(start) == nil)
        #expect(try await code(start + 86_400) == nil)
        #expect(try await code(start - 1) == .notYetValid)
        #expect(try await code(start + 86_401) == .expired)
        #expect(try await code(Date()) == .expired)
    }

    @Test func `app and environment have to be ours`() async throws {
        let authority = try Self.authority.get()
        let foreign = try authority.receipt(ReceiptDescription(bundleID: "com.example.other"))
        #expect(await Self.refusal(foreign, Self.proofs(authority)) == .wrongBundle)
        #expect(await Self.refusal(foreign, Self.proofs(authority, bundleID: nil)) == nil)
        for (type, environment) in [
            ("Production", "Production"), ("ProductionVPP", "Production"), ("ProductionSandbox", "Sandbox"),
            ("ProductionVPPSandbox", "Sandbox"),
        ] {
            let text = try authority.receipt(ReceiptDescription(type: type))
            let other = environment == "Sandbox" ? "Production" : "Sandbox"
            #expect(await Self.refusal(text, Self.proofs(authority, environments: [environment])) == nil)
            #expect(await Self.refusal(text, Self.proofs(authority, environments: [other])) == .wrongEnvironment)
            #expect(AppReceiptProofs.unverified(text)?.isSandbox == (environment == "Sandbox"))
        }
        for type in ["Xcode", "Sandbox", "production", ""] {
            let text = try authority.receipt(ReceiptDescription(type: type))
            let all = Self.proofs(authority, environments: ["Production", "Sandbox", "Xcode", ""])
            #expect(await Self.refusal(text, all) == (type.isEmpty ? .malformed : .wrongEnvironment), "\(type)")
        }
    }

    @Test func `a signature over attributes is refused, and what nobody signed is`() async throws {
        let verifier = Self.proofs(try Self.authority.get())
        let attributes = Attribute.set([.text(1, "x")])
        let signed = try altered { $0.signers[0].signedAttributes = [0xA0] + attributes.dropFirst() }
        #expect(await Self.refusal(signed, verifier) == .signedAttributes)
        let unsigned = try altered { $0.signers[0].unsignedAttributes = [0xA1] + attributes.dropFirst() }
        #expect(await Self.refusal(unsigned, verifier) == .malformed)
        let revoking = try altered { $0.revocationLists = [0xA1, 0x00] }
        #expect(await Self.refusal(revoking, verifier) == .malformed)
    }

    @Test func `no other digest and no other algorithm counts`() async throws {
        let verifier = Self.proofs(try Self.authority.get())
        for digest in [Algorithm.md5, Algorithm.sha512] {
            let text = try altered {
                $0.digests = [digest]
                $0.signers[0].digest = digest
            }
            #expect(await Self.refusal(text, verifier) == .wrongAlgorithm)
        }
        for algorithm in [Algorithm.sha1WithRSA, Algorithm.pss, Algorithm.sha256] {
            let text = try altered { $0.signers[0].algorithm = algorithm }
            #expect(await Self.refusal(text, verifier) == .wrongAlgorithm)
        }
        // A digest of another length than the one that was signed, and one that is named once only.
        let other = try altered(digest: .sha1) {
            $0.digests = [Algorithm.sha256]
            $0.signers[0].digest = Algorithm.sha256
        }
        #expect(await Self.refusal(other, verifier) == .badSignature)
        let once = try altered { $0.digests = [Algorithm.sha1] }
        #expect(await Self.refusal(once, verifier) == .malformed)
        let twice = try altered { $0.digests = [Algorithm.sha256, Algorithm.sha1] }
        #expect(await Self.refusal(twice, verifier) == .malformed)
        let contradiction = try altered(digest: .sha1) { $0.signers[0].algorithm = Algorithm.sha256WithRSA }
        #expect(await Self.refusal(contradiction, verifier) == .wrongAlgorithm)
        let named = try altered { $0.signers[0].algorithm = Algorithm.sha256WithRSA }
        #expect(await Self.refusal(named, verifier) == nil, "the other name of the same")
    }

    @Test func `there is one signer, of version 1`() async throws {
        let verifier = Self.proofs(try Self.authority.get())
        #expect(await Self.refusal(try altered { $0.signers += $0.signers }, verifier) == .malformed)
        #expect(await Self.refusal(try altered { $0.signers = [] }, verifier) == .malformed)
        #expect(await Self.refusal(try altered { $0.signers[0].version[2] = 3 }, verifier) == .malformed)
        #expect(await Self.refusal(try altered { $0.version[2] = 3 }, verifier) == .malformed)
        #expect(await Self.refusal(try altered { $0.version = [0x02, 0x02, 0x00, 0x01] }, verifier) == .malformed)
        #expect(await Self.refusal(try altered { $0.signers[0].signature.insert(0, at: 0) }, verifier) == .badSignature)
    }

    @Test func `altered content is not what was signed`() async throws {
        let verifier = Self.proofs(try Self.authority.get())
        let text = try altered { $0.payload = ReceiptDescription(bundleID: "com.example.apq").payload() }
        #expect(await Self.refusal(text, verifier) == .badSignature)
    }

    @Test func `what is no container is refused before anything is computed`() async throws {
        let authority = try Self.authority.get()
        let verifier = Self.proofs(authority)
        let genuine = try authority.sign(ReceiptDescription().payload())
        let lines = Data(genuine.bytes()).base64EncodedString(options: .lineLength64Characters)
        let deep = (0..<40).reduce([UInt8]()) { nested, _ in DERBytes.element(0x30, nested) }
        let deeper = Array(repeating: [0x30, 0x80] as [UInt8], count: 100_000).flatMap { $0 }
        let malformed = [
            "", "=", "AAAA", lines, " " + genuine.text(), genuine.text() + "\n", base64(genuine.bytes() + [0]),
            base64(genuine.bytes().dropLast()), base64(genuine.bytes() + genuine.bytes()), base64(deep), base64(deeper),
            base64(DERBytes.element(0x30, [])), base64([0x30, 0x80, 0x00, 0x00]), base64([0x30, 0x84, 0xFF]),
            base64([0x30, 0x88] + Array(repeating: 0xFF, count: 8)), base64(genuine.payload),
        ]
        for text in malformed { #expect(await Self.refusal(text, verifier) == .malformed, "\(text.prefix(40))") }
        let large = try authority.receipt(ReceiptDescription(bundleID: String(repeating: "x", count: 1 << 20)))
        #expect(await Self.refusal(large, verifier) == .tooLarge)
        #expect(await Self.refusal(String(repeating: "A", count: 1 << 24), verifier) == .tooLarge)
        #expect(await Self.refusal(genuine.text(), verifier) == nil)
    }

    @Test func `5,000 purchases are read, 5,001 are not`() async throws {
        let authority = try Self.authority.get()
        let verifier = Self.proofs(authority)
        let purchase = Attribute(17, Attribute.set([.text(1702, "gems"), .text(1703, "1")]))
        let rest = ReceiptDescription().attributes
        let many = try authority.sign(Attribute.set(rest + Array(repeating: purchase, count: 5_000))).text()
        #expect(try await verifier.receipt(many).purchases.count == 5_000)
        let tooMany = try authority.sign(Attribute.set(rest + Array(repeating: purchase, count: 5_001))).text()
        #expect(await Self.refusal(tooMany, verifier) == .tooLarge)
    }

    @Test(arguments: [1, 100, 100_000])
    func `a container in pieces and of indefinite length, as Xcode writes it, is read`(size: Int) async throws {
        let authority = try Self.authority.get()
        let verifier = Self.proofs(authority)
        let container = try authority.sign(ReceiptDescription().payload())
        let bytes = container.bytes(inPieces: size)
        #expect(await Self.refusal(base64(bytes), verifier) == nil)
        #expect(await Self.refusal(base64(Array(bytes.dropLast())), verifier) == .malformed)
        #expect(await Self.refusal(base64(bytes + [0, 0]), verifier) == .malformed)
        // A length of two bytes where one would do; the marks of the ends stay where they are.
        let version = try #require(bytes.indices.first { bytes[$0...].starts(with: [0x02, 0x01, 0x01, 0x31]) })
        var longer = bytes
        longer.insert(0x81, at: version + 1)
        #expect(await Self.refusal(base64(longer), verifier) == .malformed)
    }

    @Test func `what Xcode signs has one certificate, and counts nowhere`() async throws {
        let authority = try Self.authority.get()
        let description = ReceiptDescription(type: "Xcode")
        var container = try authority.sign(description.payload())
        container.certificates = [container.certificates[2]]
        let text = base64(container.bytes(inPieces: 300))
        #expect(await Self.refusal(text, Self.proofs(authority)) == .wrongChainLength)
        #expect(AppReceiptProofs.unverified(text)?.environment == "Xcode", "it is shown to whoever looks into it")
        #expect(AppReceiptProofs.unverified(text)?.isSandbox == true)
    }
}
