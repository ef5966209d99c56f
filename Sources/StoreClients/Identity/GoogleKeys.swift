import Entitlements
import HTTPTypes
import Logging

/// The public keys that Google signs a kind of token with, and how such a token is taken apart and verified.
struct GoogleKeys: Sendable {
    /// The longest token that is looked at, in bytes; real ones have 1,000.
    static let maximumBytes = 8 << 10
    /// Whoever sends names that nobody knows makes us ask Google once a minute at most.
    static let pause = Duration.seconds(60)
    private static let algorithm = "RS256"

    private let address: EndpointURL
    private let http: StoreHTTP
    private let logger: Logger
    private let keys: KeySet
    private let throttle = LogThrottle()

    init(address: EndpointURL, http: StoreHTTP, logger: Logger, keys: KeySet) {
        self.address = address
        self.http = http
        self.logger = logger
        self.keys = keys
    }

    /// Reads what a token says, and verifies that Google signed it.
    ///
    /// - Parameters:
    ///   - token: a compact JWS.
    ///   - claims: reads the payload and checks it; only what may be meant for us is worth a key.
    /// - Returns: the claims.
    /// - Throws: `TokenFailure`.
    func verified<Claims: Sendable>(
        _ token: String,
        _ claims: ([UInt8]) throws(TokenRefusal) -> Claims
    ) async throws(TokenFailure) -> Claims {
        let signed: CompactJWS
        let name: String
        let said: Claims
        do throws(TokenRefusal) {
            signed = try Self.parts(token)
            name = try Self.keyName(signed)
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
        guard key.algorithm == Self.algorithm else { throw .refused(.wrongAlgorithm) }
        guard key.isValid(signed.signature, for: signed.signed) else { throw .refused(.badSignature) }
        return said
    }

    private static func parts(_ token: String) throws(TokenRefusal) -> CompactJWS {
        do throws(ProofRefusal) {
            let signed = try CompactJWS(token, upTo: maximumBytes)
            guard !signed.signature.isEmpty else { throw ProofRefusal(.malformed, "") }
            return signed
        } catch {
            throw error.code == .tooLarge ? .tooLarge : .malformed
        }
    }

    private static func keyName(_ signed: CompactJWS) throws(TokenRefusal) -> String {
        guard let header = try? signed.header() else { throw .malformed }
        guard header.algorithm == algorithm else { throw .wrongAlgorithm }
        guard let name = header.keyID, (1...JSONWebKeys.maximumNameBytes).contains(name.utf8.count) else {
            throw .malformed
        }
        return name
    }

    /// Asks for the keys, for somebody who wants to know whether they can be had.
    ///
    /// - Returns: how far Google's clock is ahead of ours, in seconds; `nil` where it does not say.
    /// - Throws: `ReadFailure`.
    func probe(systemSeconds: Int64) async throws(ReadFailure) -> Int64? {
        let response = try await answer()
        do throws(JSONFault) { _ = try JSONWebKeys.read(response.body) } catch { throw ReadFailure(.malformed) }
        return response.headers[.date].flatMap(HTTPDate.seconds).map { $0 - systemSeconds }
    }

    private func fetch() async throws(ReadFailure) -> KeySet.Fetched {
        do throws(ReadFailure) {
            let response = try await answer()
            do throws(JSONFault) {
                return KeySet.Fetched(
                    keys: try JSONWebKeys.read(response.body),
                    freshFor: CacheLifetime.lifetime(response.headers)
                )
            } catch { throw ReadFailure(.malformed) }
        } catch {
            if let unsaid = throttle.leave(for: error.code) {
                logger.warning(
                    "Google's keys for tokens can't be had; those that are known serve on",
                    metadata: ["error.code": "\(error.code.rawValue)", "log.left_out": "\(unsaid)"]
                )
            }
            throw error
        }
    }

    private func answer() async throws(ReadFailure) -> StoreHTTPResponse {
        let request = HTTPRequest(
            method: .get,
            scheme: address.base.scheme,
            authority: address.base.authority,
            path: address.path,
            headerFields: [.accept: "application/json"]
        )
        let response: StoreHTTPResponse
        do throws(StoreHTTPFailure) { response = try await http.send(request, nil) } catch {
            throw ReadFailure(error.code == .cancelled ? .interrupted : .unavailable)
        }
        guard response.status == 200 else { throw ReadFailure(.unavailable) }
        return response
    }
}
