import Crypto
import CryptoExtras
import Foundation
@testable import SignedTokens
import Testing
@testable import TextFormats

/// Sets of public keys: which keys are of use.
@Suite struct JSONWebKeyTests {
    private static let rsa = Result { try _RSA.Signing.PrivateKey(keySize: .bits2048) }
    private static let curve = P256.Signing.PrivateKey()

    private func rsaKey(_ changes: [String: String?] = [:]) throws -> [String: String] {
        let numbers = try Self.rsa.get().publicKey.getKeyPrimitives()
        let members = [
            "kty": "RSA", "kid": "a", "use": "sig", "alg": "RS256", "n": Base64.encode(numbers.modulus, .url),
            "e": Base64.encode(numbers.publicExponent, .url),
        ]
        return members.merging(changes.map { ($0.key, $0.value ?? "") }) { $1 }.filter { changes[$0.key] != .some(nil) }
    }

    private var curveKey: [String: String] {
        let point = Self.curve.publicKey.x963Representation.dropFirst()
        return [
            "kty": "EC", "crv": "P-256", "kid": "b", "x": Base64.encode(point.prefix(32), .url),
            "y": Base64.encode(point.suffix(32), .url),
        ]
    }

    private func names(_ keys: [Any]) throws -> Set<String> {
        let body = try JSONSerialization.data(withJSONObject: ["keys": keys])
        return Set(try JSONWebKeys.read(Array(body)).keys)
    }

    @Test func `keys of both kinds are read, and verify what their owners sign`() throws {
        let body = try JSONSerialization.data(withJSONObject: ["keys": [rsaKey(), curveKey], "more": true])
        let keys = try JSONWebKeys.read(Array(body))
        let text = Array("signed".utf8)
        let rsa = try Self.rsa.get().signature(for: text, padding: .insecurePKCS1v1_5)
        #expect(keys["a"]?.algorithm == "RS256" && keys["b"]?.algorithm == "ES256")
        #expect(keys["a"]?.isValid(Array(rsa.rawRepresentation), for: text[...]) == true)
        #expect(keys["a"]?.isValid(Array(rsa.rawRepresentation), for: text.dropLast()) == false)
        let padded = try Self.rsa.get().signature(for: text, padding: .PSS)
        #expect(keys["a"]?.isValid(Array(padded.rawRepresentation), for: text[...]) == false)
        let curve = try Self.curve.signature(for: text)
        #expect(keys["b"]?.isValid(Array(curve.rawRepresentation), for: text[...]) == true)
        #expect(keys["b"]?.isValid(Array(curve.derRepresentation), for: text[...]) == false)
    }

    @Test(
        arguments: [
            ["use": "enc"], ["alg": "RS512"], ["alg": "HS256"], ["kty": "oct"], ["kid": nil], ["kid": ""], ["n": nil],
            ["n": "AQAB"], ["n": "not/base64url"], ["e": ""], ["e": "AA"],
        ] as [[String: String?]]
    )
    func `a key that is of no use is left out, and the others stay`(changes: [String: String?]) throws {
        #expect(try names([rsaKey(changes), curveKey]) == ["b"])
        #expect(throws: JSONFault.self) { try names([rsaKey(changes)]) }
    }

    @Test func `an odd key spoils no other, and a name that stands twice names nothing`() throws {
        #expect(try names([7, "x", [], ["kid": 5], ["kid": NSNull()], rsaKey()]) == ["a"])
        #expect(try names([rsaKey(), rsaKey(), curveKey]) == ["b"])
        #expect(try names([rsaKey(["use": "enc"]), rsaKey(), curveKey]) == ["b"])
        #expect(try names([rsaKey(["alg": nil, "use": nil])]) == ["a"])
    }

    @Test func `a short RSA key is of no use`() throws {
        let numbers = try _RSA.Signing.PrivateKey(unsafeKeySize: .init(bitCount: 1024)).publicKey.getKeyPrimitives()
        let short = try rsaKey(["n": Base64.encode(numbers.modulus, .url)])
        #expect(try names([short, curveKey]) == ["b"])
    }

    @Test func `a set with too many keys, or too large, is none`() throws {
        let many = try (0..<64).map { try rsaKey(["kid": "k\($0)"]) }
        #expect(try names(many).count == 64)
        #expect(throws: JSONFault.outOfRange) { try names(many + [curveKey]) }
        #expect(throws: JSONFault.tooLarge) { try names([curveKey, String(repeating: "x", count: 300_000)]) }
    }
}
