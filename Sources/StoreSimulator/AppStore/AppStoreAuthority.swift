import Crypto
package import Foundation
import SwiftASN1
package import X509

/// The simulator's own certificates and keys, in the place of Apple's: a root, an authority, a signer.
///
/// Nobody but the simulator and tests trusts them.
package struct AppStoreAuthority: Sendable {
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

    package let root: Certificate
    package let intermediate: Certificate
    package let leaf: Certificate
    private let key: P256.Signing.PrivateKey
    /// The header that all its texts have, as it is written.
    private let usualHeader: String

    /// Makes new keys and certificates.
    ///
    /// - Parameters:
    ///   - validFrom: from when the leaf is valid; the others are from ten years before.
    ///   - validUntil: until when the leaf is valid; the others are for ten years more.
    ///   - flaws: what is wrong with them.
    /// - Throws: what the certificate library does.
    package init(
        validFrom: Date = Date() - 86_400 * 30,
        validUntil: Date = Date() + 86_400 * 700,
        flaws: Flaws = []
    ) throws {
        let decade: TimeInterval = 86_400 * 3650
        let rootKey = P384.Signing.PrivateKey()
        let rootName = try Self.name("Simulated Root CA - G3")
        let authorityKey = P384.Signing.PrivateKey()
        let authorityName = try Self.name("Simulated Worldwide Developer Relations Certification Authority")
        key = P256.Signing.PrivateKey()
        func certificate(
            _ key: Certificate.PublicKey,
            _ subject: DistinguishedName,
            by issuer: DistinguishedName,
            _ issuerKey: P384.Signing.PrivateKey,
            margin: TimeInterval,
            _ extensions: Certificate.Extensions
        ) throws -> Certificate {
            try Certificate(
                version: .v3,
                serialNumber: Certificate.SerialNumber(),
                publicKey: key,
                notValidBefore: validFrom - margin,
                notValidAfter: validUntil + margin,
                issuer: issuer,
                subject: subject,
                extensions: extensions,
                issuerPrivateKey: Certificate.PrivateKey(issuerKey)
            )
        }
        root = try certificate(
            Certificate.PublicKey(rootKey.publicKey),
            rootName,
            by: rootName,
            rootKey,
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
            Certificate.PublicKey(authorityKey.publicKey),
            authorityName,
            by: rootName,
            rootKey,
            margin: decade,
            ofAuthority
        )
        var ofSigner = try Certificate.Extensions {
            Critical(BasicConstraints.notCertificateAuthority)
            Critical(KeyUsage(digitalSignature: true))
        }
        if !flaws.contains(.noLeafMarker) { try ofSigner.append(Self.marker([1, 2, 840, 113635, 100, 6, 11, 1])) }
        leaf = try certificate(
            Certificate.PublicKey(key.publicKey),
            try Self.name("Simulated Mac App Store and iTunes Store Receipt Signing"),
            by: authorityName,
            flaws.contains(.strangeLeaf) ? P384.Signing.PrivateKey() : authorityKey,
            margin: 0,
            ofSigner
        )
        usualHeader = try Self.write(["alg": "ES256", "x5c": Self.chain([leaf, intermediate, root])])
    }

    /// The certificates as they stand in a header: base64 of their DER, the signer's first.
    package func chain() throws -> [String] { try Self.chain([leaf, intermediate, root]) }

    /// The root, as a file for whoever is to trust it.
    package func rootPEM() throws -> String { try root.serializeAsPEM().pemString }

    private static func chain(_ certificates: [Certificate]) throws -> [String] {
        try certificates.map { certificate in
            var serializer = DER.Serializer()
            try serializer.serialize(certificate)
            return Data(serializer.serializedBytes).base64EncodedString()
        }
    }

    /// Signs a payload as the App Store does.
    ///
    /// - Parameters:
    ///   - payload: a JSON text.
    ///   - header: the header, where it is to be another than the App Store's.
    /// - Returns: a compact JWS.
    /// - Throws: what the cryptography library does.
    package func sign(_ payload: String, header: [String: any Sendable]? = nil) throws -> String {
        let written = try header.map(Self.write) ?? usualHeader
        let signed = written + "." + Self.base64URL(Data(payload.utf8))
        let signature = try key.signature(for: Data(signed.utf8))
        return signed + "." + Self.base64URL(signature.rawRepresentation)
    }

    private static func write(_ header: [String: any Sendable]) throws -> String {
        base64URL(
            try JSONSerialization.data(withJSONObject: header, options: [.sortedKeys, .withoutEscapingSlashes])
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

    private static func base64URL(_ bytes: Data) -> String {
        bytes.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }
}
