internal import Foundation
internal import NIOCore

/// The accounts of the Firebase project: every id is one's, until it is taken away.
struct FirebaseAccountBook: Sendable {
    /// The longest text of custom claims, in characters.
    private static let longestClaims = 1_000

    /// Texts of custom claims, by account.
    private var claims: [String: String] = [:]
    private var missing: Set<String> = []
    /// Moments of writes, by the machine's clock in milliseconds since 1970.
    private(set) var writes: [Int64] = []

    /// What an account has: `nil` where there is no account, empty where it has no claims.
    func claims(of id: String) -> String? { missing.contains(id) ? nil : claims[id] ?? "" }

    /// Sets what an account has, as another program of the team's would.
    mutating func set(_ text: String?, of id: String) {
        if text == nil { missing.insert(id) } else { missing.remove(id) }
        claims[id] = text
    }

    func lookup(_ request: StoreRequest) -> Reply {
        struct Body: Decodable { var localId: [String] }
        guard let body = try? JSONDecoder().decode(Body.self, from: Data(request.body.readableBytesView)) else {
            return Self.refusal("INVALID_REQ_TYPE")
        }
        let found = body.localId.filter { claims(of: $0) != nil }
        return .object { json in
            json.member("kind", literal: "identitytoolkit#GetAccountInfoResponse")
            // The list is missing where it would be empty.
            guard !found.isEmpty else { return }
            json.array("users") { json in
                for id in found {
                    json.object { json in
                        json.member("localId", id)
                        json.optional("customAttributes", claims[id])
                    }
                }
            }
        }
    }

    mutating func update(_ request: StoreRequest) -> Reply {
        struct Body: Decodable { var localId, customAttributes: String? }
        guard let body = try? JSONDecoder().decode(Body.self, from: Data(request.body.readableBytesView)),
            let id = body.localId
        else { return Self.refusal("MISSING_LOCAL_ID") }
        guard claims(of: id) != nil else { return Self.refusal("USER_NOT_FOUND") }
        if let text = body.customAttributes {
            guard text.count <= Self.longestClaims else { return Self.refusal("CLAIMS_TOO_LARGE") }
            guard (try? JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]) != nil else {
                return Self.refusal("INVALID_CLAIMS")
            }
            claims[id] = text
        }
        writes.append(SimulatedClock.machine())
        return .object { json in
            json.member("kind", literal: "identitytoolkit#SetAccountInfoResponse")
            json.member("localId", id)
        }
    }

    private static func refusal(_ message: String) -> Reply { IdentitySimulation.failure(400, message) }
}

extension IdentitySimulation {
    /// The endpoints of accounts; `nil` for other paths.
    func accountRoute(_ request: StoreRequest) -> StoreRoute? {
        let parts = request.path.split(separator: "/")
        guard parts.count == 5, parts[0...2] == ["identity-toolkit", "v1", "projects"] else { return nil }
        let endpoint: String
        switch parts[4] {
        case "accounts:lookup": endpoint = "identity.lookup"
        case "accounts:update": endpoint = "identity.update"
        default: return nil
        }
        return StoreRoute(
            endpoint: endpoint,
            template: "\(request.method) /identity-toolkit/v1/projects/{project}/\(parts[4])"
        )
    }

    mutating func answerAccounts(_ request: StoreRequest, _ endpoint: String) -> Reply {
        guard request.method == "POST" else { return Self.failure(405, "method not allowed") }
        guard isLetIn else { return Self.failure(401, "Request had invalid authentication credentials.") }
        guard request.path.split(separator: "/")[3] == firebase.project else {
            return Self.failure(403, "PROJECT_NOT_FOUND")
        }
        return endpoint == "identity.lookup" ? accounts.lookup(request) : accounts.update(request)
    }

    /// `GET`, `PUT` and `DELETE` of one account's claims; `nil` for other requests.
    mutating func controlAccounts(_ request: StoreRequest, _ path: Substring) -> Reply? {
        let prefix = "claims/"
        guard path.hasPrefix(prefix), let id = PercentCoding.decode(path.dropFirst(prefix.count)), !id.isEmpty else {
            return nil
        }
        switch request.method {
        case "GET":
            return accounts.claims(of: id).map { Reply(status: 200, body: Array(($0.isEmpty ? "{}" : $0).utf8)) }
        case "PUT": accounts.set(String(decoding: request.body.readableBytesView, as: UTF8.self), of: id)
        case "DELETE": accounts.set(nil, of: id)
        default: return nil
        }
        return .done
    }
}

// The control endpoint without HTTP, for tests in the same process.
extension StoreSimulator {
    /// An account's custom claims: `nil` where there is no account, empty where it has none.
    package func customClaims(of id: String) -> String? { simulation.withState { $0.identity.accounts.claims(of: id) } }

    /// Sets an account's custom claims; `nil` takes the account away.
    package func setCustomClaims(_ text: String?, of id: String) {
        simulation.withState { $0.identity.accounts.set(text, of: id) }
    }

    /// When custom claims were written, in milliseconds since 1970.
    package var claimWrites: [Int64] { simulation.withState { $0.identity.accounts.writes } }
}
