package import CryptoExtras
package import Foundation
import SwiftASN1
package import X509

/// The simulator's own certificates and keys for app receipts, in the place of Apple's: a root, an authority, a signer.
///
/// Nobody but the simulator and tests trusts them.
package struct ReceiptAuthority: Sendable {
    /// What may be wrong with the certificates, so that a verifier can show that it notices.
    package struct Flaws: OptionSet, Sendable {
        package let rawValue: Int
        package init(rawValue: Int) { self.rawValue = rawValue }

        package static let noLeafMarker = Flaws(rawValue: 1)
        package static let noIntermediateMarker = Flaws(rawValue: 2)
        package static let intermediateIsNoAuthority = Flaws(rawValue: 4)
        package static let intermediateMayNotSign = Flaws(rawValue: 8)
        /// The leaf was signed by some other authority of the same name.
        package static let strangeLeaf = Flaws(rawValue: 16)
    }

    /// How the certificates are signed: with SHA-1 until 2023, with SHA-256 since.
    package enum Generation: Sendable, CaseIterable {
        case sha1
        case sha256
    }

    /// What the payload's digest is; any of them stands under certificates of either generation.
    package enum Digest: Sendable, CaseIterable {
        case sha1
        case sha256
    }

    /// The keys; making them takes long.
    package struct Keys: Sendable {
        package var root: _RSA.Signing.PrivateKey
        package var intermediate: _RSA.Signing.PrivateKey
        package var leaf: _RSA.Signing.PrivateKey

        /// Makes new ones.
        ///
        /// - Throws: what the cryptography library does.
        package init() throws {
            root = try _RSA.Signing.PrivateKey(keySize: .bits2048)
            intermediate = try _RSA.Signing.PrivateKey(keySize: .bits2048)
            leaf = try _RSA.Signing.PrivateKey(keySize: .bits2048)
        }

        private static let made = Result { try Keys() }

        /// The same ones for the whole life of the process.
        ///
        /// - Throws: what the cryptography library does.
        package static func shared() throws -> Keys { try made.get() }
    }

    package let root: Certificate
    package let intermediate: Certificate
    package let leaf: Certificate
    package let keys: Keys

    private static let made = Result { try ReceiptAuthority() }

    /// The one whose root the simulator gives out.
    ///
    /// - Throws: what the libraries do.
    package static func shared() throws -> ReceiptAuthority { try made.get() }

    /// Makes new certificates.
    ///
    /// - Parameters:
    ///   - generation: how they are signed.
    ///   - keys: whose they are; `nil`: those of the process.
    ///   - validFrom: from when the leaf is valid; the others are from ten years before.
    ///   - validUntil: until when the leaf is valid; the others are for ten years more.
    ///   - flaws: what is wrong with them.
    /// - Throws: what the libraries do.
    package init(
        _ generation: Generation = .sha256,
        keys: Keys? = nil,
        validFrom: Date = Date() - 86_400 * 30,
        validUntil: Date = Date() + 86_400 * 700,
        flaws: Flaws = []
    ) throws {
        let keys = try keys ?? .shared()
        self.keys = keys
        let decade: TimeInterval = 86_400 * 3650
        let rootName = try Self.name("Simulated Root CA")
        let authorityName = try Self.name("Simulated Worldwide Developer Relations Certification Authority")
        func certificate(
            _ key: _RSA.Signing.PrivateKey,
            _ subject: DistinguishedName,
            by issuer: DistinguishedName,
            _ issuerKey: _RSA.Signing.PrivateKey,
            margin: TimeInterval,
            _ extensions: Certificate.Extensions
        ) throws -> Certificate {
            try Certificate(
                version: .v3,
                serialNumber: Certificate.SerialNumber(),
                publicKey: Certificate.PublicKey(key.publicKey),
                notValidBefore: validFrom - margin,
                notValidAfter: validUntil + margin,
                issuer: issuer,
                subject: subject,
                signatureAlgorithm: generation == .sha1 ? .sha1WithRSAEncryption : .sha256WithRSAEncryption,
                extensions: extensions,
                issuerPrivateKey: Certificate.PrivateKey(issuerKey)
            )
        }
        root = try certificate(
            keys.root,
            rootName,
            by: rootName,
            keys.root,
            margin: decade,
            Certificate.Extensions {
                Critical(BasicConstraints.isCertificateAuthority(maxPathLength: nil))
                Critical(KeyUsage(keyCertSign: true, cRLSign: true))
            }
        )
        var ofAuthority = try Certificate.Extensions {
            Critical(
                flaws.contains(.intermediateIsNoAuthority)
                    ? BasicConstraints.notCertificateAuthority : .isCertificateAuthority(maxPathLength: 0)
            )
            Critical(KeyUsage(digitalSignature: true, keyCertSign: !flaws.contains(.intermediateMayNotSign)))
        }
        if !flaws.contains(.noIntermediateMarker) {
            try ofAuthority.append(Self.marker([1, 2, 840, 113635, 100, 6, 2, 1]))
        }
        intermediate = try certificate(
            keys.intermediate,
            authorityName,
            by: rootName,
            keys.root,
            margin: decade,
            ofAuthority
        )
        var ofSigner = try Certificate.Extensions {
            Critical(BasicConstraints.notCertificateAuthority)
            Critical(KeyUsage(digitalSignature: true))
        }
        if !flaws.contains(.noLeafMarker) { try ofSigner.append(Self.marker([1, 2, 840, 113635, 100, 6, 11, 1])) }
        leaf = try certificate(
            keys.leaf,
            try Self.name("Simulated Mac App Store and iTunes Store Receipt Signing"),
            by: authorityName,
            flaws.contains(.strangeLeaf) ? keys.leaf : keys.intermediate,
            margin: 0,
            ofSigner
        )
    }

    /// Makes a receipt as the App Store does.
    ///
    /// - Parameters:
    ///   - description: what it says.
    ///   - digest: the payload's digest.
    /// - Returns: its base64.
    /// - Throws: what the libraries do.
    package func receipt(_ description: ReceiptDescription, digest: Digest = .sha256) throws -> String {
        try sign(description.payload(), digest: digest).text()
    }

    /// Signs a payload.
    ///
    /// - Parameters:
    ///   - payload: the set of attributes, or what is to stand in its place.
    ///   - digest: the payload's digest.
    /// - Returns: the parts of the container, which may be altered before they are written.
    /// - Throws: what the libraries do.
    package func sign(_ payload: [UInt8], digest: Digest = .sha256) throws -> ReceiptContainer {
        let certificates = try [leaf, intermediate, root].map { certificate in
            var serializer = DER.Serializer()
            try serializer.serialize(certificate)
            return serializer.serializedBytes
        }
        var name = DER.Serializer()
        try name.serialize(leaf.issuer)
        let serial = Array(leaf.serialNumber.bytes.drop { $0 == 0 })
        return try ReceiptContainer(
            payload: payload,
            certificates: certificates,
            issuerAndSerial: name.serializedBytes + DERBytes.element(0x02, (serial[0] >= 0x80 ? [0] : []) + serial),
            digest: digest,
            key: keys.leaf
        )
    }

    private static func name(_ commonName: String) throws -> DistinguishedName {
        try DistinguishedName {
            CommonName(commonName)
            OrganizationName("Store Simulator")
            CountryName("US")
        }
    }

    private static func marker(_ id: ASN1ObjectIdentifier) -> Certificate.Extension {
        Certificate.Extension(oid: id, critical: false, value: [5, 0])
    }
}

extension StoreSimulator {
    /// The root of the receipts that `ReceiptAuthority.shared()` makes, PEM: what `RECEIPT_ROOT_CERTIFICATES` may hold.
    ///
    /// - Throws: what the libraries do.
    package static func receiptRoot() throws -> String {
        try ReceiptAuthority.shared().root.serializeAsPEM().pemString
    }
}
