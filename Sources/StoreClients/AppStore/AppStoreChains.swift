import Crypto
import Entitlements
import Foundation
import SwiftASN1
import Synchronization
@_spi(DisableValidityCheck) import X509

/// Finds out whether the certificates of a header lead to a root that is pinned, and whose key signs.
///
/// What is remembered is that a pair of certificates chains to the root, and between which dates all three are valid;
/// each signature's own date is compared with those anew. Nothing is asked of anybody: revocation is not looked up.
///
/// - SeeAlso: RFC 5280; RFC 7515, section 4.1.6
final class AppStoreChains: Sendable {
    /// A chain that leads to a root.
    struct Chain: Sendable {
        var key: P256.Signing.PublicKey
        var validFrom: Instant
        var validUntil: Instant
    }

    /// A signer's mark in the leaf, and the mark of the authority that signs such leaves: any other certificate under the
    /// same root belongs to some developer.
    static let leafMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 11, 1]
    static let intermediateMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 2, 1]
    /// Chains that are remembered; there are a few at a time.
    private static let capacity = 64

    private let roots: [Certificate]
    private let known = Mutex<[WrittenBytes: Chain]>([:])

    init(roots: [Certificate]) { self.roots = roots }

    /// The chain that a signed text names.
    ///
    /// - Throws: `ProofRefusal`.
    func chain(of text: CompactJWS) async throws(ProofRefusal) -> Chain {
        let key = WrittenBytes(bytes: text.writtenHeader)
        if let chain = known.withLock({ $0[key] }) { return chain }
        let header = try text.header()
        guard header.algorithm == "ES256" else {
            throw ProofRefusal(.wrongAlgorithm, "The header's algorithm is not ES256.")
        }
        let chain = try await verify(header.certificates)
        known.withLock { known in
            // All of them, for whoever may have filled it; the genuine ones are few and soon back.
            if known.count >= Self.capacity { known = [:] }
            known[key.copy] = chain
        }
        return chain
    }

    private func verify(_ certificates: [String]) async throws(ProofRefusal) -> Chain {
        guard certificates.count == 3 else {
            throw ProofRefusal(.wrongChainLength, "The header has \(certificates.count) certificates instead of 3.")
        }
        // The third is counted and not used: the anchor is ours.
        let leaf = try Self.parse(certificates[0], "signer's")
        let intermediate = try Self.parse(certificates[1], "authority's")
        guard leaf.extensions[oid: Self.leafMarker] != nil else {
            throw ProofRefusal(
                .missingLeafMarker,
                "The signer's certificate lacks the mark of the App Store's signers."
            )
        }
        guard intermediate.extensions[oid: Self.intermediateMarker] != nil else {
            throw ProofRefusal(.missingIntermediateMarker, "The authority's certificate lacks the mark of its kind.")
        }
        guard let key = P256.Signing.PublicKey(leaf.publicKey) else {
            throw ProofRefusal(.badCertificate, "The signer's key is not of the curve P-256.")
        }
        guard let usage = try? intermediate.extensions.keyUsage, usage.keyCertSign else {
            throw ProofRefusal(.badCertificate, "The authority's certificate is not one that may sign certificates.")
        }
        let path = await path(from: leaf, over: intermediate)
        guard path.count == 3 else {
            throw ProofRefusal(.untrustedChain, "The certificates do not lead to a pinned root.")
        }
        return Chain(
            key: key,
            validFrom: path.map { Self.instant($0.notValidBefore) }.reduce(Self.instant(.distantPast), max),
            validUntil: path.map { Self.instant($0.notValidAfter) }.reduce(Self.instant(.distantFuture), min)
        )
    }

    /// The certificates from a leaf over the one intermediate to a root; empty where there is no such path.
    private func path(from leaf: Certificate, over intermediate: Certificate) async -> [Certificate] {
        // Dates are compared with each signature's, not with today's.
        var verifier = Verifier(rootCertificates: CertificateStore(roots)) { RFC5280Policy.withValidityCheckDisabled() }
        let result = await verifier.validate(leaf: leaf, intermediates: CertificateStore([intermediate]))
        guard case .validCertificate(let chain) = result else { return [] }
        return Array(chain)
    }

    private static func parse(_ text: String, _ whose: String) throws(ProofRefusal) -> Certificate {
        guard let bytes = Base64.decode(text.utf8, .standard), let certificate = try? Certificate(derEncoded: bytes)
        else {
            throw ProofRefusal(.badCertificate, "The \(whose) certificate does not decode.")
        }
        return certificate
    }

    private static func instant(_ date: Date) -> Instant {
        Instant(microseconds: Int64(date.timeIntervalSince1970 * 1_000_000))
    }
}
