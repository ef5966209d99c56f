internal import CryptoExtras

/// The keys of Google's two sets, in their place: only the simulator and tests trust them.
///
/// Both sets rotate together; each has keys of its own.
struct IdentityKeys: Sendable {
    /// Which set.
    enum Family: String, Sendable {
        /// Verifies Firebase's ID tokens.
        case firebase
        /// Verifies the tokens of Google's own accounts, those of pushes among them.
        case oauth
    }

    /// The number of the keys that sign now.
    private var current = 1
    /// The numbers of the keys that the sets show; never three, or one key would stand there twice.
    private var shown = 1...1

    /// Lets the next keys sign.
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
    func set(_ family: Family) throws -> [UInt8] {
        try SignedText.keySet(shown.map { (name: Self.name($0, family), key: try Self.key($0, family).publicKey) })
    }

    /// Signs a token's claims.
    func sign(_ claims: [UInt8], _ family: Family, _ signing: TokenSigning) throws -> String {
        let name = signing.keyName ?? Self.name(current, family)
        return try SignedText.write(
            claims,
            SignedText.Head(algorithm: signing.algorithm, keyName: name.isEmpty ? nil : name, type: "JWT"),
            key: Self.key(Self.number(of: name, family) ?? current, family),
            isTampered: signing.isTampered
        )
    }

    /// Two of each family take turns under ever new names.
    private static func key(_ number: Int, _ family: Family) throws -> _RSA.Signing.PrivateKey {
        try KeyRing.key("\(family.rawValue)-\(number % 2)")
    }

    private static func name(_ number: Int, _ family: Family) -> String { "\(family.rawValue)-key-\(number)" }

    /// The number of the key with a name; `nil` where no key has it.
    private static func number(of name: String, _ family: Family) -> Int? {
        Int(name.drop { !$0.isNumber }).flatMap { $0 > 0 && Self.name($0, family) == name ? $0 : nil }
    }
}

/// Which keys the sets show once other keys sign.
enum PublishedKeys: String, ScenarioWord {
    /// Those that sign now and those before them.
    case both
    /// Those that sign now.
    case new
    /// Those before them: what is signed now names an unknown key.
    case old
}
