import Crypto
import CryptoExtras
import Foundation
package import TextFormats

/// Reads a set of public keys (RFC 7517).
package enum JSONWebKeys {
    /// The largest set that is read, in bytes.
    package static let maximumBytes = 256 << 10
    /// The most keys that a set may have; real ones have a few.
    package static let maximumCount = 64
    /// The longest name of a key, in bytes.
    package static let maximumNameBytes = 200
    /// A modulus of 8192 bits, in base64url; verifying with a longer one costs too much.
    private static let maximumNumberBytes = 1_366

    /// The name under which the only key of a set is found, whatever its own.
    package static let onlyKey = ""

    /// Reads a set, `{"keys":[…]}`, of at least one key of use, by name.
    ///
    /// Keys that are of no use here are left out: other kinds, keys for encryption, RSA keys of less than 2048 bits,
    /// keys without a name. A name that stands twice names nothing. With `takesUnnamed` the only key of a set is found
    /// as ``onlyKey`` as well, with or without a name.
    package static func read(_ body: [UInt8], takesUnnamed: Bool = false) throws(JSONFault) -> [String: VerificationKey]
    {
        guard body.count <= maximumBytes else { throw .tooLarge }
        var keys: [String: VerificationKey] = [:]
        var all: [VerificationKey] = []
        var seen: Set<String> = []
        var count = 0
        var hasList = false
        try JSONReader.readObject(in: body, list) { reader, _ throws(JSONFault) in
            hasList = true
            try reader.readArray { reader throws(JSONFault) in
                count += 1
                guard count <= maximumCount else { throw .outOfRange }
                // One odd key does not spoil the others.
                let start = reader
                var draft: Draft?
                do throws(JSONFault) { draft = try Draft(&reader) } catch {
                    reader = start
                    try reader.skipValue()
                }
                guard let draft else { return }
                if let key = draft.key { all.append(key) }
                guard let name = draft.name else { return }
                keys[name] = seen.insert(name).inserted ? draft.key : nil
            }
        }
        // Where there is one key alone, a signer need not name it (OpenID Connect Core 1.0, section 10.1).
        if takesUnnamed, all.count == 1 { keys[Self.onlyKey] = all[0] }
        guard hasList, !keys.isEmpty else { throw .missing }
        return keys
    }

    private static let list = JSONFields(only: "keys")

    private enum Field: String, CaseIterable { case kty, kid, use, alg, crv, n, e, x, y }
    private static let fields = JSONFields<Field>()

    /// The members of one key.
    private struct Draft {
        private var members: [Field: String] = [:]

        init(_ reader: inout JSONReader) throws(JSONFault) {
            try reader.readObject(fields) { reader, field throws(JSONFault) in
                if try reader.readNull() { return }
                members[field] = try reader.readString(upTo: JSONWebKeys.maximumNumberBytes)
            }
        }

        var name: String? {
            members[.kid].flatMap { (1...JSONWebKeys.maximumNameBytes).contains($0.utf8.count) ? $0 : nil }
        }

        /// The key; `nil` where it is of no use.
        var key: VerificationKey? {
            guard members[.use] ?? "sig" == "sig", let key = publicKey, members[.alg] ?? key.algorithm == key.algorithm
            else { return nil }
            return key
        }

        private var publicKey: VerificationKey? {
            switch (members[.kty], members[.crv]) {
            case ("RSA", _):
                guard let modulus = number(.n), let exponent = number(.e) else { return nil }
                // It refuses moduli of less than 2048 bits, and exponents that make no key.
                return (try? _RSA.Signing.PublicKey(n: modulus, e: exponent)).map { .rsa($0) }
            case ("EC", "P-256"):
                guard let x = number(.x), let y = number(.y), x.count == 32, y.count == 32 else { return nil }
                return (try? P256.Signing.PublicKey(x963Representation: [4] + x + y)).map { .p256($0) }
            case ("OKP", "Ed25519"):
                guard let x = number(.x), x.count == 32 else { return nil }
                return (try? Curve25519.Signing.PublicKey(rawRepresentation: x)).map { .ed25519($0) }
            default: return nil
            }
        }

        private func number(_ field: Field) -> [UInt8]? {
            guard let text = members[field], let bytes = Base64.decode(text.utf8, .url), !bytes.isEmpty else {
                return nil
            }
            return bytes
        }
    }
}
