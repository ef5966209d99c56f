import Entitlements
import HTTPTypes
import SignedTokens
import Transport

/// In whose name an API of Google's is asked, for what, and where access tokens for that are given out.
struct GoogleAccess: Sendable {
    /// The account and its private key, which are never described.
    let account: ServiceAccount
    private let scope: String
    /// The endpoint that gives out access tokens, with its whole path.
    let tokenEndpoint: BaseURL

    private static let tokenHost = "oauth2.googleapis.com"

    /// Checks the settings; nothing, and their faults noted, where they are of no use.
    ///
    /// By default the key file's `token_uri` is used, which has to be Google's. Plain http is taken for loopback hosts only.
    init?<Fault: GoogleAccessFault>(
        serviceAccount: String,
        scope: String,
        oauthBaseURL: String?,
        _ faults: inout [Fault]
    ) {
        var account: ServiceAccount?
        do throws(ServiceAccount.Fault) {
            account = try ServiceAccount(serviceAccount)
        } catch {
            faults.append(error == .privateKey ? .privateKey : .serviceAccount)
        }
        var tokenEndpoint: BaseURL?
        if let oauthBaseURL {
            tokenEndpoint = BaseURL.read(
                oauthBaseURL,
                endingIn: "token",
                malformed: .oauthBaseURL,
                insecure: .insecureOAuthBaseURL,
                &faults
            )
        } else if let account {
            tokenEndpoint = BaseURL.read(account.tokenURI, malformed: .tokenURI, insecure: .tokenURI, &faults)
            // The assertion is as good as a password for an hour: it goes to Google alone.
            if let url = tokenEndpoint, url.scheme != "https" || url.authority != Self.tokenHost {
                faults.append(.tokenURI)
            }
        }
        guard let account, let tokenEndpoint else { return nil }
        self.account = account
        self.scope = scope
        self.tokenEndpoint = tokenEndpoint
    }

    /// What an access token is asked for with, at some second since 1970; `nil`: the key does not sign.
    func tokenRequest(at seconds: Int64) -> (HTTPRequest, body: [UInt8])? {
        guard let assertion = try? account.assertion(for: scope, at: seconds) else { return nil }
        let form = "application/x-www-form-urlencoded"
        return (
            HTTPRequest(.post, tokenEndpoint, path: tokenEndpoint.path, sending: form),
            Array("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=\(assertion)".utf8)
        )
    }

    /// The token that an answer to that gives out.
    static func token(in response: HTTPClientResponse) throws(ReadFailure) -> GrantedToken {
        if let code = tokenFailure(status: response.status, word: tokenErrorWord(response.body)) {
            throw ReadFailure(code)
        }
        return try decoded(response.body, GrantedToken.init)
    }
}

/// What may be wrong with a service account and the endpoint of its access tokens, among other settings.
protocol GoogleAccessFault: RawRepresentable<String>, Hashable, Sendable {
    static var serviceAccount: Self { get }
    static var privateKey: Self { get }
    static var tokenURI: Self { get }
    static var oauthBaseURL: Self { get }
    static var insecureOAuthBaseURL: Self { get }
}
