package import Entitlements
import Foundation
import SwiftASN1
import Synchronization
@_spi(DisableValidityCheck) package import X509

/// The roots that are pinned, and what has to hold of certificates that lead to one of them.
///
/// No request is made: revocation is not checked.
///
/// - SeeAlso: RFC 5280
package struct PinnedRoots: Sendable {
    /// A signer's mark in the leaf, and the mark of the authority that signs such leaves: any other certificate under
    /// the same root belongs to some developer.
    private static let leafMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 11, 1]
    private static let intermediateMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 2, 1]

    private let roots: [Certificate]

    package init(roots: [Certificate]) { self.roots = roots }

    /// The certificates from a leaf over the one intermediate to a root.
    package func path(from leaf: Certificate, over intermediate: Certificate) async throws(ProofRefusal)
        -> [Certificate]
    {
        guard leaf.extensions[oid: Self.leafMarker] != nil else {
            throw ProofRefusal(
                .missingLeafMarker,
                "The signer's certificate lacks the mark of the App Store's signers."
            )
        }
        guard intermediate.extensions[oid: Self.intermediateMarker] != nil else {
            throw ProofRefusal(.missingIntermediateMarker, "The authority's certificate lacks the mark of its kind.")
        }
        // A certificate without the extension says nothing of it (RFC 5280, section 6.1.4 (n)): so do Apple's own
        // libraries read it. That it is an authority's is said, and checked, apart.
        guard let usage = try? intermediate.extensions.keyUsage?.keyCertSign ?? true, usage else {
            throw ProofRefusal(.badCertificate, "The authority's certificate is not one that may sign certificates.")
        }
        // Dates are compared with those of what was signed, not with today's.
        var verifier = Verifier(rootCertificates: CertificateStore(roots)) { RFC5280Policy.withValidityCheckDisabled() }
        let result = await verifier.validate(leaf: leaf, intermediates: CertificateStore([intermediate]))
        guard case .validCertificate(let path) = result, path.count == 3 else {
            throw ProofRefusal(.untrustedChain, "The certificates do not lead to a pinned root.")
        }
        return Array(path)
    }
}

/// What remains of certificates that lead to a root: whose key signs, and between which dates all of them are valid.
package struct TrustedSigner<Key: Sendable>: Sendable {
    package var key: Key
    package var validFrom: Instant
    package var validUntil: Instant

    package init(_ key: Key, _ path: [Certificate]) {
        self.key = key
        validFrom = path.map { Self.instant($0.notValidBefore) }.reduce(Self.instant(.distantPast), max)
        validUntil = path.map { Self.instant($0.notValidAfter) }.reduce(Self.instant(.distantFuture), min)
    }

    private static func instant(_ date: Date) -> Instant {
        Instant(microseconds: Int64(date.timeIntervalSince1970 * 1_000_000))
    }
}

/// Signers whose certificates were verified before, by those certificates as they were written.
package final class KnownSigners<Name: Hashable & Sendable, Key: Sendable>: Sendable {
    /// Those that are remembered; there are a few at a time.
    private let capacity = 64
    private let known = Mutex<[Name: TrustedSigner<Key>]>([:])

    package init() {}

    package subscript(name: Name) -> TrustedSigner<Key>? { known.withLock { $0[name] } }

    package func remember(_ signer: TrustedSigner<Key>, as name: Name) {
        known.withLock { known in
            // All of them go: an attacker may have filled it; the genuine ones are few and soon back.
            if known.count >= capacity { known = [:] }
            known[name] = signer
        }
    }
}

/// Bytes as a key of what is remembered about them.
///
/// An array's own hash takes byte by byte, which for the certificates of one text costs a tenth of a signature's
/// verification.
package struct WrittenBytes: Hashable, Sendable {
    package var bytes: ArraySlice<UInt8>

    package init(bytes: ArraySlice<UInt8>) { self.bytes = bytes }

    /// A copy, which doesn't keep what the bytes are a part of.
    package var copy: WrittenBytes { WrittenBytes(bytes: ArraySlice(Array(bytes))) }

    package func hash(into hasher: inout Hasher) { bytes.withUnsafeBytes { hasher.combine(bytes: $0) } }
}
