import Crypto
import CryptoExtras
import Foundation
import HTTPTypes
import Logging
import Synchronization
@testable import Transport

/// An OpenID Connect issuer whose tokens are made here, with a key of each kind, and what it answers at the moment.
final class IssuerBench: Sendable {
    static let issuer = "https://id.example.com/realms/team"
    static let now: Int64 = 1_800_000_000

    /// Whose key signs, and how.
    enum Signer: String, CaseIterable, Sendable {
        case rs256 = "RS256", es256 = "ES256", edDSA = "EdDSA", other = "RS256 "
    }

    private static let rsa = Result { try _RSA.Signing.PrivateKey(keySize: .bits2048) }
    private static let stranger = Result { try _RSA.Signing.PrivateKey(keySize: .bits2048) }

    private struct State {
        var seconds = IssuerBench.now
        var discovery: [String: any Sendable]
        var set: String
        var token = (status: 200, body: "{}")
        var userInfo = (status: 200, body: "{}")
        var isDown = false
        var requests: [(request: HTTPRequest, body: String)] = []
    }

    private let ec = P256.Signing.PrivateKey()
    private let ed = Curve25519.Signing.PrivateKey()
    private let state: Mutex<State>

    init() throws {
        let base = Self.issuer
        state = Mutex(
            State(
                discovery: [
                    "issuer": base, "jwks_uri": base + "/keys", "authorization_endpoint": base + "/authorize",
                    "token_endpoint": base + "/token", "userinfo_endpoint": base + "/me",
                    "end_session_endpoint": base + "/bye",
                ],
                set: ""
            )
        )
        let set = try keySet()
        state.withLock { $0.set = set }
    }

    var requests: [(request: HTTPRequest, body: String)] { state.withLock { $0.requests } }

    func set(_ change: (inout [String: any Sendable]) -> Void) { state.withLock { change(&$0.discovery) } }
    func goDown() { state.withLock { $0.isDown = true } }
    func clock(_ seconds: Int64) { state.withLock { $0.seconds = seconds } }
    func keys(_ set: String) { state.withLock { $0.set = set } }

    /// What the token endpoint answers from now on.
    func give(_ idToken: String, status: Int = 200, accessToken: String = "access") {
        let body = #"{"token_type":"Bearer","access_token":"\#(accessToken)","id_token":"\#(idToken)"}"#
        state.withLock { $0.token = (status, status == 200 ? body : #"{"error":"invalid_grant"}"#) }
    }

    func tell(_ userInfo: String, status: Int = 200) { state.withLock { $0.userInfo = (status, userInfo) } }

    var http: HTTPClient {
        HTTPClient { [self] request, body throws(HTTPClientFailure) in
            let answer = state.withLock { state -> (Int, String)? in
                state.requests.append((request, String(decoding: body ?? [], as: UTF8.self)))
                guard !state.isDown else { return nil }
                switch request.path?.replacing("/realms/team", with: "") {
                case "/.well-known/openid-configuration": return (200, (try? FirebaseBench.text(state.discovery)) ?? "")
                case "/keys": return (200, state.set)
                case "/token": return state.token
                case "/me": return state.userInfo
                default: return (404, "{}")
                }
            }
            guard let answer else { throw HTTPClientFailure(.timeout) }
            return HTTPClientResponse(status: answer.0, body: Array(answer.1.utf8))
        }
    }

    var seconds: @Sendable () -> Int64 { { self.state.withLock { $0.seconds } } }
    static var logger: Logger { Logger(label: "test") { _ in SwiftLogNoOpLogHandler() } }

    // MARK: Tokens

    /// Signs claims; those that are null are left out.
    func token(
        _ claims: [String: any Sendable],
        _ changes: [String: any Sendable] = [:],
        header: [String: any Sendable] = [:],
        by signer: Signer = .rs256
    ) throws -> String {
        let said = claims.merging(changes) { $1 }.filter { !($0.value is NSNull) }
        let algorithm = signer.rawValue.trimmingCharacters(in: .whitespaces)
        let usual: [String: any Sendable] = ["alg": algorithm, "kid": algorithm]
        let head = usual.merging(header) { $1 }.filter { !($0.value is NSNull) }
        let signed =
            FirebaseBench.base64URL(Data(try FirebaseBench.text(head).utf8)) + "."
            + FirebaseBench.base64URL(Data(try FirebaseBench.text(said).utf8))
        let data = Data(signed.utf8)
        let signature =
            switch signer {
            case .rs256: try Self.rsa.get().signature(for: data, padding: .insecurePKCS1v1_5).rawRepresentation
            case .other: try Self.stranger.get().signature(for: data, padding: .insecurePKCS1v1_5).rawRepresentation
            case .es256: try ec.signature(for: data).rawRepresentation
            case .edDSA: try ed.signature(for: data)
            }
        return signed + "." + FirebaseBench.base64URL(signature)
    }

    /// The key set; with `names` false of the RSA key alone, which has no name.
    func keySet(names: Bool = true) throws -> String {
        let primitives = try Self.rsa.get().publicKey.getKeyPrimitives()
        let rsa =
            #""kty":"RSA","n":"\#(FirebaseBench.base64URL(primitives.modulus))","#
            + #""e":"\#(FirebaseBench.base64URL(primitives.publicExponent))"}"#
        guard names else { return #"{"keys":[{\#(rsa)]}"# }
        let point = ec.publicKey.rawRepresentation
        return #"{"keys":[{"kid":"RS256",\#(rsa),"#
            + #"{"kid":"ES256","kty":"EC","crv":"P-256","x":"\#(FirebaseBench.base64URL(point.prefix(32)))","#
            + #""y":"\#(FirebaseBench.base64URL(point.suffix(32)))"},"#
            + #"{"kid":"EdDSA","kty":"OKP","crv":"Ed25519","#
            + #""x":"\#(FirebaseBench.base64URL(ed.publicKey.rawRepresentation))"}]}"#
    }
}
