import Crypto
import Foundation
import Glibc
import StoreClients
import StoreSimulator
import X509

/// How many signed transactions of the App Store a core checks, beside the bare cryptography of the same checks.
///
/// One after another in one task, and in processor time: neither a second core nor other processes on the machine
/// changes the figures much.
struct SignatureChecks {
    /// Checked in each round, all different.
    private static let count = 250
    /// Checked in each round by a verifier that knows no chain yet.
    private static let coldCount = 50
    private static let rounds = 15
    private static let bundleID = "com.example.app"

    /// A signed transaction, and what its signature's verification alone needs.
    private struct Sample {
        var id: String
        var text: String
        var signed: [UInt8]
        var signature: P256.Signing.ECDSASignature
    }

    /// A certificate's signature, and the key of its issuer.
    private struct Link {
        var key: P384.Signing.PublicKey
        var signed: [UInt8]
        var signature: P384.Signing.ECDSASignature

        init(_ certificate: Certificate, by issuer: Certificate) throws {
            guard let key = P384.Signing.PublicKey(issuer.publicKey) else { throw Failure() }
            self.key = key
            signed = Array(certificate.tbsCertificateBytes)
            signature = try P384.Signing.ECDSASignature(derRepresentation: certificate.signature.rawRepresentation)
        }

        func check() throws { guard key.isValidSignature(signature, for: signed) else { throw Failure() } }
    }

    private struct Failure: Error, CustomStringConvertible {
        var description: String { "a signature that is right was not verified" }
    }

    private let root: Certificate
    private let key: P256.Signing.PublicKey
    private let links: [Link]
    private let samples: [Sample]

    init() throws {
        let authority = try AppStoreAuthority()
        let certificates = authority.certificates
        root = certificates.root
        guard let key = P256.Signing.PublicKey(certificates.leaf.publicKey) else { throw Failure() }
        self.key = key
        links = [
            try Link(certificates.intermediate, by: certificates.root),
            try Link(certificates.leaf, by: certificates.intermediate),
        ]
        samples = try (1...Self.count).map { number in
            let id = String(2_000_000_700_000_000 + number)
            return try Self.sample(id, authority.sign(Self.payload(id)))
        }
    }

    /// With every member that the App Store writes for a subscription.
    private static func payload(_ id: String) -> String {
        let now = Int64(Date().timeIntervalSince1970 * 1000)
        return """
            {"transactionId":"\(id)","originalTransactionId":"2000000700000000","webOrderLineItemId":"2000000068\(id)",\
            "bundleId":"\(bundleID)","productId":"com.example.app.premium.monthly",\
            "subscriptionGroupIdentifier":"21460000","purchaseDate":\(now - 86_400_000),\
            "originalPurchaseDate":\(now - 864_000_000),"expiresDate":\(now + 2_592_000_000),"quantity":1,\
            "type":"Auto-Renewable Subscription","appAccountToken":"\(UUID().uuidString.lowercased())",\
            "inAppOwnershipType":"PURCHASED","signedDate":\(now),"environment":"Production",\
            "transactionReason":"RENEWAL","storefront":"USA","storefrontId":"143441","price":9990,"currency":"USD",\
            "appTransactionId":"704289572311588137"}
            """
    }

    private static func sample(_ id: String, _ text: String) throws -> Sample {
        guard let dot = text.lastIndex(of: ".") else { throw Failure() }
        let written = String(text[text.index(after: dot)...]).replacing("-", with: "+").replacing("_", with: "/") + "=="
        guard let signature = Data(base64Encoded: written) else { throw Failure() }
        return Sample(
            id: id,
            text: text,
            signed: Array(text[..<dot].utf8),
            signature: try P256.Signing.ECDSASignature(rawRepresentation: signature)
        )
    }

    /// Measures checks a second and core for a few seconds, the limits among them.
    func measure() async throws -> [BenchMeasurement] {
        let warm = proofs()
        let few = samples.prefix(Self.coldCount)
        var figures: [[Double]] = []
        // In turns, so that all of them see the same machine; the first round only warms up.
        for round in 0...Self.rounds {
            let rates = [
                try await rate(samples) { try checkRaw($0) },
                try await rate(samples) { try await check($0, warm) },
                try await rate(few) { sample in
                    for link in links { try link.check() }
                    try checkRaw(sample)
                },
                try await rate(few) { try await check($0, proofs()) },
            ]
            if round > 0 { figures.append(rates) }
        }
        let medians = (0..<4).map { kind in figures.map { $0[kind] }.percentile(50) }
        return [
            BenchMeasurement("raw_p256", medians[0], "checks/s"),
            BenchMeasurement("signatures", medians[1], "checks/s", limit: medians[0], target: 0.7),
            BenchMeasurement("raw_chain", medians[2], "checks/s"),
            BenchMeasurement("signatures_cold", medians[3], "checks/s", limit: medians[2], target: 0.3),
        ]
    }

    private func proofs() -> AppStoreProofs {
        AppStoreProofs(roots: [root], expected: AppStoreProofs.Expectation(bundleID: Self.bundleID))
    }

    /// The bare cryptography, with everything read beforehand.
    private func checkRaw(_ sample: Sample) throws {
        guard key.isValidSignature(sample.signature, for: sample.signed) else { throw Failure() }
    }

    private func check(_ sample: Sample, _ proofs: AppStoreProofs) async throws {
        guard try await proofs.transaction(sample.text).transactionID == sample.id else { throw Failure() }
    }

    private func rate(
        _ samples: some Collection<Sample>,
        _ body: (Sample) async throws -> Void
    ) async throws -> Double {
        let before = Self.processorTime()
        for sample in samples { try await body(sample) }
        return Double(samples.count) / (Self.processorTime() - before)
    }

    /// What this process has used so far, in seconds; POSIX counts it in millionths.
    private static func processorTime() -> Double { Double(clock()) / 1e6 }
}
