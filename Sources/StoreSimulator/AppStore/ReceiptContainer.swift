import Crypto
import CryptoExtras
import Foundation

/// The parts of a receipt's signed container (PKCS#7), before they are written; tests alter them.
///
/// - SeeAlso: RFC 2315, section 9
package struct ReceiptContainer: Sendable {
    /// What one signer adds; each part is a whole element.
    package struct Signer: Sendable {
        package var version: [UInt8] = [0x02, 0x01, 0x01]
        package var issuerAndSerial: [UInt8]
        package var digest: [UInt8]
        package var signedAttributes: [UInt8] = []
        package var algorithm: [UInt8]
        package var signature: [UInt8]
        package var unsignedAttributes: [UInt8] = []
    }

    /// Names of algorithms, with the NULL for the parameters that they don't have.
    package enum Algorithm {
        package static let md5 = named([0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x02, 0x05])
        package static let sha1 = named([0x2B, 0x0E, 0x03, 0x02, 0x1A])
        package static let sha256 = named([0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01])
        package static let sha512 = named([0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03])
        package static let rsa = named([0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01])
        package static let sha1WithRSA = named([0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x05])
        package static let pss = named([0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0A])
        package static let sha256WithRSA = named([0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0B])

        private static func named(_ id: [UInt8]) -> [UInt8] {
            DERBytes.element(0x30, DERBytes.element(0x06, id) + [0x05, 0x00])
        }
    }

    package var version: [UInt8] = [0x02, 0x01, 0x01]
    package var digests: [[UInt8]]
    package var payload: [UInt8]
    package var certificates: [[UInt8]]
    package var revocationLists: [UInt8] = []
    package var signers: [Signer]

    /// Signs a payload.
    init(
        payload: [UInt8],
        certificates: [[UInt8]],
        issuerAndSerial: [UInt8],
        digest: ReceiptAuthority.Digest,
        key: _RSA.Signing.PrivateKey
    ) throws {
        let named = digest == .sha1 ? Algorithm.sha1 : Algorithm.sha256
        let signature =
            switch digest {
            case .sha1: try key.signature(for: Insecure.SHA1.hash(data: payload), padding: .insecurePKCS1v1_5)
            case .sha256: try key.signature(for: SHA256.hash(data: payload), padding: .insecurePKCS1v1_5)
            }
        self.payload = payload
        self.certificates = certificates
        digests = [named]
        signers = [
            Signer(
                issuerAndSerial: DERBytes.element(0x30, issuerAndSerial),
                digest: named,
                algorithm: Algorithm.rsa,
                signature: Array(signature.rawRepresentation)
            )
        ]
    }

    /// Writes the container.
    ///
    /// - Parameter inPieces: as Xcode does it: with indefinite lengths, and the payload in pieces of this many bytes.
    /// - Returns: the container as it is before its base64.
    package func bytes(inPieces: Int? = nil) -> [UInt8] {
        func element(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
            inPieces == nil ? DERBytes.element(tag, content) : [tag, 0x80] + content + [0x00, 0x00]
        }
        var octets = DERBytes.element(0x04, payload)
        if let inPieces {
            let pieces = stride(from: 0, to: payload.count, by: inPieces)
                .flatMap { DERBytes.element(0x04, Array(payload[$0..<min(payload.count, $0 + inPieces)])) }
            octets = element(0x24, Array(pieces))
        }
        let written = signers.flatMap { signer in
            DERBytes.element(
                0x30,
                signer.version + signer.issuerAndSerial + signer.digest + signer.signedAttributes + signer.algorithm
                    + DERBytes.element(0x04, signer.signature) + signer.unsignedAttributes
            )
        }
        let signed =
            version + DERBytes.element(0x31, digests.flatMap { $0 })
            + element(0x30, Self.contentType(1) + element(0xA0, octets)) + element(0xA0, certificates.flatMap { $0 })
            + revocationLists + DERBytes.element(0x31, written)
        return element(0x30, Self.contentType(2) + element(0xA0, element(0x30, signed)))
    }

    /// The base64 of what is written.
    package func text() -> String { Data(bytes()).base64EncodedString() }

    private static func contentType(_ number: UInt8) -> [UInt8] {
        DERBytes.element(0x06, [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x07, number])
    }
}

/// Writes elements of ASN.1.
package enum DERBytes {
    /// Writes an element with its length in the fewest bytes.
    package static func element(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        if content.count < 0x80 { return [tag, UInt8(content.count)] + content }
        let length = bigEndian(content.count)
        return [tag, 0x80 | UInt8(length.count)] + length + content
    }

    /// Writes a number that is not negative.
    package static func integer(_ value: Int64) -> [UInt8] {
        let bytes = bigEndian(Int(value))
        return element(0x02, bytes[0] >= 0x80 ? [0] + bytes : bytes)
    }

    private static func bigEndian(_ value: Int) -> [UInt8] {
        var bytes = [UInt8(truncatingIfNeeded: value)]
        var rest = value >> 8
        while rest > 0 {
            bytes.insert(UInt8(truncatingIfNeeded: rest), at: 0)
            rest >>= 8
        }
        return bytes
    }
}
