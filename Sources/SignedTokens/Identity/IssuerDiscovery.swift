package import Entitlements
import Synchronization
package import TextFormats
package import Transport

/// What an issuer says of itself: where its keys are, and where people sign in.
///
/// - SeeAlso: OpenID Connect Discovery 1.0, section 3
package struct IssuerMetadata: Sendable {
    private(set) var keysURL: EndpointURL
    private(set) var authorization: EndpointURL?
    private(set) var token: EndpointURL?
    private(set) var userInfo: EndpointURL?
    private(set) var endSession: EndpointURL?
    /// Whether a client shows its secret in the body, since the issuer takes no header.
    private(set) var takesSecretInBodyOnly = false

    private enum Field: String, CaseIterable {
        case issuer
        case keysURL = "jwks_uri"
        case authorization = "authorization_endpoint"
        case token = "token_endpoint"
        case userInfo = "userinfo_endpoint"
        case endSession = "end_session_endpoint"
        case methods = "token_endpoint_auth_methods_supported"
    }

    private static let fields = JSONFields<Field>()

    /// Reads the document, whose issuer has to be this one, byte for byte.
    ///
    /// No address may be plain http to a host other than loopback.
    package init(_ body: [UInt8], of issuer: String) throws(JSONFault) {
        var texts: [Field: String] = [:]
        var methods: [String]?
        try JSONReader.readObject(in: body, Self.fields) { reader, field throws(JSONFault) in
            guard field == .methods else {
                texts[field] = try reader.readOptionalString()
                return
            }
            methods = []
            try reader.readArray { reader throws(JSONFault) in methods?.append(try reader.readString()) }
        }
        // Plain http on this machine is for an issuer on this machine, and no other leads there.
        let isPlain = issuer.hasPrefix("http://")
        func address(_ field: Field) throws(JSONFault) -> EndpointURL? {
            guard let text = texts[field] else { return nil }
            do throws(BaseURL.Fault) {
                let address = try EndpointURL(text)
                guard isPlain || address.base.scheme == "https" else { throw BaseURL.Fault.insecure }
                return address
            } catch { throw .outOfRange }
        }
        guard texts[.issuer] == issuer, let keys = try address(.keysURL) else { throw .missing }
        keysURL = keys
        authorization = try address(.authorization)
        token = try address(.token)
        userInfo = try address(.userInfo)
        endSession = try address(.endSession)
        if let methods {
            takesSecretInBodyOnly = methods.contains("client_secret_post") && !methods.contains("client_secret_basic")
        }
    }
}

/// Asks an issuer for its metadata, and keeps them for an hour.
///
/// Of several who ask at once one asks the issuer while what was known serves the others; where nothing is known each
/// asks. Where the issuer does not answer, what was known serves on.
package final class IssuerDiscovery: Sendable {
    private static let lifetime = Duration.seconds(3_600)
    /// The pause after a request that failed.
    private static let pause = Duration.seconds(2)

    private struct State {
        var known: IssuerMetadata?
        var freshUntil = ContinuousClock.now
        var failure: ReadFailure?
        var isFetching = false
    }

    private let issuer: String
    private let address: EndpointURL
    private let http: HTTPClient
    private let state = Mutex(State())

    /// - Throws: what is wrong with the issuer's address.
    package init(issuer: String, http: HTTPClient) throws(BaseURL.Fault) {
        self.issuer = issuer
        address = try EndpointURL(
            (issuer.hasSuffix("/") ? String(issuer.dropLast()) : issuer) + "/.well-known/openid-configuration"
        )
        self.http = http
    }

    /// What the issuer says of itself; `malformed` for a document of another issuer, or none at all.
    package func metadata() async throws(ReadFailure) -> IssuerMetadata {
        let (known, failure) = state.withLock { state -> (IssuerMetadata?, ReadFailure?) in
            let isFresh = ContinuousClock.now < state.freshUntil
            if isFresh || state.known != nil && state.isFetching { return (state.known, state.failure) }
            state.isFetching = true
            return (nil, nil)
        }
        if let known { return known }
        if let failure { throw failure }
        do throws(ReadFailure) {
            let response = try await http.get(address)
            let metadata: IssuerMetadata
            do throws(JSONFault) { metadata = try IssuerMetadata(response.body, of: issuer) } catch {
                throw ReadFailure(.malformed)
            }
            state.withLock { $0 = State(known: metadata, freshUntil: .now + Self.lifetime) }
            return metadata
        } catch {
            let stale = state.withLock { state in
                state.freshUntil = .now + Self.pause
                state.failure = error
                state.isFetching = false
                return state.known
            }
            guard let stale else { throw error }
            return stale
        }
    }
}
