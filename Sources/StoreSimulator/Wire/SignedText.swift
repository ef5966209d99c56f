internal import Crypto
internal import CryptoExtras
internal import Foundation

/// Compact signed texts (RFC 7515), and the sets that show the keys to verify them with (RFC 7517).
enum SignedText {
    /// What a header says.
    struct Head {
        var algorithm = TokenAlgorithm.rs256
        /// `nil`: no key is named.
        var keyName: String?
        /// `nil`: no type is said.
        var type: String?
    }

    /// Signs a payload as the header says, or alters a byte of the signature.
    static func write(
        _ payload: [UInt8],
        _ head: Head,
        key: _RSA.Signing.PrivateKey,
        isTampered: Bool = false
    ) throws -> String {
        let header = JSONBytes.object { json in
            json.member("alg", head.algorithm.rawValue)
            json.optional("kid", head.keyName)
            json.optional("typ", head.type)
        }
        let signed = base64URL(Data(header)) + "." + base64URL(Data(payload))
        var signature = try sign(Data(signed.utf8), head.algorithm, key)
        if isTampered, let last = signature.indices.last { signature[last] ^= 1 }
        return signed + "." + base64URL(signature)
    }

    private static func sign(
        _ signed: Data,
        _ algorithm: TokenAlgorithm,
        _ key: _RSA.Signing.PrivateKey
    ) throws -> Data {
        switch algorithm {
        case .rs256: return try key.signature(for: signed, padding: .insecurePKCS1v1_5).rawRepresentation
        case .hs256:
            let secret = SymmetricKey(data: Data(key.publicKey.pemRepresentation.utf8))
            return Data(HMAC<SHA256>.authenticationCode(for: signed, using: secret))
        case .unsigned: return Data()
        }
    }

    /// A set of public keys, as JSON.
    static func keySet(_ keys: [(name: String, key: _RSA.Signing.PublicKey)]) throws -> [UInt8] {
        try JSONBytes.object { json in
            try json.array("keys") { json in
                for (name, key) in keys {
                    let numbers = try key.getKeyPrimitives()
                    json.object { json in
                        json.member("kid", name)
                        json.member("kty", literal: "RSA")
                        json.member("alg", literal: "RS256")
                        json.member("use", literal: "sig")
                        json.member("n", base64URL(numbers.modulus))
                        json.member("e", base64URL(numbers.publicExponent))
                    }
                }
            }
        }
    }

    static func base64URL(_ bytes: Data) -> String {
        bytes.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    /// The parts of a text that a caller sent; nothing is verified.
    struct Parts {
        var header: Data
        var claims: Data
        var signature: Data
        /// What the signature is of.
        var signed: Data

        init?(_ text: String) {
            let parts = text.split(separator: ".", omittingEmptySubsequences: false)
            let decoded = parts.compactMap { part in
                let padding = String(repeating: "=", count: (4 - part.utf8.count % 4) % 4)
                return Data(base64Encoded: part.replacing("-", with: "+").replacing("_", with: "/") + padding)
            }
            guard parts.count == 3, decoded.count == 3 else { return nil }
            (header, claims, signature) = (decoded[0], decoded[1], decoded[2])
            signed = Data("\(parts[0]).\(parts[1])".utf8)
        }

        /// What the header says of the signature.
        struct Header: Decodable {
            var alg: String
            var kid: String
        }

        /// Header and claims, decoded.
        func decoded<Claims: Decodable>() -> (header: Header, claims: Claims)? {
            let decoder = JSONDecoder()
            guard let header = try? decoder.decode(Header.self, from: header),
                let claims = try? decoder.decode(Claims.self, from: claims)
            else { return nil }
            return (header, claims)
        }
    }
}
