import Entitlements
import HTTPTypes
import Logging
import Synchronization
import Testing

@testable import StoreClients

@Suite struct GooglePlayAnswerTests {
    @Test(
        "the table of answers decides by status and reason",
        arguments: [
            (200, nil, .content), (204, nil, .content), (302, nil, .failure(.unavailable)),
            (400, "invalid", .unknown), (400, "required", .unknown),
            (400, "purchaseTokenDoesNotMatchPackageName", .unknown),
            (400, "purchaseTokenDoesNotMatchProductId", .unknown),
            (400, "invalidPurchaseState", .conflict(.rejected)), (400, "", .conflict(.rejected)),
            (400, nil, .failure(.unavailable)),
            (401, "authError", .stale), (401, "UNAUTHENTICATED", .stale), (401, nil, .stale),
            (401, "permissionDenied", .failure(.unauthorized)),
            (401, "developerDoesNotOwnApplication", .failure(.unauthorized)),
            (403, "accessNotConfigured", .failure(.unauthorized)), (403, "SERVICE_DISABLED", .failure(.unauthorized)),
            (403, "projectNotLinked", .failure(.unauthorized)), (403, "permissionDenied", .failure(.unauthorized)),
            (403, "rateLimitExceeded", .failure(.throttled)), (403, "dailyLimitExceeded", .failure(.throttled)),
            (403, "quotaExceeded", .failure(.throttled)), (403, nil, .failure(.unavailable)),
            (404, "purchaseTokenNotFound", .unknown), (404, "notFound", .unknown),
            (404, "applicationNotFound", .failure(.unauthorized)), (404, nil, .failure(.unavailable)),
            (408, nil, .failure(.timeout)),
            (409, "concurrentUpdate", .conflict(.unavailable)), (409, nil, .failure(.unavailable)),
            (410, "subscriptionPurchaseNoLongerAvailable", .gone), (410, "subscriptionNoLongerAvailable", .gone),
            (410, "purchaseTokenNoLongerValid", .gone), (410, nil, .failure(.unavailable)),
            (412, "conditionNotMet", .conflict(.rejected)), (418, "teapot", .failure(.rejected)),
            (429, "RESOURCE_EXHAUSTED", .failure(.throttled)), (429, "rateLimitExceeded", .failure(.throttled)),
            (429, nil, .failure(.throttled)), (451, nil, .failure(.unavailable)),
            (500, "internalError", .failure(.unavailable)), (502, nil, .failure(.unavailable)),
            (503, "backendError", .failure(.unavailable)), (504, nil, .failure(.unavailable)),
            (600, nil, .failure(.unavailable)), (100, nil, .failure(.unavailable)),
        ] as [(Int, String?, GooglePlayAnswerClass)]
    )
    func table(_ status: Int, _ word: String?, _ outcome: GooglePlayAnswerClass) {
        #expect(classify(status: status, error: word.map(GooglePlayError.init(word:))) == outcome)
    }

    @Test("every status from 200 has a row, with Google's word and without, and only what Google says is an absence")
    func completeness() {
        for status in 200...599 {
            for error in [nil, GooglePlayError(word: ""), GooglePlayError(word: "neverHeardOf")] {
                #expect(
                    googlePlayAnswerRules.contains { $0.statuses.contains(status) && $0.word.holds(for: error) },
                    "\(status)"
                )
                let outcome = classify(status: status, error: error)
                if outcome == .unknown || outcome == .gone { #expect(error != nil && [404, 410].contains(status)) }
                #expect((outcome == .content) == (200...299).contains(status))
            }
        }
        // No row is there in vain.
        for (index, rule) in googlePlayAnswerRules.enumerated() {
            let words: [GooglePlayError?] =
                switch rule.word {
                case .any: [nil]
                case .some: [GooglePlayError(word: "neverHeardOf")]
                case .oneOf(let words): words.map(GooglePlayError.init(word:))
                }
            let isReached = rule.statuses.contains { status in
                words.contains { error in
                    googlePlayAnswerRules.firstIndex { $0.statuses.contains(status) && $0.word.holds(for: error) }
                        == index
                }
            }
            #expect(isReached, "row \(index)")
        }
    }

    @Test(
        "the word of an error is its reason, else that of its details, else its status",
        arguments: [
            (PlayFixture.error(410, "gone"), "gone"),
            (#"{"error":{"status":"NOT_FOUND","errors":[{"reason":"r"},{"reason":"s"}]}}"#, "r"),
            (#"{"error":{"status":"S","details":[{"@type":"t"},{"reason":"R"}]}}"#, "R"),
            (#"{"error":{"status":"UNAUTHENTICATED","errors":[]}}"#, "UNAUTHENTICATED"),
            (#"{"error":{"code":404}}"#, ""), (#"{"error":"invalid_grant"}"#, nil), (#"{"fault":{}}"#, nil),
            ("<html></html>", nil), ("", nil), ("[]", nil), (#"{"error":{"errors":{}}}"#, nil),
        ] as [(String, String?)]
    )
    func words(_ body: String, _ word: String?) {
        #expect(GooglePlayError(body: Array(body.utf8))?.word == word)
    }

    // MARK: Through the client

    let play = FakePlay()

    @Test(
        "a bad answer is a failure with its code, and never an absence",
        arguments: [
            (200, "<html>login</html>", .malformed), (200, "", .malformed), (204, "", .malformed),
            (200, #"{"subscriptionState":"SUBSCRIPTION_STATE_ACT"#, .malformed), (200, "{}", .malformed),
            (403, PlayFixture.error(403, "quotaExceeded"), .throttled),
            (409, PlayFixture.error(409, "concurrentUpdate"), .unavailable),
            (404, "<html>not here</html>", .unavailable), (410, "", .unavailable), (502, "<html>", .unavailable),
            (400, PlayFixture.error(400, "neverHeardOf"), .rejected),
            (401, PlayFixture.error(401, "permissionDenied"), .unauthorized),
        ] as [(Int, String, ReadFailure.Code)]
    )
    func failures(_ status: Int, _ body: String, _ code: ReadFailure.Code) async throws {
        play.on(FakePlay.subscription("tok"), status, body)
        let reading = try await play.read("tok")
        #expect(reading.coverage == .none)
        #expect(reading.failure == ReadFailure(code, store: .googlePlay))
        #expect(reading.observations.isEmpty)
        #expect(play.reads.count == 1)
        #expect(play.reports.last?.failure == code)
    }

    @Test("a quota tells how long to wait")
    func retryAfter() async throws {
        play.on(
            FakePlay.subscription("tok"),
            429,
            PlayFixture.error(429, "rateLimitExceeded"),
            headers: [.retryAfter: "7"]
        )
        #expect(try await play.read("tok").failure?.retryAfter == .seconds(7))
        #expect(play.reports.last?.retryAfter == .seconds(7))
    }

    @Test("what a client's token brings about alarms nobody, save for our key and our speed")
    func clientTokens() async throws {
        play.on(FakePlay.subscription("a"), 200, "<html>")
        _ = try await play.read("a", isFromClient: true)
        #expect(play.reports.last?.failure == nil)
        #expect(play.reports.last?.countsForBreaker == false)
        _ = try await play.read("a")
        #expect(play.reports.last?.failure == .malformed)
        #expect(play.reports.last?.countsForBreaker == true)
        play.on(FakePlay.subscription("b"), 401, PlayFixture.error(401, "permissionDenied"))
        _ = try await play.read("b", isFromClient: true)
        #expect(play.reports.last?.failure == .unauthorized)
    }

    @Test("neither tokens nor products, nor what is secret, reach the log")
    func canary() async throws {
        let log = LogCanary()
        let body = PlayFixture.subscription("ACTIVE", items: [PlayFixture.item(["productId": #""canaryProduct""#])])
        play.on(FakePlay.subscription("canaryToken"), 503, body)
        play.on(FakePlay.subscription("canaryToken2"), 200, body + "x")
        play.on(FakePlay.subscription("canaryToken3"), 401, PlayFixture.error(401, "permissionDenied"))
        play.on("/purchases/subscriptions/canaryProduct/tokens/canaryToken:acknowledge", 500, body)
        play.on("/orders/canaryOrder", 500, body)
        let client = try play.client(logger: log.logger)
        let tokens = ["canaryToken", "canaryToken2", "canaryToken3"]
        let reading = await client.read(GooglePlayQuery(tokens: tokens, askedAt: PlayFixture.now))
        let work = Acknowledgement(
            productID: "canaryProduct",
            token: "canaryToken",
            kind: .subscription,
            deadline: PlayFixture.now
        )
        await #expect(throws: ReadFailure.self) { try await client.acknowledge(work, lane: .sweep) }
        await #expect(throws: ReadFailure.self) { try await client.order("canaryOrder", lane: .support) }
        let text = log.text + "\(reading.failure as Any)"
        #expect(text.contains("store gave no usable answer"))
        for secret in ["canary", "ya29", "assertion", "PRIVATE KEY"] { #expect(!text.contains(secret), "\(secret)") }
    }
}

/// Keeps everything that is logged, at every level.
final class LogCanary: Sendable {
    private let lines = Mutex<[String]>([])

    var text: String { lines.withLock { $0.joined(separator: "\n") } }

    var logger: Logger {
        var logger = Logger(label: "canary") { _ in Handler(owner: self) }
        logger.logLevel = .trace
        return logger
    }

    private struct Handler: LogHandler {
        let owner: LogCanary
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            owner.lines.withLock { $0.append("\(event.message) \(event.metadata ?? [:]) \(metadata)") }
        }
    }
}
