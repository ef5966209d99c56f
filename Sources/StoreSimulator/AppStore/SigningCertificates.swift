import Foundation
import SwiftASN1
package import X509

/// Three certificates in the place of Apple's: a root, an authority, a signer.
///
/// Only the simulator and tests trust them.
package struct SigningCertificates: Sendable {
    /// What may be wrong with the certificates, so that a verifier can show that it notices.
    package struct Flaws: OptionSet, Sendable {
        package let rawValue: Int
        package init(rawValue: Int) { self.rawValue = rawValue }

        package static let noLeafMarker = Flaws(rawValue: 1)
        package static let noIntermediateMarker = Flaws(rawValue: 2)
        package static let intermediateIsNoAuthority = Flaws(rawValue: 4)
        package static let intermediateMayNotSign = Flaws(rawValue: 8)
        /// The leaf was signed by another than the authority that it names.
        package static let strangeLeaf = Flaws(rawValue: 16)
        /// No flaw: the authority's certificate does not say for what its key is used.
        package static let intermediateHasNoUsage = Flaws(rawValue: 32)
    }

    /// Whose the certificates are.
    struct Keys {
        var root: Certificate.PrivateKey
        var intermediate: Certificate.PrivateKey
        var leaf: Certificate.PrivateKey
    }

    package let root: Certificate
    package let intermediate: Certificate
    package let leaf: Certificate

    /// Makes new certificates, signed by the root's and the authority's keys, which have to suit the algorithm.
    ///
    /// The two moments are the leaf's; the others are valid from ten years before to ten years after it.
    init(
        _ keys: Keys,
        rootName: String,
        algorithm: Certificate.SignatureAlgorithm,
        validFrom: Date,
        validUntil: Date,
        flaws: Flaws
    ) throws {
        let decade: TimeInterval = 86_400 * 3650
        let rootName = try Self.name(rootName)
        let authorityName = try Self.name("Simulated Worldwide Developer Relations Certification Authority")
        func certificate(
            _ key: Certificate.PrivateKey,
            _ subject: DistinguishedName,
            by issuer: (name: DistinguishedName, key: Certificate.PrivateKey),
            margin: TimeInterval = decade,
            @ExtensionsBuilder _ extensions: () -> Result<Certificate.Extensions, any Error>
        ) throws -> Certificate {
            try Certificate(
                version: .v3,
                serialNumber: Certificate.SerialNumber(),
                publicKey: key.publicKey,
                notValidBefore: validFrom - margin,
                notValidAfter: validUntil + margin,
                issuer: issuer.name,
                subject: subject,
                signatureAlgorithm: algorithm,
                extensions: extensions().get(),
                issuerPrivateKey: issuer.key
            )
        }
        root = try certificate(keys.root, rootName, by: (rootName, keys.root)) {
            Critical(BasicConstraints.isCertificateAuthority(maxPathLength: nil))
            Critical(KeyUsage(keyCertSign: true, cRLSign: true))
        }
        intermediate = try certificate(keys.intermediate, authorityName, by: (rootName, keys.root)) {
            Critical(
                flaws.contains(.intermediateIsNoAuthority)
                    ? BasicConstraints.notCertificateAuthority : .isCertificateAuthority(maxPathLength: 0)
            )
            if !flaws.contains(.intermediateHasNoUsage) {
                Critical(KeyUsage(digitalSignature: true, keyCertSign: !flaws.contains(.intermediateMayNotSign)))
            }
            if !flaws.contains(.noIntermediateMarker) { Self.marker([1, 2, 840, 113635, 100, 6, 2, 1]) }
        }
        leaf = try certificate(
            keys.leaf,
            try Self.name("Simulated Mac App Store and iTunes Store Receipt Signing"),
            by: (authorityName, flaws.contains(.strangeLeaf) ? keys.root : keys.intermediate),
            margin: 0
        ) {
            Critical(BasicConstraints.notCertificateAuthority)
            Critical(KeyUsage(digitalSignature: true))
            if !flaws.contains(.noLeafMarker) { Self.marker([1, 2, 840, 113635, 100, 6, 11, 1]) }
        }
    }

    /// DER, the signer's first.
    func chain() throws -> [[UInt8]] { try [leaf, intermediate, root].map { try $0.serializeAsPEM().derBytes } }

    /// The root, as a file for programs that are to trust it.
    package func rootPEM() throws -> String { try root.serializeAsPEM().pemString }

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
