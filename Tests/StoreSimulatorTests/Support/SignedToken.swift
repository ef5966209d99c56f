import CryptoExtras
import Foundation
import Testing

/// A compact signed text, taken apart.
struct SignedToken {
    let header: JSON
    let claims: JSON
    let signature: Data
    private let signed: Data

    init(_ text: String) throws {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        try #require(parts.count == 3)
        header = try JSON(String(decoding: Self.bytes(parts[0]), as: UTF8.self))
        claims = try JSON(String(decoding: Self.bytes(parts[1]), as: UTF8.self))
        signature = try Self.bytes(parts[2])
        signed = Data("\(parts[0]).\(parts[1])".utf8)
    }

    /// Whether the key of a set that has the name in the header verifies it.
    func isSigned(by set: JSON) throws -> Bool {
        for number in 0..<8 {
            guard let key = set["keys"]?[number], let name = key["kid"]?.text, name == header["kid"]?.text else {
                continue
            }
            return try isSigned(with: Self.publicKey(key))
        }
        return false
    }

    func isSigned(with key: _RSA.Signing.PublicKey) -> Bool {
        key.isValidSignature(
            _RSA.Signing.RSASignature(rawRepresentation: signature),
            for: signed,
            padding: .insecurePKCS1v1_5
        )
    }

    /// The key that a member of a set describes.
    static func publicKey(_ key: JSON) throws -> _RSA.Signing.PublicKey {
        let modulus = try #require(key["n"]?.text)
        let exponent = try #require(key["e"]?.text)
        return try _RSA.Signing.PublicKey(n: bytes(modulus[...]), e: bytes(exponent[...]))
    }

    /// Bytes of base64url without padding.
    static func bytes(_ text: Substring) throws -> Data {
        let foreign = text.filter { "+/=".contains($0) }
        try #require(foreign.isEmpty)
        let padding = String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        let data = Data(base64Encoded: text.replacing("-", with: "+").replacing("_", with: "/") + padding)
        return try #require(data)
    }
}
