import Crypto
import Entitlements
import Synchronization
import TextFormats

/// Makes the signed tokens that every request carries.
///
/// One key serves both environments.
///
/// - SeeAlso: https://developer.apple.com/documentation/appstoreserverapi/generating-json-web-tokens-for-api-requests
final class AppStoreTokens: Sendable {
    /// For how long a token is used again, in seconds: a signature costs more than the rest of a request does.
    static let reuseSeconds: Int64 = 60
    /// How far a token is dated back: the App Store takes none from the future, be it by a second.
    static let slackSeconds: Int64 = 5
    /// For how long a token is valid from its date.
    static let lifeSeconds: Int64 = 300

    private let configuration: AppStoreConfiguration
    private let systemSeconds: @Sendable () -> Int64
    private let minted = Mutex<(token: String, seconds: Int64)?>(nil)

    init(_ configuration: AppStoreConfiguration, systemSeconds: @escaping @Sendable () -> Int64) {
        self.configuration = configuration
        self.systemSeconds = systemSeconds
    }

    /// A token to send behind `Bearer`, other than one that was refused.
    ///
    /// `unauthorized` where the key does not sign.
    func token(insteadOf refused: String? = nil) throws(ReadFailure) -> String {
        let now = systemSeconds()
        let known = minted.withLock { minted -> String? in
            guard let known = minted, known.token != refused,
                (known.seconds..<known.seconds + Self.reuseSeconds).contains(now)
            else { return nil }
            return known.token
        }
        if let known { return known }
        let token = try mint(at: now)
        minted.withLock { $0 = (token, now) }
        return token
    }

    private func mint(at now: Int64) throws(ReadFailure) -> String {
        let issuedAt = now - Self.slackSeconds
        // The configuration has made sure that nothing in here needs escaping.
        let header = #"{"alg":"ES256","kid":"\#(configuration.keyID)","typ":"JWT"}"#
        let claims =
            #"{"iss":"\#(configuration.issuerID)","iat":\#(issuedAt),"exp":\#(issuedAt + Self.lifeSeconds),"#
            + #""aud":"appstoreconnect-v1","bid":"\#(configuration.bundleID)"}"#
        let signed = Base64.encode(header.utf8, .url) + "." + Base64.encode(claims.utf8, .url)
        guard let signature = try? configuration.key.signature(for: Array(signed.utf8)) else {
            throw ReadFailure(.unauthorized, store: .appStore)
        }
        return signed + "." + Base64.encode(signature.rawRepresentation, .url)
    }
}
