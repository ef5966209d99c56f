import Crypto
import CryptoExtras
import Entitlements
import Foundation
import HTTPTypes
import Logging
@testable import SignedTokens
import Synchronization
import TestSupport
@testable import Transport

/// A Firebase project whose tokens are made here, and Google's key set as it answers at the moment.
final class FirebaseBench: Sendable {
    static let project = "demo-project"
    /// What the clocks of all tokens start from.
    static let now: Int64 = 1_800_000_000

    /// Making keys takes long.
    private static let made = Result {
        try (0..<3).map { _ in try _RSA.Signing.PrivateKey(keySize: .bits2048) }
    }

    private struct State {
        var set: String
        var headers: HTTPFields = [.cacheControl: "public, max-age=21600, must-revalidate"]
        var status = 200
        var fails = false
        var requests: [HTTPRequest] = []
        var monotonic = ContinuousClock.now
        var seconds = FirebaseBench.now
    }

    let keys: [_RSA.Signing.PrivateKey]
    private let state: Mutex<State>

    init() throws {
        keys = try Self.made.get()
        state = Mutex(State(set: try Self.set(keys, [0, 1])))
    }

    var requests: [HTTPRequest] { state.withLock { $0.requests } }

    /// What the key endpoint answers from now on.
    func answer(status: Int = 200, fails: Bool = false, headers: HTTPFields? = nil, body: String? = nil) {
        state.withLock {
            $0.status = status
            $0.fails = fails
            if let headers { $0.headers = headers }
            if let body { $0.set = body }
        }
    }

    /// Makes other keys the living ones.
    func rotate(to numbers: [Int]) throws {
        let set = try Self.set(keys, numbers)
        state.withLock { $0.set = set }
    }

    /// Lets time pass, on every clock.
    func wait(_ duration: Duration) {
        state.withLock {
            $0.monotonic += duration
            $0.seconds += duration.components.seconds
        }
    }

    var http: HTTPClient {
        HTTPClient { [self] request, _ throws(HTTPClientFailure) in
            let (fails, response) = state.withLock { state in
                state.requests.append(request)
                let body = Array(state.set.utf8)
                return (state.fails, HTTPClientResponse(status: state.status, headers: state.headers, body: body))
            }
            if fails { throw HTTPClientFailure(.timeout) }
            return response
        }
    }

    func tokens(project: String = project, keysURL: String = FirebaseTokens.usualKeysURL) throws -> FirebaseTokens {
        try FirebaseTokens(
            projectID: project,
            keysURL: keysURL,
            http: http,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            systemSeconds: { self.state.withLock { $0.seconds } },
            keys: KeySet(of: nil, pause: SignerKeys.pause) { self.state.withLock { $0.monotonic } }
        )
    }

    // MARK: Tokens

    static func claims(_ changes: [String: any Sendable] = [:]) -> [String: any Sendable] {
        let usual: [String: any Sendable] = [
            "iss": "https://securetoken.google.com/\(project)", "aud": project, "sub": "ann", "user_id": "ann",
            "iat": now - 10, "exp": now + 3_590, "auth_time": now - 86_400, "email": "ann@example.com",
            "firebase": ["sign_in_provider": "apple.com", "identities": ["apple.com": ["1"]]] as [String: any Sendable],
        ]
        return usual.merging(changes) { $1 }.filter { !($0.value is NSNull) }
    }

    /// Signs claims as Google does.
    func token(
        _ changes: [String: any Sendable] = [:],
        header: [String: any Sendable] = [:],
        key: Int = 0
    ) throws -> String {
        try sign(Self.text(Self.claims(changes)), header: header, key: key)
    }

    /// Signs a payload, whatever it is.
    func sign(_ payload: String, header: [String: any Sendable] = [:], key: Int = 0) throws -> String {
        let usual: [String: any Sendable] = ["alg": "RS256", "kid": "key-\(key)", "typ": "JWT"]
        let head = usual.merging(header) { $1 }.filter { !($0.value is NSNull) }
        let signed = Self.base64URL(Data(try Self.text(head).utf8)) + "." + Self.base64URL(Data(payload.utf8))
        let signature = try keys[key].signature(for: Data(signed.utf8), padding: .insecurePKCS1v1_5)
        return signed + "." + Self.base64URL(signature.rawRepresentation)
    }

    static func text(_ members: [String: any Sendable]) throws -> String {
        String(decoding: try JSONSerialization.data(withJSONObject: members, options: .sortedKeys), as: UTF8.self)
    }

    static func base64URL(_ data: Data) -> String {
        data.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    private static func set(_ keys: [_RSA.Signing.PrivateKey], _ numbers: [Int]) throws -> String {
        let written = try numbers.map { number in
            let primitives = try keys[number].publicKey.getKeyPrimitives()
            return """
                {"kty":"RSA","alg":"RS256","use":"sig","kid":"key-\(number)","n":"\(base64URL(primitives.modulus))",\
                "e":"\(base64URL(primitives.publicExponent))"}
                """
        }
        return #"{"keys":[\#(written.joined(separator: ","))]}"#
    }
}
