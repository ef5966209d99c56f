internal import CryptoExtras

/// Onside's keys, in its place: only the simulator and tests trust them.
struct OnsideKeys: Sendable {
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

    /// Two take turns under ever new names.
    private static func key(_ number: Int) throws -> _RSA.Signing.PrivateKey {
        try KeyRing.key("onside-\(number % 2)")
    }

    /// The set as `/.well-known/jwks.json` shows it.
    func set() throws -> [UInt8] {
        try SignedText.keySet((oldest...current).map { (name: Self.name($0), key: try Self.key($0).publicKey) })
    }

    /// Signs a payload.
    func sign(_ payload: [UInt8], _ way: OnsideSigning.Way) throws -> String {
        var head = SignedText.Head(keyName: Self.name(current))
        var number = current
        switch way {
        case .rs256: break
        case .otherKey: number += 1
        case .unknownKid: head.keyName = "onside-key-unknown"
        case .none: head.algorithm = .unsigned
        case .hs256PublicKey: head.algorithm = .hs256
        }
        return try SignedText.write(payload, head, key: Self.key(number))
    }
}
