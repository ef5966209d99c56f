import Entitlements
import HTTPTypes
import Testing

@testable import StoreClients

@Suite struct RevenueCatAnswerTests {
    static let types: [String?] = [
        nil, "parameter_error", "resource_already_exists", "resource_missing", "idempotency_error", "rate_limit_error",
        "authentication_error", "authorization_error", "store_error", "server_error", "resource_locked_error",
        "unprocessable_entity_error", "invalid_request", "brand_new_error",
    ]

    /// The reference's table again, written as prose would have it.
    private func expected(_ status: Int, _ type: String?, _ retryable: Bool?) -> AnswerClass {
        switch status {
        case 200: .content
        case 201..<300: .failure(.malformed)
        case 401, 403:
            .failure(type == "authentication_error" || type == "authorization_error" ? .unauthorized : .unavailable)
        case 404: type == "resource_missing" ? .missing : .failure(.unavailable)
        case 407: .failure(.unavailable)
        case 408: .failure(.timeout)
        case 423: .failure(.locked)
        case 429: .failure(.throttled)
        case 422 where type == "store_error" && retryable != false: .failure(.unavailable)
        case 400..<500: .failure(retryable == true ? .unavailable : .rejected)
        default: .failure(.unavailable)
        }
    }

    @Test("every status, type and retryable flag has one meaning", arguments: types, [nil, true, false] as [Bool?])
    func walksTable(_ type: String?, _ retryable: Bool?) {
        for status in -1...700 {
            let error = type.map { RevenueCatError(type: $0, retryable: retryable) }
            let flag = type == nil ? nil : retryable
            #expect(classify(status: status, error: error) == expected(status, type, flag), "\(status)")
        }
    }

    @Test(
        "an error of no known type is read by its status",
        arguments: [(400, .rejected), (409, .rejected), (500, .unavailable)] as [(Int, ReadFailure.Code)]
    )
    func readsUnknownTypes(_ status: Int, _ code: ReadFailure.Code) {
        #expect(classify(status: status, error: RevenueCatError(type: "new")) == .failure(code))
    }

    @Test("no row of the table is out of reach")
    func reachesEveryRow() {
        for (index, rule) in answerRules.enumerated() {
            let reached = rule.statuses.contains { status in
                (Self.types + [nil]).contains { type in
                    [nil, true, false].contains { (retryable: Bool?) in
                        let error = type.map { RevenueCatError(type: $0, retryable: retryable) }
                        return answerRules.firstIndex { holds($0, status: status, error: error) } == index
                    }
                }
            }
            #expect(reached, "row \(index)")
        }
    }

    @Test(
        "98: a refused key is told from a proxy's refusal",
        arguments: [
            (401, Fixture.error("authentication_error"), .unauthorized),
            (403, Fixture.error("authorization_error"), .unauthorized),
            (403, "<html>Forbidden</html>", .unavailable), (401, "", .unavailable),
            (403, Fixture.error("rate_limit_error"), .unavailable),
        ] as [(Int, String, ReadFailure.Code)]
    )
    func classifiesCredentials(_ status: Int, _ body: String, _ code: ReadFailure.Code) async throws {
        let store = FakeStore()
        store.on(FakeStore.subscriptions, status, body)
        let reading = try await store.read(lane: .sweep)
        #expect(reading.coverage == .none)
        #expect(reading.failure?.code == code)
        #expect(store.reports.first?.failure == code)
        #expect(store.reports.first?.countsForBreaker == true)
    }

    @Test(
        "93, 94: the store's own wish to wait is taken from the body, else from the header",
        arguments: [
            (429, "2000", "7", .throttled, .milliseconds(2_000)), (429, "null", "7", .throttled, .seconds(7)),
            (423, "250", nil, .locked, .milliseconds(250)), (429, "-5", "7", .throttled, .seconds(7)),
            (503, "null", "Sun, 06 Nov 1994 08:50:07 GMT", .unavailable, .seconds(30)),
            (503, "null", "Sun, 06 Nov 1994 08:00:00 GMT", .unavailable, .zero), (429, "null", "soon", .throttled, nil),
            (429, "null", "-1", .throttled, nil), (429, "null", "99999999999999999999", .throttled, nil),
            (429, "null", nil, .throttled, nil),
        ] as [(Int, String, String?, ReadFailure.Code, Duration?)]
    )
    func readsWait(_ status: Int, _ backoff: String, _ header: String?, _ code: ReadFailure.Code, _ wait: Duration?)
        async throws
    {
        let store = FakeStore()
        var headers: HTTPFields = [.date: "Sun, 06 Nov 1994 08:49:37 GMT"]
        headers[.retryAfter] = header
        let body = Fixture.error("x", retryable: "true", backoff: backoff)
        store.on(FakeStore.subscriptions, status, body, headers: headers)
        let reading = try await store.read()
        #expect(reading.failure == ReadFailure(code, retryAfter: wait))
        #expect(store.reports.first?.retryAfter == wait)
    }

    @Test("the gate hears the limits and the clock of every answer")
    func reportsHeaders() async throws {
        let store = FakeStore()
        let limit = try #require(HTTPField.Name("RevenueCat-Rate-Limit-Current-Limit"))
        let usage = try #require(HTTPField.Name("revenuecat-rate-limit-current-usage"))
        store.on(
            FakeStore.subscriptions,
            200,
            Fixture.page([Fixture.subscription()]),
            headers: [limit: "480", usage: "17", .date: "Sun, 06 Nov 1994 08:50:22 GMT"]
        )
        _ = try await store.read()
        #expect(store.reports == [StoreAnswer(status: 200, limit: 480, usage: 17, dateSkewSeconds: 45)])
    }

    @Test("limits that are no numbers are no limits", arguments: ["", "many", "-1", "9999999999", "4.8"])
    func ignoresOddLimits(_ value: String) async throws {
        let store = FakeStore()
        let limit = try #require(HTTPField.Name("RevenueCat-Rate-Limit-Current-Limit"))
        store.on(FakeStore.subscriptions, 200, Fixture.page([Fixture.subscription()]), headers: [limit: value])
        _ = try await store.read()
        #expect(store.reports == [StoreAnswer(status: 200)])
    }
}
