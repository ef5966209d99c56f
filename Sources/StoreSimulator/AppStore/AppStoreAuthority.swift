import Crypto
package import Foundation
import X509

/// The simulator's own certificates and keys, in the place of Apple's: a root, an authority, a signer.
///
/// Only the simulator and tests trust them.
package struct AppStoreAuthority: Sendable {
    package let certificates: SigningCertificates
    private let key: P256.Signing.PrivateKey
    /// The header that all its texts have, as it is written.
    private let usualHeader: String

    /// Makes new keys and certificates.
    ///
    /// The two moments are the leaf's; the others are valid from ten years before to ten years after it.
    package init(
        validFrom: Date = Date() - 86_400 * 30,
        validUntil: Date = Date() + 86_400 * 700,
        flaws: SigningCertificates.Flaws = []
    ) throws {
        key = P256.Signing.PrivateKey()
        certificates = try SigningCertificates(
            .init(
                root: .init(P384.Signing.PrivateKey()),
                intermediate: .init(P384.Signing.PrivateKey()),
                leaf: .init(key)
            ),
            rootName: "Simulated Root CA - G3",
            algorithm: .ecdsaWithSHA384,
            validFrom: validFrom,
            validUntil: validUntil,
            flaws: flaws
        )
        usualHeader = try Self.write(["alg": "ES256", "x5c": Self.chain(certificates)])
    }

    /// The certificates as they stand in a header: base64 of their DER, the signer's first.
    package func chain() throws -> [String] { try Self.chain(certificates) }

    private static func chain(_ certificates: SigningCertificates) throws -> [String] {
        try certificates.chain().map { Data($0).base64EncodedString() }
    }

    /// Signs a JSON text as the App Store does: a compact JWS, with a header that may be another than the App Store's.
    package func sign(_ payload: String, header: [String: any Sendable]? = nil) throws -> String {
        let written = try header.map(Self.write) ?? usualHeader
        let signed = written + "." + SignedText.base64URL(Data(payload.utf8))
        let signature = try key.signature(for: Data(signed.utf8))
        return signed + "." + SignedText.base64URL(signature.rawRepresentation)
    }

    private static func write(_ header: [String: any Sendable]) throws -> String {
        SignedText.base64URL(
            try JSONSerialization.data(withJSONObject: header, options: [.sortedKeys, .withoutEscapingSlashes])
        )
    }
}
