import Entitlements
import Foundation
import HTTPTypes
import StoreSimulator
import Synchronization
import Testing

@testable import StoreClients
@testable import Transport

@Suite struct FirebaseAccountsTests {
    // MARK: The table of answers

    @Test func `Every status has one meaning`() {
        for status in 0...700 {
            for message in [nil, "", "USER_NOT_FOUND", "CLAIMS_TOO_LARGE", "QUOTA_EXCEEDED : slow down", "OTHER"] {
                let answer = firebaseAnswer(status: status, message: message)
                switch status {
                case 200...299: #expect(answer == .content)
                case 401 where message == nil: #expect(answer == .stale)
                // What is no answer of Google's says nothing about an account or a key.
                case 400...404 where message == nil: #expect(answer == .failure(.unavailable))
                case 429: #expect(answer == .failure(.throttled))
                default: #expect(answer != .content)
                }
            }
        }
    }

    @Test(
        arguments: [
            (400, "USER_NOT_FOUND", FirebaseAnswer.noAccount), (404, "USER_NOT_FOUND", .noAccount),
            (400, "CLAIMS_TOO_LARGE", .tooLong), (400, "INVALID_CLAIMS", .failure(.rejected)),
            (400, "QUOTA_EXCEEDED : Exceeded quota for updating accounts.", .failure(.throttled)),
            (403, "RESOURCE_EXHAUSTED", .failure(.throttled)),
            (403, "The caller does not have permission", .failure(.unauthorized)),
            (400, "PROJECT_NOT_FOUND", .failure(.unauthorized)), (404, "", .failure(.unauthorized)),
            (400, "INSUFFICIENT_PERMISSION: no", .failure(.unauthorized)),
            (401, "Request had invalid credentials", .stale),
            (408, nil, .failure(.timeout)), (409, "ABORTED", .failure(.rejected)),
            (500, "INTERNAL", .failure(.unavailable)),
            (302, nil, .failure(.unavailable)),
        ] as [(Int, String?, FirebaseAnswer)]
    )
    func `Google's own words`(_ status: Int, _ message: String?, _ expected: FirebaseAnswer) {
        #expect(firebaseAnswer(status: status, message: message) == expected)
    }

    // MARK: Requests

    private final class Google: Sendable {
        let sent = Mutex<[(path: String, bearer: String?, body: String)]>([])
        private let tokens = Mutex(0)
        private let answers: Mutex<[(Int, String)]>

        init(_ answers: [(Int, String)]) { self.answers = Mutex(answers) }

        var accounts: FirebaseAccounts {
            get throws {
                let configuration = try FirebaseConfiguration(serviceAccount: StoreSimulator.googleServiceAccount)
                let client = HTTPClient { [self] request, body in
                    guard request.path != "/token" else {
                        let number = tokens.withLock { count in
                            count += 1
                            return count
                        }
                        let text = #"{"access_token":"t\#(number)","expires_in":3600,"token_type":"Bearer"}"#
                        return HTTPClientResponse(status: 200, body: Array(text.utf8))
                    }
                    let bearer = request.headerFields[.authorization]
                    sent.withLock {
                        $0.append((request.path ?? "", bearer, String(decoding: body ?? [], as: UTF8.self)))
                    }
                    let (status, text) = answers.withLock { $0.count > 1 ? $0.removeFirst() : $0[0] }
                    return HTTPClientResponse(status: status, headers: [.retryAfter: "7"], body: Array(text.utf8))
                }
                return FirebaseAccounts(configuration: configuration, http: client)
            }
        }
    }

    @Test func `An account is asked for by its id, in the project that the key file names`() async throws {
        let google = Google([(200, #"{"users":[{"localId":"ann","customAttributes":"{\"a\":1}","email":"x"}]}"#)])
        guard case .done(let claims) = try await google.accounts.claims(of: "ann") else { throw Unexpected() }
        #expect(claims == #"{"a":1}"#)
        let sent = google.sent.withLock(\.self)
        #expect(sent.map(\.path) == ["/v1/projects/simulated-project/accounts:lookup"])
        #expect(sent.map(\.bearer) == ["Bearer t1"])
        #expect(sent.map(\.body) == [#"{"localId":["ann"]}"#])
    }

    private struct Unexpected: Error {}
    private static var later: ContinuousClock.Instant { .now + .seconds(60) }

    @Test func `A write that comes too late is not sent, and an id that Firebase can't have is not asked for`()
        async throws
    {
        let google = Google([(200, #"{"localId":"ann"}"#)])
        let accounts = try google.accounts
        await #expect(throws: ReadFailure(.overtaken)) {
            _ = try await accounts.setClaims("{}", of: "ann", before: .now)
        }
        for id in ["", String(repeating: "x", count: 129)] {
            guard case .noAccount = try await accounts.claims(of: id) else { throw Unexpected() }
        }
        let sent = google.sent.withLock(\.self)
        #expect(sent.isEmpty)
        let refusing = try Google([(400, #"{"error":{"code":400,"message":"CLAIMS_TOO_LARGE"}}"#)]).accounts
        guard case .tooLong = try await refusing.setClaims("{}", of: "ann", before: Self.later) else {
            throw Unexpected()
        }
    }

    @Test(arguments: [
        #"{"users":[{"localId":"bob"}]}"#, #"{"users":[{}]}"#, #"{"users":[{"localId":"ann"},{"localId":"ann"}]}"#,
        #"{"users":[{"localId":"ann","customAttributes":{"a":1}}]}"#, #"{"users":{}}"#, "[]", "<html>",
    ])
    func `An answer about something else is none`(_ body: String) async throws {
        let accounts = try Google([(200, body)]).accounts
        await #expect(throws: ReadFailure(.malformed)) { _ = try await accounts.claims(of: "ann") }
    }

    @Test func `An account without claims, and none at all`() async throws {
        guard case .done(nil) = try await Google([(200, #"{"users":[{"localId":"ann"}]}"#)]).accounts.claims(of: "ann")
        else { throw Unexpected() }
        guard case .noAccount = try await Google([(200, "{}")]).accounts.claims(of: "ann") else { throw Unexpected() }
    }

    @Test func `A token that is good no more is fetched again, once`() async throws {
        let error = #"{"error":{"code":401,"message":"Request had invalid authentication credentials."}}"#
        let google = Google([(401, error), (200, #"{"localId":"ann"}"#)])
        guard case .done = try await google.accounts.setClaims("{}", of: "ann", before: Self.later) else {
            throw Unexpected()
        }
        let sent = google.sent.withLock(\.self)
        #expect(sent.map(\.bearer) == ["Bearer t1", "Bearer t2"])
        #expect(sent.allSatisfy { $0.body.contains(#""customAttributes":"{}""#) })
        let refusing = try Google([(401, error)]).accounts
        await #expect(throws: ReadFailure(.unauthorized, retryAfter: nil)) {
            _ = try await refusing.setClaims("{}", of: "ann", before: Self.later)
        }
        let throttling = try Google([(429, "")]).accounts
        await #expect(throws: ReadFailure(.throttled, retryAfter: .seconds(7))) {
            _ = try await throttling.setClaims("{}", of: "ann", before: Self.later)
        }
    }

    // MARK: Settings

    @Test func `All that is wrong with the settings is said at once`() {
        let error = #expect(throws: SettingFaults<FirebaseConfiguration.Fault>.self) {
            try FirebaseConfiguration(
                serviceAccount: StoreSimulator.googleServiceAccount,
                projectID: "a/b",
                baseURL: "http://example.com",
                oauthBaseURL: "ftp://example.com"
            )
        }
        #expect(Set(error?.faults ?? []) == [.insecureBaseURL, .oauthBaseURL])
        let second = #expect(throws: SettingFaults<FirebaseConfiguration.Fault>.self) {
            try FirebaseConfiguration(serviceAccount: StoreSimulator.googleServiceAccount, projectID: "a/b")
        }
        #expect(second?.faults == [.projectID])
        let third = #expect(throws: SettingFaults<FirebaseConfiguration.Fault>.self) {
            try FirebaseConfiguration(serviceAccount: "{}", projectID: "p")
        }
        #expect(third?.faults == [.serviceAccount])
    }
}
