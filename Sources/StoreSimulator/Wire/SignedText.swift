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

    /// Signs a payload.
    ///
    /// - Parameters:
    ///   - payload: any bytes; most often a JSON object.
    ///   - head: what the header says, and so how it is signed.
    ///   - key: whose signature it is.
    ///   - isTampered: whether a byte of the signature is altered.
    /// - Returns: three parts with dots between them.
    /// - Throws: what the cryptography library does.
    static func write(
        _ payload: [UInt8],
        _ head: Head,
        key: _RSA.Signing.PrivateKey,
        isTampered: Bool = false
    ) throws -> String {
        let signed = base64URL(Data(written(head))) + "." + base64URL(Data(payload))
        var signature = try sign(Data(signed.utf8), head.algorithm, key)
        if isTampered, let last = signature.indices.last { signature[last] ^= 1 }
        return signed + "." + base64URL(signature)
    }

    private static func written(_ head: Head) -> [UInt8] {
        var json = JSONBytes(capacity: 128)
        json.beginObject()
        json.key("alg")
        json.value(head.algorithm.rawValue)
        if let name = head.keyName {
            json.key("kid")
            json.value(name)
        }
        if let type = head.type {
            json.key("typ")
            json.value(type)
        }
        json.endObject()
        return json.bytes
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
    ///
    /// - Throws: what the cryptography library does.
    static func keySet(_ keys: [(name: String, key: _RSA.Signing.PublicKey)]) throws -> [UInt8] {
        var json = JSONBytes()
        json.beginObject()
        json.key("keys")
        json.beginArray()
        for (name, key) in keys {
            let numbers = try key.getKeyPrimitives()
            json.beginObject()
            json.key("kid")
            json.value(name)
            json.key("kty")
            json.literal("RSA")
            json.key("alg")
            json.literal("RS256")
            json.key("use")
            json.literal("sig")
            json.key("n")
            json.value(base64URL(numbers.modulus))
            json.key("e")
            json.value(base64URL(numbers.publicExponent))
            json.endObject()
        }
        json.endArray()
        json.endObject()
        return json.bytes
    }

    static func base64URL(_ bytes: Data) -> String {
        bytes.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }
}
