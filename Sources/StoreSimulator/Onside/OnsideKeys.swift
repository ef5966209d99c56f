internal import Crypto
internal import CryptoExtras
internal import Foundation

/// Onside's keys, in its place: nobody but the simulator and tests trusts them.
struct OnsideKeys: Sendable {
    /// Two for the whole process, for making one takes a while; they take turns under ever new names.
    private static let pair = Result { () throws -> [_RSA.Signing.PrivateKey] in
        [try _RSA.Signing.PrivateKey(keySize: .bits2048), try _RSA.Signing.PrivateKey(keySize: .bits2048)]
    }

    /// The number of the key that signs now.
    private var current = 1
    /// The number of the oldest key in the set.
    private var oldest = 1

    /// Puts a new key in the place of the one that signs.
    mutating func rotate(keepOld: Bool) {
        // With two pairs a set of three names would show one key twice.
        oldest = keepOld ? current : current + 1
        current += 1
    }

    private static func name(_ number: Int) -> String { "onside-key-\(number)" }

    /// The name of the key that signs now.
    var currentName: String { Self.name(current) }

    private static func key(_ number: Int) throws -> _RSA.Signing.PrivateKey { try pair.get()[number % 2] }

    /// The set as `/.well-known/jwks.json` shows it.
    func set() throws -> [UInt8] {
        var json = JSONBytes()
        json.beginObject()
        json.key("keys")
        json.beginArray()
        for number in oldest...current {
            let numbers = try Self.key(number).publicKey.getKeyPrimitives()
            json.beginObject()
            json.key("kty")
            json.literal("RSA")
            json.key("use")
            json.literal("sig")
            json.key("alg")
            json.literal("RS256")
            json.key("kid")
            json.value(Self.name(number))
            json.key("n")
            json.value(Self.base64URL(numbers.modulus))
            json.key("e")
            json.value(Self.base64URL(numbers.publicExponent))
            json.endObject()
        }
        json.endArray()
        json.endObject()
        return json.bytes
    }

    /// Signs a payload.
    func sign(_ payload: [UInt8], _ way: OnsideSigning.Way) throws -> String {
        let key = try Self.key(current)
        switch way {
        case .rs256: return try write("RS256", currentName, payload) { try Self.signature(of: $0, key) }
        case .otherKey:
            let other = try Self.key(current + 1)
            return try write("RS256", currentName, payload) { try Self.signature(of: $0, other) }
        case .unknownKid:
            return try write("RS256", "onside-key-unknown", payload) { try Self.signature(of: $0, key) }
        case .none: return try write("none", currentName, payload) { _ in Data() }
        case .hs256PublicKey:
            let secret = SymmetricKey(data: Data(key.publicKey.pemRepresentation.utf8))
            return try write("HS256", currentName, payload) { signed in
                Data(HMAC<SHA256>.authenticationCode(for: signed, using: secret))
            }
        }
    }

    private static func signature(of signed: Data, _ key: _RSA.Signing.PrivateKey) throws -> Data {
        try key.signature(for: signed, padding: .insecurePKCS1v1_5).rawRepresentation
    }

    private func write(
        _ algorithm: String,
        _ name: String,
        _ payload: [UInt8],
        _ sign: (Data) throws -> Data
    ) throws -> String {
        let header = Data(#"{"alg":"\#(algorithm)","kid":"\#(name)"}"#.utf8)
        let signed = Self.base64URL(header) + "." + Self.base64URL(Data(payload))
        return signed + "." + Self.base64URL(try sign(Data(signed.utf8)))
    }

    static func base64URL(_ bytes: Data) -> String {
        bytes.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }
}
