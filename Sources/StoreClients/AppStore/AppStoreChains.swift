import Crypto
import SignedTokens
import SwiftASN1
import TextFormats
import X509

/// Finds out whether the certificates of a header lead to a root that is pinned, and whose key signs.
///
/// What is remembered is that they do, and between which dates all three are valid; each signature's own date is
/// compared with those each time.
///
/// - SeeAlso: RFC 5280; RFC 7515, section 4.1.6
final class AppStoreChains: Sendable {
    typealias Signer = TrustedSigner<P256.Signing.PublicKey>

    private let roots: PinnedRoots
    private let known = KnownSigners<WrittenBytes, P256.Signing.PublicKey>()

    init(roots: [Certificate]) { self.roots = PinnedRoots(roots: roots) }

    /// Who signed a text, by the certificates that it names.
    func signer(of text: CompactJWS) async throws(ProofRefusal) -> Signer {
        let name = WrittenBytes(bytes: text.writtenHeader)
        if let signer = known[name] { return signer }
        let header = try text.header()
        guard header.algorithm == "ES256" else {
            throw ProofRefusal(.wrongAlgorithm, "The header's algorithm is not ES256.")
        }
        let signer = try await verify(header.certificates)
        known.remember(signer, as: name.copy)
        return signer
    }

    private func verify(_ certificates: [String]) async throws(ProofRefusal) -> Signer {
        guard certificates.count == 3 else {
            throw ProofRefusal(.wrongChainLength, "The header has \(certificates.count) certificates instead of 3.")
        }
        // The third is counted and not used: the anchor is ours.
        let leaf = try Self.parse(certificates[0], "signer's")
        let intermediate = try Self.parse(certificates[1], "authority's")
        let path = try await roots.path(from: leaf, over: intermediate)
        guard let key = P256.Signing.PublicKey(leaf.publicKey) else {
            throw ProofRefusal(.badCertificate, "The signer's key is not of the curve P-256.")
        }
        return Signer(key, path)
    }

    private static func parse(_ text: String, _ whose: String) throws(ProofRefusal) -> Certificate {
        guard let bytes = Base64.decode(text.utf8, .standard), let certificate = try? Certificate(derEncoded: bytes)
        else {
            throw ProofRefusal(.badCertificate, "The \(whose) certificate does not decode.")
        }
        return certificate
    }
}
