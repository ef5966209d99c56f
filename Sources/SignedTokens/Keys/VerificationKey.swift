package import Crypto
package import CryptoExtras
import Foundation

/// A public key of a store or an issuer of tokens, with which what they have signed is verified.
package enum VerificationKey: Sendable {
    case rsa(_RSA.Signing.PublicKey)
    case p256(P256.Signing.PublicKey)
    case ed25519(Curve25519.Signing.PublicKey)

    /// The one algorithm that such a key is used with: the writer of a header has no choice.
    package var algorithm: String {
        switch self {
        case .rsa: "RS256"
        case .p256: "ES256"
        case .ed25519: "EdDSA"
        }
    }

    /// What Onside may sign with.
    package static let algorithms: Set<String> = ["RS256", "ES256"]

    /// Verifies a signature (RFC 7518, sections 3.3 and 3.4; RFC 8037, section 3.1).
    package func isValid(_ signature: [UInt8], for signed: ArraySlice<UInt8>) -> Bool {
        switch self {
        case .rsa(let key):
            return key.isValidSignature(
                _RSA.Signing.RSASignature(rawRepresentation: signature),
                for: signed,
                padding: .insecurePKCS1v1_5
            )
        case .p256(let key):
            guard let signature = try? P256.Signing.ECDSASignature(rawRepresentation: signature) else { return false }
            return key.isValidSignature(signature, for: signed)
        case .ed25519(let key): return key.isValidSignature(signature, for: signed)
        }
    }
}
