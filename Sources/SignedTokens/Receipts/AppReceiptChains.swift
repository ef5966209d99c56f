package import CryptoExtras
import SwiftASN1
package import X509

/// Finds out whether the certificates of an app receipt lead to a root that is pinned, and whose key signs.
///
/// As with `AppStoreChains`, what is remembered is that the certificates lead to the root, and between which dates they
/// are valid; each receipt's own date is compared with those each time. Certificates of before 2023 are signed with
/// SHA-1, and they count, since receipts stay on devices: no attacker can make a second certificate for a signature
/// that exists, only two for one that is yet to be given, and Apple gives no more of those.
///
/// - SeeAlso: RFC 5280; https://developer.apple.com/documentation/technotes/tn3138-handling-app-store-receipt-signing-certificate-changes
package final class AppReceiptChains: Sendable {
    package typealias Signer = TrustedSigner<_RSA.Signing.PublicKey>

    private static let minimumKeyBits = 2048

    private let roots: PinnedRoots
    private let known = KnownSigners<[WrittenBytes], _RSA.Signing.PublicKey>()

    package init(roots: [Certificate]) { self.roots = PinnedRoots(roots: roots) }

    /// Who signed a receipt, by the certificates in it, from the one that its signer names.
    package func signer(of container: AppReceiptContainer) async throws(ProofRefusal) -> Signer {
        let path = try Self.path(container)
        let name = path.map { WrittenBytes(bytes: $0.whole) }
        if let signer = known[name] { return signer }
        let signer = try await verify(path)
        known.remember(signer, as: name.map(\.copy))
        return signer
    }

    /// The three certificates in order: the signer's, its authority's, the other.
    private static func path(_ container: AppReceiptContainer) throws(ProofRefusal) -> [AppReceiptCertificate] {
        guard container.certificates.count == 3 else {
            throw ProofRefusal(.wrongChainLength, "It has \(container.certificates.count) certificates instead of 3.")
        }
        var rest: [AppReceiptCertificate] = []
        for written in container.certificates { rest.append(try AppReceiptCertificate(written)) }
        guard
            let signer = rest.firstIndex(where: {
                $0.serial == container.signer.serial && $0.issuer == container.signer.issuer
            })
        else { throw ProofRefusal(.badCertificate, "The signer's certificate is not among those in it.") }
        let leaf = rest.remove(at: signer)
        guard let authority = rest.firstIndex(where: { $0.subject == leaf.issuer }) else {
            throw ProofRefusal(.untrustedChain, "The certificate of the signer's authority is not among those in it.")
        }
        let intermediate = rest.remove(at: authority)
        return [leaf, intermediate] + rest
    }

    private func verify(_ path: [AppReceiptCertificate]) async throws(ProofRefusal) -> Signer {
        let chain = try await roots.path(from: path[0].parsed("signer's"), over: path[1].parsed("authority's"))
        let keys = chain.compactMap { _RSA.Signing.PublicKey($0.publicKey) }
        guard keys.count == 3, keys.allSatisfy({ $0.keySizeInBits >= Self.minimumKeyBits }) else {
            throw ProofRefusal(.badCertificate, "A key is not one of RSA with \(Self.minimumKeyBits) bits or more.")
        }
        try check(third: path[2], against: chain[2])
        return Signer(keys[0], chain)
    }

    /// Makes sure that the third certificate is the root, even if it was issued again: the anchor is ours, but nothing
    /// may stand in a receipt that no signature covers.
    private func check(third: AppReceiptCertificate, against root: Certificate) throws(ProofRefusal) {
        let certificate = try third.parsed("third")
        guard certificate.subject == root.subject, certificate.publicKey == root.publicKey,
            root.publicKey.isValidSignature(certificate.signature, for: certificate)
        else { throw ProofRefusal(.untrustedChain, "The third certificate is not the pinned root's.") }
    }
}

/// A certificate as it stands in a receipt.
struct AppReceiptCertificate {
    /// The largest that is read, in bytes, as it is parsed before it is verified; the App Store's have 1,500.
    private static let maximumBytes = 16 << 10

    var whole: ArraySlice<UInt8>
    /// Names and number, as they were written.
    var issuer: ArraySlice<UInt8>
    var subject: ArraySlice<UInt8>
    var serial: ArraySlice<UInt8>
}

extension AppReceiptCertificate {
    /// Finds the parts that are compared.
    init(_ written: ArraySlice<UInt8>) throws(ProofRefusal) {
        do throws(ASN1Fault) {
            self = try Self.read(written)
        } catch {
            throw ProofRefusal(.badCertificate, "A certificate does not decode, or is huge.")
        }
    }

    private static func read(_ written: ArraySlice<UInt8>) throws(ASN1Fault) -> AppReceiptCertificate {
        typealias Tag = ASN1Reader.Tag
        guard written.count <= maximumBytes else { throw .malformed }
        var file = ASN1Reader(written)
        var parts = try file.next(Tag.sequence).elements()
        var signed = try parts.next(Tag.sequence).elements()
        let algorithm = try parts.next(Tag.sequence).whole
        let signature = try parts.next(Tag.bitString).content
        try parts.finish()
        _ = try signed.next(Tag.context(0))
        let serial = try signed.next(Tag.integer).whole
        // Outside of what is signed stand the algorithm, once more, and how many bits of the signature do not count.
        guard try signed.next(Tag.sequence).whole == algorithm, signature.first == 0 else { throw .malformed }
        let issuer = try signed.next(Tag.sequence).whole
        _ = try signed.next(Tag.sequence)
        let subject = try signed.next(Tag.sequence).whole
        return AppReceiptCertificate(whole: written, issuer: issuer, subject: subject, serial: serial)
    }

    /// Reads all of it.
    func parsed(_ whose: String) throws(ProofRefusal) -> Certificate {
        guard let certificate = try? Certificate(derEncoded: Array(whole)) else {
            throw ProofRefusal(.badCertificate, "The \(whose) certificate does not decode.")
        }
        return certificate
    }
}
