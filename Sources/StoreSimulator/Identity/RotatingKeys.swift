internal import CryptoExtras

/// Keys of a sender, in its place: only the simulator and tests trust them.
struct RotatingKeys: Sendable {
    /// Part of the names of the keys, which others may not use.
    let family: String
    /// The number of the key that signs now.
    private var current = 1
    /// The numbers of the keys that the set shows; never three, or one key would stand there twice.
    private var shown = 1...1

    init(_ family: String) {
        self.family = family
    }

    /// Lets the next key sign.
    mutating func rotate(publishing keys: PublishedKeys) {
        let next = current + 1
        switch keys {
        case .both: shown = current...next
        case .new: shown = next...next
        case .old: shown = current...current
        }
        current = next
    }

    /// The set as its endpoint shows it.
    func set() throws -> [UInt8] {
        try SignedText.keySet(shown.map { (name: name($0), key: try key($0).publicKey) })
    }

    /// Signs a token's claims.
    func sign(_ claims: [UInt8], _ signing: TokenSigning) throws -> String {
        let name = signing.keyName ?? name(current)
        return try SignedText.write(
            claims,
            SignedText.Head(algorithm: signing.algorithm, keyName: name.isEmpty ? nil : name, type: "JWT"),
            key: key(number(of: name) ?? current),
            isTampered: signing.isTampered
        )
    }

    /// Signs an answer of Onside's.
    func sign(_ payload: [UInt8], _ way: OnsideSigning.Way) throws -> String {
        var head = SignedText.Head(keyName: name(current))
        switch way {
        case .rs256, .otherKey: break
        case .unknownKid: head.keyName = "onside-key-unknown"
        case .none: head.algorithm = .unsigned
        case .hs256PublicKey: head.algorithm = .hs256
        }
        return try SignedText.write(payload, head, key: key(way == .otherKey ? current + 1 : current))
    }

    /// Two take turns under ever new names.
    private func key(_ number: Int) throws -> _RSA.Signing.PrivateKey {
        try KeyRing.key("\(family)-\(number % 2)")
    }

    private func name(_ number: Int) -> String { "\(family)-key-\(number)" }

    /// The number of the key with a name; `nil` where no key has it.
    private func number(of name: String) -> Int? {
        Int(name.drop { !$0.isNumber }).flatMap { $0 > 0 && self.name($0) == name ? $0 : nil }
    }
}

/// Which keys a set shows once another key signs.
enum PublishedKeys: String, ScenarioWord {
    /// The one that signs now and the one before it.
    case both
    /// The one that signs now.
    case new
    /// The one before it: what is signed now names an unknown key.
    case old
}
