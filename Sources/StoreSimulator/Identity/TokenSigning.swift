/// How a token's signature is made.
package enum TokenAlgorithm: String, ScenarioWord {
    case rs256 = "RS256"
    /// With a code whose secret is the public key, which everybody knows.
    case hs256 = "HS256"
    /// Not at all.
    case unsigned = "none"
}

/// How a token is signed, so that a verifier can show what it notices.
package struct TokenSigning: Sendable, Hashable {
    /// The key's name in the header; `nil`: that of the key which signs now, empty: the header has none.
    ///
    /// The name of an earlier key, or of a later one, makes that key sign.
    package var keyName: String?
    package var algorithm = TokenAlgorithm.rs256
    /// Whether a byte of the signature is altered.
    package var isTampered = false

    /// Signs as Google does.
    package init() {}
}
