import Entitlements
import HTTPTypes
@testable import StoreClients
import StoreSimulator
import Synchronization
import Testing
@testable import TextFormats
import Transport

@Suite struct GooglePlayAccessTests {
    let play = FakePlay()

    private static func error(_ word: String, _ description: String = "d") -> String {
        #"{"error":"\#(word)","error_description":"\#(description)"}"#
    }

    @Test(
        "the table of the token endpoint decides by status and error",
        arguments: [
            (200, nil, nil), (204, nil, nil), (302, nil, .unavailable),
            (400, "invalid_grant", .unauthorized), (400, "invalid_scope", .unauthorized),
            (400, "new_word", .unauthorized),
            (400, nil, .unavailable), (401, "invalid_client", .unauthorized), (401, "disabled_client", .unauthorized),
            (401, "deleted_client", .unauthorized), (401, nil, .unavailable), (403, "access_denied", .unauthorized),
            (400, "internal_failure", .unavailable), (500, "internal_failure", .unavailable),
            (403, "server_error", .unavailable), (400, "temporarily_unavailable", .unavailable),
            (408, "invalid_grant", .timeout), (408, nil, .timeout), (429, "any", .throttled), (429, nil, .throttled),
            (500, nil, .unavailable), (503, "any", .unavailable), (504, nil, .unavailable), (700, nil, .unavailable),
        ] as [(Int, String?, ReadFailure.Code?)]
    )
    func table(_ status: Int, _ word: String?, _ code: ReadFailure.Code?) {
        #expect(tokenFailure(status: status, word: word) == code)
    }

    @Test("every status from 200 has a row")
    func completeness() {
        for status in 200...599 {
            #expect(tokenAnswerRules.contains { $0.statuses.contains(status) && $0.words == nil && !$0.needsWord })
            #expect((tokenFailure(status: status, word: nil) == nil) == (status < 300))
        }
    }

    @Test(
        "a failure to get a token is one of the reading, and says nothing about a purchase",
        arguments: [
            (400, error("invalid_grant", "Invalid JWT Signature."), .unauthorized), (503, "", .unavailable),
            (400, error("temporarily_unavailable"), .unavailable), (429, error("rate"), .throttled),
            (200, "<html>", .malformed), (200, "", .malformed), (200, #"{"expires_in":3599}"#, .malformed),
            (200, #"{"access_token":"","expires_in":3599}"#, .malformed),
            (200, #"{"access_token":"a b","expires_in":1}"#, .malformed),
            (200, #"{"access_token":"a"}"#, .malformed), (200, #"{"access_token":"a","expires_in":-1}"#, .malformed),
            (200, #"{"access_token":"a","expires_in":"soon"}"#, .malformed),
            (200, #"{"access_token":"a","expires_in":1,"token_type":"mac"}"#, .malformed),
        ] as [(Int, String, ReadFailure.Code)]
    )
    func failures(_ status: Int, _ body: String, _ code: ReadFailure.Code) async throws {
        play.on(FakePlay.token, status, body)
        let reading = try await play.read("a", "b")
        #expect(reading.coverage == .none)
        #expect(reading.failure == ReadFailure(code, store: .googlePlay))
        #expect(reading.observations.isEmpty)
        #expect(play.reads.isEmpty)
    }

    @Test("the life of a token is a number or a text", arguments: ["3599", #""3599""#])
    func expiresIn(_ text: String) throws {
        let body = #"{"access_token":"a","expires_in":\#(text),"token_type":"Bearer","scope":"x"}"#
        #expect(try GrantedToken(Array(body.utf8)).expiresIn == 3_599)
    }

    @Test("a token is used until five minutes before its end, counted from when it was asked for")
    func margin() throws {
        let granted = try GrantedToken(Array(#"{"access_token":"a","expires_in":3599}"#.utf8))
        let sentAt = ContinuousClock.now
        #expect(AccessToken(granted, sentAt: sentAt).goodUntil == sentAt + .seconds(3_299))
        let short = try GrantedToken(Array(#"{"access_token":"a","expires_in":60}"#.utf8))
        #expect(AccessToken(short, sentAt: sentAt).goodUntil == sentAt + .seconds(30))
    }

    @Test("a token serves until its time, and then another one is fetched")
    func caching() async throws {
        let time = Mutex(ContinuousClock.now)
        let start = time.withLock { $0 }
        let tokens = AccessTokens { time.withLock { $0 } }
        var fetched = 0
        func token() async throws(ReadFailure) -> AccessToken {
            try await tokens.token { () async throws(ReadFailure) -> AccessToken in
                fetched += 1
                return AccessToken(text: "t\(fetched)", goodUntil: time.withLock { $0 } + .seconds(100))
            }
        }
        #expect(try await token().text == "t1")
        time.withLock { $0 = start + .seconds(99) }
        #expect(try await token().text == "t1")
        time.withLock { $0 = start + .seconds(100) }
        let second = try await token()
        #expect(second.text == "t2")
        tokens.drop(AccessToken(text: "t1", goodUntil: start + .seconds(100)))
        #expect(try await token().text == "t2")
        tokens.drop(second)
        #expect(try await token().text == "t3")
    }

    @Test("fifty readings at once fetch one token")
    func oneFetch() async throws {
        for index in 0..<50 { play.on(FakePlay.subscription("t\(index)"), 200, PlayFixture.subscription("ACTIVE")) }
        let client = try play.client()
        let readings = await withTaskGroup(of: GooglePlayReading.self) { group in
            for index in 0..<50 {
                group.addTask { await client.read(GooglePlayQuery(tokens: ["t\(index)"], askedAt: PlayFixture.now)) }
            }
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(readings.allSatisfy { $0.coverage == .full && $0.observations.count == 1 })
        #expect(play.targets.filter { $0 == FakePlay.token }.count == 1)
        #expect(readings.reduce(0) { $0 + $1.requests } == 51)
    }

    @Test("those who wait for a token share its failure, and wait for no other")
    func sharedFailure() async {
        let tokens = AccessTokens()
        let hold = Hold()
        let fetches = Tally()
        let failures = await withTaskGroup(of: ReadFailure?.self) { group in
            for _ in 0..<10 {
                group.addTask {
                    do throws(ReadFailure) {
                        _ = try await tokens.token { () async throws(ReadFailure) -> AccessToken in
                            _ = fetches.next()
                            await hold.wait()
                            throw ReadFailure(.unauthorized, store: .googlePlay)
                        }
                        return nil
                    } catch { return error }
                }
            }
            while fetches.count == 0 || tokens.waitingCount < 9 { await Task.yield() }
            hold.release()
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(failures == Array(repeating: ReadFailure(.unauthorized, store: .googlePlay), count: 10))
        #expect(fetches.count == 1)
    }

    @Test(
        "where the one who fetches is called off or not let through, another one fetches",
        arguments: [ReadFailure.Code.interrupted, .budgetExhausted, .breakerOpen]
    )
    func takesOver(_ code: ReadFailure.Code) async {
        let tokens = AccessTokens()
        let hold = Hold()
        let fetches = Tally()
        let results = await withTaskGroup(of: String.self) { group in
            for _ in 0..<5 {
                group.addTask {
                    do throws(ReadFailure) {
                        return try await tokens.token { () async throws(ReadFailure) -> AccessToken in
                            let number = fetches.next()
                            guard number == 1 else { return AccessToken(text: "t", goodUntil: .now + .seconds(3_600)) }
                            await hold.wait()
                            throw ReadFailure(code)
                        }.text
                    } catch { return error.code.rawValue }
                }
            }
            while tokens.waitingCount < 4 { await Task.yield() }
            hold.release()
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(results.sorted() == ([code.rawValue] + Array(repeating: "t", count: 4)).sorted())
        #expect(fetches.count == 2)
    }

    @Test("one who waits and is cancelled stops waiting, and the others go on")
    func cancelledWaiter() async {
        let tokens = AccessTokens()
        let hold = Hold()
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                let token = try? await tokens.token { () async throws(ReadFailure) -> AccessToken in
                    await hold.wait()
                    return AccessToken(text: "t", goodUntil: .now + .seconds(3_600))
                }
                #expect(token?.text == "t")
            }
            while !hold.isAwaited { await Task.yield() }
            let waiter = Task { () -> ReadFailure? in
                do throws(ReadFailure) {
                    _ = try await tokens.token { () async throws(ReadFailure) -> AccessToken in
                        throw ReadFailure(.malformed)
                    }
                    return nil
                } catch { return error }
            }
            while tokens.waitingCount < 1 { await Task.yield() }
            waiter.cancel()
            #expect(await waiter.value == ReadFailure(.interrupted))
            #expect(tokens.waitingCount == 0)
            hold.release()
            await group.waitForAll()
        }
    }

    // MARK: 401

    @Test(
        "a token that is refused is dropped once, and the request repeated once",
        arguments: ["authError", "UNAUTHENTICATED", ""]
    )
    func staleToken(_ word: String) async throws {
        let target = FakePlay.subscription("tok")
        play.on(target, 401, word.isEmpty ? "" : PlayFixture.error(401, word))
        play.on(target, 200, PlayFixture.subscription("ACTIVE"))
        let reading = try await play.read("tok")
        #expect(reading.coverage == .full)
        #expect(play.targets == [FakePlay.token, target, FakePlay.token, target])
        #expect(play.requests.last?.headerFields[.authorization] == "Bearer ya29.2")
        // A token that ran out is nobody's fault.
        #expect(play.reports.allSatisfy { $0.failure == nil })
    }

    @Test("a second refusal is no question of the token any more")
    func refusedTwice() async throws {
        let target = FakePlay.subscription("tok")
        play.on(target, 401, PlayFixture.error(401, "authError"))
        let reading = try await play.read("tok")
        #expect(reading.failure == ReadFailure(.unauthorized, store: .googlePlay))
        #expect(play.targets == [FakePlay.token, target, FakePlay.token, target])
        #expect(play.reports.last?.failure == .unauthorized)
    }

    @Test("missing rights are told as 401, and no new token is fetched for them")
    func missingRights() async throws {
        play.on(FakePlay.subscription("tok"), 401, PlayFixture.error(401, "permissionDenied"))
        let reading = try await play.read("tok")
        #expect(reading.failure == ReadFailure(.unauthorized, store: .googlePlay))
        #expect(play.targets == [FakePlay.token, FakePlay.subscription("tok")])
    }

    // MARK: Configuration

    private static let changes: [(String, String, GooglePlayConfiguration.Fault)] = [
        ("\"service_account\"", "\"authorized_user\"", .serviceAccount),
        ("\"client_email\"", "\"client_mail\"", .serviceAccount),
        ("\"private_key_id\"", "\"key_id\"", .serviceAccount),
        ("BEGIN PRIVATE KEY", "BEGIN PUBLIC KEY", .privateKey),
        ("https://oauth2.googleapis.com/token", "https://oauth2.example.com/token", .tokenURI),
        ("https://oauth2.googleapis.com/token", "http://127.0.0.1/token", .tokenURI),
        ("https://oauth2.googleapis.com/token", "https://oauth2.googleapis.com.evil.example/token", .tokenURI),
    ]

    @Test("a key file that is none is refused", arguments: changes)
    func keyFile(_ old: String, _ new: String, _ fault: GooglePlayConfiguration.Fault) throws {
        let file = StoreSimulator.googleServiceAccount.replacing(old, with: new)
        #expect(file != StoreSimulator.googleServiceAccount)
        #expect(throws: SettingFaults<GooglePlayConfiguration.Fault>(faults: [fault])) {
            try GooglePlayConfiguration(serviceAccount: file, packageName: "com.example.app")
        }
    }

    @Test("all faults are told at once")
    func faults() {
        #expect(
            throws: SettingFaults<GooglePlayConfiguration.Fault>(
                faults: [.serviceAccount, .packageName, .insecureBaseURL, .oauthBaseURL]
            )
        ) {
            try GooglePlayConfiguration(
                serviceAccount: "x",
                packageName: "com/example",
                baseURL: "http://example.com",
                oauthBaseURL: "oauth"
            )
        }
        #expect(throws: SettingFaults<GooglePlayConfiguration.Fault>(faults: [.baseURL, .insecureOAuthBaseURL])) {
            try GooglePlayConfiguration(
                serviceAccount: StoreSimulator.googleServiceAccount,
                packageName: "com.example.app",
                baseURL: "",
                oauthBaseURL: "http://example.com"
            )
        }
        #expect(
            SettingFaults<GooglePlayConfiguration.Fault>(faults: [.packageName, .tokenURI]).description
                == "the package name is not of the form com.example.app; "
                + "the service account's token_uri is not https://oauth2.googleapis.com/token"
        )
    }

    @Test("the settings never show the account")
    func redaction() throws {
        let configuration = try GooglePlayConfiguration(
            serviceAccount: StoreSimulator.googleServiceAccount,
            packageName: "com.example.app",
            baseURL: "http://127.0.0.1:1/google-play/",
            oauthBaseURL: "http://127.0.0.1:1/google-oauth"
        )
        #expect(configuration.access.tokenEndpoint.path == "/google-oauth/token")
        var dumped = ""
        dump(configuration, to: &dumped)
        for text in ["\(configuration)", String(reflecting: configuration), "\([configuration])", dumped] {
            #expect(text.contains("account redacted"))
            #expect(!text.contains("gserviceaccount"))
            #expect(!text.contains("PRIVATE"))
        }
    }

    @Test("an assertion has the header and the claims that Google wants")
    func assertion() throws {
        let account = try ServiceAccount(StoreSimulator.googleServiceAccount)
        let parts = try account.assertion(for: "https://www.googleapis.com/auth/androidpublisher", at: 1_773_532_800)
            .split(separator: ".")
        #expect(parts.count == 3)
        let header = try #require(Base64.decode(parts[0].utf8, .url))
        #expect(
            String(decoding: header, as: UTF8.self)
                == #"{"alg":"RS256","kid":"0123456789abcdef0123456789abcdef01234567","typ":"JWT"}"#
        )
        let claims = try #require(Base64.decode(parts[1].utf8, .url))
        #expect(
            String(decoding: claims, as: UTF8.self)
                == #"{"aud":"https://oauth2.googleapis.com/token","exp":1773536400,"iat":1773532800,"#
                + #""iss":"simulator@simulated-project.iam.gserviceaccount.com","#
                + #""scope":"https://www.googleapis.com/auth/androidpublisher"}"#
        )
    }

    @Test("the limits stay well below Google's")
    func budgets() {
        #expect(GooglePlayBudget.allCases.map(\.perMinute) == [2_400, 2_400, 2_400, 50, 0])
    }
}

/// Counts.
private final class Tally: Sendable {
    private let state = Mutex(0)

    var count: Int { state.withLock { $0 } }

    func next() -> Int {
        state.withLock { count in
            count += 1
            return count
        }
    }
}

/// Holds one task until it is let go.
private final class Hold: Sendable {
    private enum State {
        case open
        case waiting(CheckedContinuation<Void, Never>)
        case released
    }

    private let state = Mutex(State.open)

    var isAwaited: Bool { state.withLock { if case .waiting = $0 { true } else { false } } }

    func wait() async {
        await withCheckedContinuation { continuation in
            let isReleased = state.withLock { state in
                if case .released = state { return true }
                state = .waiting(continuation)
                return false
            }
            if isReleased { continuation.resume() }
        }
    }

    func release() {
        let waiting = state.withLock { state -> CheckedContinuation<Void, Never>? in
            defer { state = .released }
            return if case .waiting(let continuation) = state { continuation } else { nil }
        }
        waiting?.resume()
    }
}
