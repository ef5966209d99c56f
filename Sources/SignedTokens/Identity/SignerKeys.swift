package import Entitlements
import HTTPTypes
package import Logging
import Telemetry
import TextFormats
package import Transport

/// The public keys that an issuer signs a kind of token with, and how such a token is taken apart and verified.
package struct SignerKeys: Sendable {
    /// The longest token that is read, in bytes; real ones have 1,000.
    package static let maximumBytes = 8 << 10
    /// Names of keys that do not exist make us ask the issuer once a minute at most.
    package static let pause = Duration.seconds(60)

    private let address: @Sendable () async throws(ReadFailure) -> EndpointURL
    private let algorithms: Set<String>
    private let limit: Int
    private let takesUnnamed: Bool
    private let http: HTTPClient
    private let logger: Logger
    private let keys: KeySet
    private let throttle = LogThrottle<ReadFailure.Code>()

    /// Keys of the JWK set that `address` finds; the set is empty at first.
    ///
    /// With `takesUnnamed` a token need not name a key that is alone in the set. The logger hears that keys can't be
    /// had.
    package init(
        address: @escaping @Sendable () async throws(ReadFailure) -> EndpointURL,
        algorithms: Set<String>,
        maximumBytes: Int = maximumBytes,
        takesUnnamed: Bool = true,
        http: HTTPClient,
        logger: Logger,
        keys: KeySet = KeySet(of: nil, pause: pause)
    ) {
        self.address = address
        self.algorithms = algorithms
        limit = maximumBytes
        self.takesUnnamed = takesUnnamed
        self.http = http
        self.logger = logger
        self.keys = keys
    }

    /// Reads what a token says, and verifies that the issuer signed it.
    ///
    /// `claims` reads the payload and checks it: only what may be meant for us is worth a key.
    package func verified<Claims: Sendable>(
        _ token: String,
        _ claims: ([UInt8]) throws(TokenRefusal) -> Claims
    ) async throws(TokenFailure) -> Claims {
        let signed: CompactJWS
        let name: String
        let algorithm: String
        let said: Claims
        do throws(TokenRefusal) {
            signed = try parts(token)
            (name, algorithm) = try header(of: signed)
            said = try claims(signed.payload)
        } catch { throw .refused(error) }
        let key: VerificationKey
        do throws(KeySet.Miss) {
            key = try await keys.key(name) { () throws(ReadFailure) in try await fetch() }
        } catch {
            switch error {
            case .unknown, .unasked: throw .refused(.unknownKey)
            case .unread(let failure): throw .unread(failure)
            }
        }
        // The header had no choice: a key of another kind verifies nothing.
        guard key.algorithm == algorithm else { throw .refused(.wrongAlgorithm) }
        guard key.isValid(signed.signature, for: signed.signed) else { throw .refused(.badSignature) }
        return said
    }

    private func parts(_ token: String) throws(TokenRefusal) -> CompactJWS {
        do throws(ProofRefusal) {
            let signed = try CompactJWS(token, upTo: limit)
            guard !signed.signature.isEmpty else { throw ProofRefusal(.malformed, "") }
            return signed
        } catch {
            throw error.code == .tooLarge ? .tooLarge : .malformed
        }
    }

    private func header(of signed: CompactJWS) throws(TokenRefusal) -> (key: String, algorithm: String) {
        guard let header = try? signed.header() else { throw .malformed }
        guard algorithms.contains(header.algorithm) else { throw .wrongAlgorithm }
        guard let name = header.keyID else {
            guard takesUnnamed else { throw .malformed }
            return (JSONWebKeys.onlyKey, header.algorithm)
        }
        guard (1...JSONWebKeys.maximumNameBytes).contains(name.utf8.count) else { throw .malformed }
        return (name, header.algorithm)
    }

    /// Asks for the keys, to find out whether they can be had.
    ///
    /// - Returns: how far the issuer's clock is ahead of ours, in seconds; `nil` where it does not say.
    /// - Throws: `ReadFailure`.
    package func probe(systemSeconds: Int64) async throws(ReadFailure) -> Int64? {
        let response = try await http.get(try await address())
        _ = try KeySet.Fetched(response.body, takesUnnamed: takesUnnamed)
        return response.headers[.date].flatMap(HTTPDate.seconds).map { $0 - systemSeconds }
    }

    private func fetch() async throws(ReadFailure) -> KeySet.Fetched {
        do throws(ReadFailure) {
            let response = try await http.get(try await address())
            var fetched = try KeySet.Fetched(response.body, takesUnnamed: takesUnnamed)
            fetched.freshFor = CacheLifetime.lifetime(response.headers)
            return fetched
        } catch {
            if let unsaid = throttle.leave(for: error.code) {
                logger.warning(
                    "an issuer's keys for tokens can't be had; those that are known serve on",
                    metadata: ["error.code": "\(error.code.rawValue)", "log.left_out": "\(unsaid)"]
                )
            }
            throw error
        }
    }
}

extension SignerKeys {
    /// Google's: at one address, RS256 alone.
    package static func google(
        _ address: EndpointURL,
        http: HTTPClient,
        logger: Logger,
        keys: KeySet = KeySet(of: nil, pause: pause)
    ) -> SignerKeys {
        SignerKeys(
            address: { () throws(ReadFailure) in address },
            algorithms: ["RS256"],
            takesUnnamed: false,
            http: http,
            logger: logger,
            keys: keys
        )
    }
}
