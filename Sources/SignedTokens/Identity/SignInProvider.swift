import Crypto
package import Entitlements
import Foundation
import HTTPTypes
package import Logging
import TextFormats
package import Transport

/// The identity provider that the team's operators sign in through: authorization code with PKCE.
///
/// - SeeAlso: OpenID Connect Core 1.0, section 3.1; RFC 7636; RFC 9700
package struct SignInProvider: Sendable {
    /// Who signed in, as the provider says.
    package struct Person: Hashable, Sendable {
        /// Never given to another person at this issuer.
        package var subject: String
        /// What people are called, in order of preference.
        package var names: [String]
        package var groups: [String]
        /// How long ago they showed who they are, by the provider's clock alone; `nil`: the provider does not say.
        package var provedAgo: Duration?
        /// What the provider is shown when they sign out there.
        package var idToken: String
    }

    /// Why a person is not signed in.
    package enum Failure: Error, Hashable, Sendable {
        /// The provider does not answer, or not as it should; with what the log may say.
        case unavailable(ReadFailure.Code)
        /// It refused the code; with the word it said, from its closed set or `other`.
        case refused(String)
        /// Its token is none for us.
        case token(TokenRefusal)
    }

    /// What was asked for and is compared with what comes back; only the browser that asked has it.
    package struct Request: Hashable, Sendable {
        package var state: String
        package var nonce: String
        package var verifier: String

        package init(state: String, nonce: String, verifier: String) {
            self.state = state
            self.nonce = nonce
            self.verifier = verifier
        }

        /// A random one.
        package init() {
            func random() -> String {
                SymmetricKey(size: .bits256).withUnsafeBytes { Base64.encode($0, .url) }
            }
            self.init(state: random(), nonce: random(), verifier: random())
        }
    }

    /// How far the provider's clock and ours may differ, in seconds.
    private static let skew: Int64 = 300
    private static let mostTokenBytes = 32 << 10

    package let issuer: String
    private let clientID: String
    private let clientSecret: String
    private let returnURL: String
    private let scopes: String
    private let groupsClaim: String
    private let discovery: IssuerDiscovery
    private let keys: SignerKeys
    private let http: HTTPClient
    private let systemSeconds: @Sendable () -> Int64

    /// Makes a client of a provider; asks for nothing yet, and throws what is wrong with the issuer's address.
    ///
    /// The issuer is as its discovery document has it, byte for byte. The return URL is registered with the provider.
    /// Scopes are asked for with `openid`. The logger hears that keys can't be had; of no token.
    package init(
        issuer: String,
        clientID: String,
        clientSecret: String,
        returnURL: String,
        scopes: String,
        groupsClaim: String,
        http: HTTPClient,
        logger: Logger,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    ) throws(SettingFaults<IssuerTokens.Fault>) {
        var faults: [IssuerTokens.Fault] = []
        let discovery = BaseURL.Fault.noting(.issuer, .insecureIssuer, &faults) { () throws(BaseURL.Fault) in
            try IssuerDiscovery(issuer: issuer, http: http)
        }
        guard let discovery else { throw SettingFaults(faults: faults) }
        self.issuer = issuer
        self.clientID = clientID
        self.clientSecret = clientSecret
        self.returnURL = returnURL
        self.scopes = scopes
        self.groupsClaim = groupsClaim
        self.discovery = discovery
        keys = SignerKeys(
            address: { () throws(ReadFailure) in try await discovery.metadata().keysURL },
            algorithms: IssuerTokens.algorithms,
            // A person may be in many groups.
            maximumBytes: Self.mostTokenBytes,
            http: http,
            logger: logger
        )
        self.http = http
        self.systemSeconds = systemSeconds
    }

    /// Where a browser goes to sign in.
    ///
    /// With `again` the person has to show again who they are, also where the provider still knows them.
    package func address(for request: Request, again: Bool) async throws(Failure) -> String {
        guard let endpoint = try await metadata().authorization else { throw .unavailable(.malformed) }
        var fields = [
            ("response_type", "code"), ("client_id", clientID), ("redirect_uri", returnURL), ("scope", scopes),
            ("state", request.state), ("nonce", request.nonce), ("code_challenge_method", "S256"),
            ("code_challenge", Base64.encode(Array(SHA256.hash(data: Data(request.verifier.utf8))), .url)),
            // It obliges the provider to say when they last showed who they are, and to ask again where a page of its
            // own lets people pass by.
            ("max_age", again ? "60" : "43200"),
        ]
        if again { fields.append(("prompt", "login")) }
        return endpoint.text + (endpoint.path.contains("?") ? "&" : "?") + Self.form(fields)
    }

    /// Where a browser goes to end the provider's session as well; `nil`: the provider has no such place.
    ///
    /// Some providers do not come back without the `idToken` of the sign-in.
    package func signOutAddress(_ idToken: String?, returningTo url: String) async -> String? {
        guard let endpoint = try? await discovery.metadata().endSession else { return nil }
        var fields = [("client_id", clientID), ("post_logout_redirect_uri", url)]
        if let idToken { fields.append(("id_token_hint", idToken)) }
        return endpoint.text + (endpoint.path.contains("?") ? "&" : "?") + Self.form(fields)
    }

    /// Exchanges the code that a browser came back with, which is used once.
    package func person(code: String, _ request: Request) async throws(Failure) -> Person {
        let metadata = try await metadata()
        let answer = try await redeem(code, request, metadata)
        let claims: IssuerClaims
        do throws(TokenFailure) {
            claims = try await keys.verified(answer.idToken) { payload throws(TokenRefusal) in
                let claims = try IssuerClaims(payload: payload, claim: groupsClaim)
                try check(claims, request)
                return claims
            }
        } catch {
            switch error {
            case .refused(let refusal): throw .token(refusal)
            case .unread(let failure): throw .unavailable(failure.code)
            }
        }
        var groups = claims.named
        if groups == nil, let token = answer.accessToken, let endpoint = metadata.userInfo {
            groups = try await userGroups(endpoint, token, subject: claims.subject)
        }
        // Both times are the provider's, so that no difference of clocks makes an old sign-in a new one.
        let age = claims.signedInAt.flatMap { signedIn in claims.issuedAt.map { max(0, $0 - signedIn) } }
        return Person(
            subject: claims.subject,
            names: claims.names,
            groups: groups ?? [],
            provedAgo: age.map { .seconds($0) },
            idToken: answer.idToken
        )
    }

    /// Requests the provider's metadata and keys, as ``SignerKeys/probe(systemSeconds:)`` does.
    package func probe() async throws(ReadFailure) -> Int64? { try await keys.probe(systemSeconds: systemSeconds()) }

    private func check(_ claims: IssuerClaims, _ request: Request) throws(TokenRefusal) {
        guard claims.issuer == issuer else { throw .wrongIssuer }
        guard claims.audiences.contains(clientID), claims.authorizedParty ?? clientID == clientID,
            claims.audiences.count == 1 || claims.authorizedParty != nil
        else { throw .wrongAudience }
        guard claims.nonce == request.nonce else { throw .wrongNonce }
        guard (1...255).contains(claims.subject.utf8.count) else { throw .wrongSubject }
        let now = systemSeconds()
        guard let issuedAt = claims.issuedAt, let expiresAt = claims.expiresAt else { throw .malformed }
        guard expiresAt > now - Self.skew, issuedAt > now - 2 * Self.skew else { throw .expired }
        guard [issuedAt, claims.notBefore ?? 0].allSatisfy({ $0 <= now + Self.skew }),
            (claims.signedInAt ?? 0) <= issuedAt + Self.skew
        else {
            throw .fromTheFuture
        }
    }

    private func metadata() async throws(Failure) -> IssuerMetadata {
        do throws(ReadFailure) { return try await discovery.metadata() } catch { throw .unavailable(error.code) }
    }

    private static func form(_ fields: [(String, String)]) -> String {
        fields.map { "\($0)=\(PercentCoding.encode($1))" }.joined(separator: "&")
    }
}

// MARK: - The provider's answers

extension SignInProvider {
    private struct Answer {
        var idToken = ""
        var accessToken: String?
    }

    private enum AnswerField: String, CaseIterable {
        case idToken = "id_token"
        case accessToken = "access_token"
        case error
    }
    private static let answerFields = JSONFields<AnswerField>()

    /// RFC 6749, section 5.2.
    private static let words: Set<String> = [
        "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
        "invalid_scope",
    ]

    private func redeem(_ code: String, _ asked: Request, _ metadata: IssuerMetadata) async throws(Failure) -> Answer {
        guard let endpoint = metadata.token else { throw .unavailable(.malformed) }
        var fields = [
            ("grant_type", "authorization_code"), ("code", code), ("redirect_uri", returnURL),
            ("code_verifier", asked.verifier),
        ]
        let type = "application/x-www-form-urlencoded"
        var request = HTTPRequest(.post, endpoint.base, path: endpoint.path, sending: type)
        if metadata.takesSecretInBodyOnly {
            fields += [("client_id", clientID), ("client_secret", clientSecret)]
        } else {
            let both = PercentCoding.encode(clientID) + ":" + PercentCoding.encode(clientSecret)
            request.headerFields[.authorization] = "Basic " + Data(both.utf8).base64EncodedString()
        }
        let response: HTTPClientResponse
        do throws(HTTPClientFailure) { response = try await http.send(request, Array(Self.form(fields).utf8)) } catch {
            throw .unavailable(.unavailable)
        }
        var answer = Answer()
        var word: String?
        do throws(JSONFault) {
            try JSONReader.readObject(in: response.body, Self.answerFields) { reader, field throws(JSONFault) in
                switch field {
                case .idToken: answer.idToken = try reader.readString(upTo: Self.mostTokenBytes)
                case .accessToken: answer.accessToken = try reader.readString(upTo: Self.mostTokenBytes)
                case .error: word = try reader.readOptionalString()
                }
            }
        } catch {
            // Some refuse without a word.
            guard !(400..<500).contains(response.status) else { throw .refused("other") }
            throw .unavailable(response.status == 200 ? .malformed : .unavailable)
        }
        if (400..<500).contains(response.status) {
            throw .refused(word.flatMap { Self.words.contains($0) ? $0 : nil } ?? "other")
        }
        guard response.status == 200 else { throw .unavailable(.unavailable) }
        guard !answer.idToken.isEmpty else { throw .unavailable(.malformed) }
        return answer
    }

    /// Some providers keep groups out of tokens, and tell them here.
    private func userGroups(
        _ endpoint: EndpointURL,
        _ accessToken: String,
        subject: String
    ) async throws(Failure) -> [String]? {
        guard accessToken.utf8.allSatisfy(\.isVisible) else { throw .unavailable(.malformed) }
        let body: [UInt8]
        do throws(ReadFailure) { body = try await http.get(endpoint, bearer: accessToken).body } catch {
            throw .unavailable(error.code)
        }
        guard let claims = try? IssuerClaims(payload: body, claim: groupsClaim) else { throw .unavailable(.malformed) }
        // An answer about another person says nothing.
        guard claims.subject == subject else { throw .token(.wrongSubject) }
        return claims.named
    }
}
