package import Entitlements
import Foundation
import HTTPTypes
import SignedTokens
import TextFormats
package import Transport

/// The accounts of a Firebase project, as far as their custom claims go.
///
/// - SeeAlso: https://cloud.google.com/identity-platform/docs/reference/rest/v1/projects.accounts
package struct FirebaseAccounts: Sendable {
    /// What came of a request about one account.
    package enum Said<Value: Sendable>: Sendable {
        case done(Value)
        /// The project has no such account.
        case noAccount
        /// The claims are longer than Firebase takes.
        case tooLong
    }

    package var projectID: String { configuration.projectID }
    private let configuration: FirebaseConfiguration
    private let http: HTTPClient
    private let tokens = AccessTokens()
    private let systemSeconds: @Sendable () -> Int64

    /// `systemSeconds` is the system's clock, in seconds since 1970.
    package init(
        configuration: FirebaseConfiguration,
        http: HTTPClient,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    ) {
        self.configuration = configuration
        self.http = http
        self.systemSeconds = systemSeconds
    }

    /// Reads an account's custom claims: the text of a JSON object, `nil` where it has none.
    package func claims(of user: String) async throws(ReadFailure) -> Said<String?> {
        guard Self.isID(user) else { return .noAccount }
        let said = try await send("lookup", LookupBody(localId: [user]))
        guard case .done(let body) = said else { return said.with(nil) }
        let users = try decoded(body) { body throws(JSONFault) in try Self.users(in: body) }
        guard let account = users.first else { return .noAccount }
        // What another account holds must not be merged into this one.
        guard users.count == 1, account.id.map(ExactText.init) == ExactText(user) else {
            throw ReadFailure(.malformed)
        }
        return .done(account.claims)
    }

    /// Replaces an account's custom claims, the text of a JSON object; `overtaken` where the request could not be sent before an instant.
    package func setClaims(
        _ claims: String,
        of user: String,
        before end: ContinuousClock.Instant
    ) async throws(ReadFailure) -> Said<Void> {
        try await send("update", UpdateBody(localId: user, customAttributes: claims), before: end).with(())
    }

    /// Ids have at most 128 characters there.
    private static func isID(_ user: String) -> Bool { (1...128).contains(user.unicodeScalars.count) }

    private struct LookupBody: Encodable { var localId: [String] }
    private struct UpdateBody: Encodable { var localId, customAttributes: String }

    // MARK: Requests

    private func send(
        _ method: String,
        _ content: some Encodable,
        before end: ContinuousClock.Instant? = nil
    ) async throws(ReadFailure) -> Said<[UInt8]> {
        guard let body = try? JSONEncoder().encode(content) else { throw ReadFailure(.rejected) }
        var isSecond = false
        while true {
            let token = try await tokens.token { () async throws(ReadFailure) in try await fetchToken() }
            let request = HTTPRequest(
                .post,
                configuration.base,
                path: "\(configuration.base.path)/v1/projects/\(configuration.projectID)/accounts:\(method)",
                sending: "application/json",
                bearer: token.text
            )
            if let end, ContinuousClock.now >= end { throw ReadFailure(.overtaken) }
            let response = try await answer(to: request, Array(body))
            switch firebaseAnswer(status: response.status, message: firebaseMessage(response.body)) {
            case .content: return .done(response.body)
            case .noAccount: return .noAccount
            case .tooLong: return .tooLong
            case .failure(let code): throw ReadFailure(code, retryAfter: retryAfter(response))
            case .stale:
                tokens.drop(token)
                if isSecond { throw ReadFailure(.unauthorized) }
                isSecond = true
            }
        }
    }

    private func fetchToken() async throws(ReadFailure) -> AccessToken {
        guard let (request, body) = configuration.access.tokenRequest(at: systemSeconds()) else {
            throw ReadFailure(.unauthorized)
        }
        let sentAt = ContinuousClock.now
        return AccessToken(try GoogleAccess.token(in: await answer(to: request, body)), sentAt: sentAt)
    }

    private func answer(to request: HTTPRequest, _ body: [UInt8]) async throws(ReadFailure) -> HTTPClientResponse {
        do throws(HTTPClientFailure) { return try await http.send(request, body) } catch {
            throw ReadFailure(StoreRequester.codes[error.code] ?? .unavailable)
        }
    }

    private func retryAfter(_ response: HTTPClientResponse) -> Duration? {
        response.headers[.retryAfter].flatMap { RetryAfter.wait($0, now: systemSeconds()) }
    }

    // MARK: Answers

    private enum Field: String, CaseIterable {
        case id = "localId"
        case claims = "customAttributes"
    }

    private static let answer = JSONFields(only: "users")
    private static let fields = JSONFields<Field>()
    /// Far more than Firebase takes.
    private static let maximumClaimBytes = 64 << 10

    /// The accounts in an answer to a lookup; of none it has no list.
    private static func users(in body: [UInt8]) throws(JSONFault) -> [(id: String?, claims: String?)] {
        var users: [(id: String?, claims: String?)] = []
        try JSONReader.readObject(in: body, answer) { reader, _ throws(JSONFault) in
            try reader.readArray { reader throws(JSONFault) in
                var user: (id: String?, claims: String?) = (nil, nil)
                try reader.readObject(fields) { reader, field throws(JSONFault) in
                    switch field {
                    case .id: user.id = try reader.readOptionalString()
                    case .claims: user.claims = try reader.readNull() ? nil : reader.readString(upTo: maximumClaimBytes)
                    }
                }
                users.append(user)
            }
        }
        return users
    }
}

extension FirebaseAccounts.Said {
    fileprivate func with<Other>(_ other: Other) -> FirebaseAccounts.Said<Other> {
        switch self {
        case .done: .done(other)
        case .noAccount: .noAccount
        case .tooLong: .tooLong
        }
    }
}
