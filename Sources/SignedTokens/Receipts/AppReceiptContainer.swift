import Crypto
package import CryptoExtras
import TextFormats

/// The signed container of an app receipt (PKCS#7), taken apart and not yet verified.
///
/// The signature covers the payload alone. Everything around it is read in the one form in which the App Store writes
/// it, so that nothing can be altered or added there unnoticed: one digest, one signer, no attributes, no revocation
/// lists.
///
/// - SeeAlso: RFC 5652, section 5; RFC 2315, section 9
package struct AppReceiptContainer {
    /// The largest receipt that is read, in bytes; one with 187 purchases has 79,000.
    package static let maximumBytes = 1 << 20

    enum Digest { case sha1, sha256 }

    package var payload: [UInt8]
    var digest: Digest
    var signer: Signer
    /// In the order in which they were written.
    var certificates: [ArraySlice<UInt8>]

    private static let signedData: [UInt8] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x07, 0x02]
    private static let data: [UInt8] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x07, 0x01]

    /// How digests are written: with NULL for the parameters that they don't have, or without (RFC 5754, section 2).
    private static let digests: [(written: [UInt8], digest: Digest)] = [
        ([0x06, 0x05, 0x2B, 0x0E, 0x03, 0x02, 0x1A, 0x05, 0x00], .sha1),
        ([0x06, 0x05, 0x2B, 0x0E, 0x03, 0x02, 0x1A], .sha1),
        ([0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00], .sha256),
        ([0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01], .sha256),
    ]

    /// How signatures are written, and for which digest each may stand; the first is what the App Store writes.
    private static let signatures: [(written: [UInt8], digests: [Digest])] = [
        ([0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01, 0x05, 0x00], [.sha1, .sha256]),
        ([0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0B, 0x05, 0x00], [.sha256]),
    ]

    /// Who signed, and how.
    struct Signer {
        /// The name of the signer's issuer and the signer's number, as they were written.
        var issuer: ArraySlice<UInt8>
        var serial: ArraySlice<UInt8>
        var digest: ArraySlice<UInt8>
        var algorithm: ArraySlice<UInt8>
        var signature: ArraySlice<UInt8>

        init(_ element: ASN1Reader.Element) throws {
            typealias Tag = ASN1Reader.Tag
            var parts = try element.elements()
            guard try parts.next().integer() == 1 else { throw ASN1Fault.wrongType }
            var name = try parts.next(Tag.sequence).elements()
            issuer = try name.next(Tag.sequence).whole
            serial = try name.next(Tag.integer).whole
            try name.finish()
            digest = try parts.next(Tag.sequence).content
            // With them, the signature would cover the attributes, of which one is the payload's digest.
            guard parts.nextTag != Tag.context(0) else {
                throw ProofRefusal(.signedAttributes, "Its signature covers attributes instead of the payload.")
            }
            algorithm = try parts.next(Tag.sequence).content
            signature = try parts.next(Tag.octetString).content
            // Unsigned attributes would stand here.
            try parts.finish()
        }
    }
}

extension AppReceiptContainer {
    /// Takes a receipt, base64 without line breaks, apart.
    package init(_ text: String) throws(ProofRefusal) {
        let tooLarge = ProofRefusal(.tooLarge, "It is longer than \(Self.maximumBytes) bytes.")
        guard text.utf8.count <= (Self.maximumBytes + 2) / 3 * 4 else { throw tooLarge }
        guard let bytes = Base64.decode(text.utf8, .standard) else {
            throw ProofRefusal(.malformed, "It is not base64 without line breaks.")
        }
        guard bytes.count <= Self.maximumBytes else { throw tooLarge }
        do {
            self = try Self.read(bytes)
        } catch let refusal as ProofRefusal {
            throw refusal
        } catch ASN1Fault.tooDeep {
            throw ProofRefusal(.malformed, "It is nested deeper than a receipt of the App Store's.")
        } catch {
            throw ProofRefusal(
                .malformed,
                "It is not a signed container (PKCS#7) in the form of the App Store's: a part is missing, is too much, "
                    + "or is written in another way."
            )
        }
    }

    private static func read(_ bytes: [UInt8]) throws -> AppReceiptContainer {
        typealias Tag = ASN1Reader.Tag
        var file = ASN1Reader(bytes[...])
        var info = try file.next(Tag.sequence).elements()
        try file.finish()
        guard try info.next(Tag.objectIdentifier).content == signedData[...] else { throw ASN1Fault.wrongType }
        var wrapped = try info.next(Tag.context(0)).elements()
        try info.finish()
        var signed = try wrapped.next(Tag.sequence).elements()
        try wrapped.finish()
        guard try signed.next().integer() == 1 else { throw ASN1Fault.wrongType }
        var named = try signed.next(Tag.set).elements()
        let digest = try named.next(Tag.sequence)
        try named.finish()
        let payload = try payload(signed.next(Tag.sequence))
        var certificates: [ArraySlice<UInt8>] = []
        var embedded = try signed.next(Tag.context(0)).elements()
        while !embedded.isAtEnd { certificates.append(try embedded.next(Tag.sequence).whole) }
        // A list of revocations would stand here.
        var signers = try signed.next(Tag.set).elements()
        try signed.finish()
        let signer = try Signer(signers.next(Tag.sequence))
        guard signers.isAtEnd else { throw ProofRefusal(.malformed, "It has several signers instead of one.") }
        guard let known = digests.first(where: { $0.written[...] == signer.digest }) else {
            throw ProofRefusal(.wrongAlgorithm, "The digest is neither SHA-256 nor SHA-1.")
        }
        guard digest.content == signer.digest else { throw ASN1Fault.wrongType }
        guard signatures.contains(where: { $0.written[...] == signer.algorithm && $0.digests.contains(known.digest) })
        else { throw ProofRefusal(.wrongAlgorithm, "The signature's algorithm is not RSA with the digest.") }
        return AppReceiptContainer(payload: payload, digest: known.digest, signer: signer, certificates: certificates)
    }

    private static func payload(_ element: ASN1Reader.Element) throws -> [UInt8] {
        var content = try element.elements()
        guard try content.next(ASN1Reader.Tag.objectIdentifier).content == data[...] else { throw ASN1Fault.wrongType }
        var wrapped = try content.next(ASN1Reader.Tag.context(0)).elements()
        try content.finish()
        let payload = try wrapped.next().octets()
        try wrapped.finish()
        return payload
    }

    /// Whether a key's owner signed the payload.
    package func isSigned(by key: _RSA.Signing.PublicKey) -> Bool {
        let signature = _RSA.Signing.RSASignature(rawRepresentation: signer.signature)
        return switch digest {
        case .sha1:
            key.isValidSignature(signature, for: Insecure.SHA1.hash(data: payload), padding: .insecurePKCS1v1_5)
        case .sha256:
            key.isValidSignature(signature, for: SHA256.hash(data: payload), padding: .insecurePKCS1v1_5)
        }
    }
}
