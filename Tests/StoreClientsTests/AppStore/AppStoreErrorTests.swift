import Entitlements
import HTTPTypes
@testable import StoreClients
import Testing
@testable import Transport

/// What each refusal of the App Store comes to.
struct AppStoreErrorTests {
    /// The codes that the App Store documents for what we could ask.
    private static let documented: [Int64] =
        [4_000_000, 4_000_002, 4_000_005, 4_000_006] + Array(4_000_008...4_000_028) + Array(4_000_030...4_000_043)
        + [4_000_047, 4_000_048, 4_000_183, 4_000_185, 4_000_187, 4_030_004, 4_030_005, 4_030_007]
        + Array(4_040_001...4_040_010) + [4_040_019, 4_290_000, 5_000_000, 5_000_001]

    private static let transactions = [#"original: "2000000100000001", product: monthly"#]

    @Test func `every documented code has exactly one row`() {
        #expect(appStoreErrors.map(\.code).sorted() == Self.documented.sorted())
    }

    @Test func `the classes that are no plain rejection are those that the documentation names`() {
        func codes(_ kind: AppStoreErrorClass) -> Set<Int64> {
            Set(appStoreErrors.filter { $0.class == kind }.map(\.code))
        }
        #expect(codes(.passing) == [4_040_002, 4_040_004, 4_040_006, 5_000_000, 5_000_001])
        #expect(codes(.unknownHere) == [4_040_005, 4_040_010])
        #expect(codes(.unknown) == [4_040_001])
        #expect(codes(.misconfigured) == [4_000_002, 4_040_003])
        #expect(codes(.throttled) == [4_290_000])
    }

    private enum Outcome: Equatable {
        case content
        case refused(AppStoreErrorClass)
        case failure(ReadFailure.Code)
    }

    private func outcome(_ status: Int, _ body: String) -> Outcome {
        do throws(ReadFailure) {
            switch try AppStoreAnswer(HTTPClientResponse(status: status, body: Array(body.utf8))) {
            case .content: return .content
            case .refused(let kind, _): return .refused(kind)
            }
        } catch {
            return .failure(error.code)
        }
    }

    @Test func `each code is understood in an answer`() {
        for row in appStoreErrors {
            let expected: Outcome =
                switch row.class {
                case .passing: .failure(.unavailable)
                case .throttled: .failure(.throttled)
                case .misconfigured: .failure(.unauthorized)
                case let kind: .refused(kind)
                }
            let body = #"{"errorCode":\#(row.code),"errorMessage":"whatever"}"#
            #expect(outcome(Int(row.code / 10_000), body) == expected, "\(row.code)")
        }
    }

    @Test(arguments: [
        (400, #"{"errorCode":4009999,"errorMessage":"new"}"#, Outcome.refused(.rejected)),
        (400, "", .refused(.rejected)),
        (404, #"{"errorCode":4049999}"#, .refused(.rejected)), (403, #"{"errorCode":4039999}"#, .refused(.rejected)),
        (500, #"{"errorCode":5009999}"#, .failure(.unavailable)), (503, "<html>", .failure(.unavailable)),
        (404, "<html>not found</html>", .failure(.unavailable)), (404, "", .failure(.unavailable)),
        (404, #"{"message":"no route"}"#, .failure(.unavailable)), (403, "", .failure(.unavailable)),
        (408, "", .failure(.timeout)), (407, "", .failure(.unavailable)), (413, "<html>", .failure(.unavailable)),
        (401, "Unauthenticated", .failure(.unauthorized)), (429, "", .failure(.throttled)),
        (302, "", .failure(.unavailable)), (200, "<html>", .content), (101, "", .failure(.malformed)),
        // The status counts where the code's own digits do not fit it.
        (400, #"{"errorCode":4040010}"#, .refused(.rejected)), (500, #"{"errorCode":4040010}"#, .failure(.unavailable)),
    ])
    private func `what has no known code is told by its status`(status: Int, body: String, expected: Outcome) {
        #expect(outcome(status, body) == expected)
    }

    @Test(arguments: ["4040002", "4040004", "4040006"])
    func `96: an absence that the store calls passing is a failure, in production as for unknown environments`(
        code: String
    ) async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        try store.control("POST", "/faults", #"{"endpoint":"app_store.statuses","status":404,"error_type":"\#(code)"}"#)
        for environment in [AppStoreEnvironment.production, nil] {
            let reading = try await store.read("2000000100000001", environment: environment, isFromClient: true)
            #expect(reading.coverage == .none && reading.observations.isEmpty)
            #expect(reading.failure == ReadFailure(.unavailable, store: .appStore))
            #expect(reading.failure?.treatment == .retry)
            #expect(reading.requests == 1, "the sandbox is not asked for what production may yet find")
        }
    }

    @Test(arguments: [(404, "4040003"), (400, "4000002")])
    func `an app that is not ours says nothing about anybody's purchases`(status: Int, code: String) async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        try store.control(
            "POST",
            "/faults",
            #"{"endpoint":"app_store.statuses","status":\#(status),"error_type":"\#(code)"}"#
        )
        for isFromClient in [true, false] {
            let reading = try await store.read("2000000100000001", isFromClient: isFromClient)
            #expect(reading.coverage == .none && reading.failure == ReadFailure(.unauthorized, store: .appStore))
        }
    }

    @Test(arguments: ["4040001", "4040005", "4040010"])
    func `an absence is full and empty`(code: String) async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        try store.control("POST", "/faults", #"{"endpoint":"app_store.statuses","status":404,"error_type":"\#(code)"}"#)
        let reading = try await store.read("2000000100000001")
        #expect(reading.coverage == .full && reading.observations.isEmpty && reading.failure == nil)
    }

    @Test func `a rejected request is parked for our own ids, and nothing for a client's`() async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        try store.control("POST", "/faults", #"{"endpoint":"app_store.statuses","status":400,"error_type":"4000006"}"#)
        let own = try await store.read("2000000100000001")
        #expect(own.coverage == .none && own.failure == ReadFailure(.rejected, store: .appStore))
        let theirs = try await store.read("2000000100000001", isFromClient: true)
        #expect(theirs.coverage == .full && theirs.failure == nil)
        #expect(store.reports.last?.countsForBreaker == false)
    }

    @Test func `93: the moment of a throttled answer, in milliseconds since 1970, becomes a wait`() async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        try store.control("POST", "/clock", #"{"frozen":true}"#)
        try store.control("POST", "/faults", #"{"endpoint":"app_store.statuses","status":429,"backoff":"90s"}"#)
        let reading = try await store.read("2000000100000001", isFromClient: true)
        #expect(reading.failure?.code == .throttled && reading.coverage == .none)
        let wait = try #require(reading.failure?.retryAfter)
        // The server's clock, by which the wait is counted, tells whole seconds.
        #expect(wait >= .seconds(90) && wait < .seconds(91))
        #expect(store.reports.map(\.failure) == [.throttled] && store.reports.first?.retryAfter == wait)
    }

    @Test(arguments: ["html", "empty", "truncated", "deep"])
    func `a body that is none is never an absence`(body: String) async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        try store.control("POST", "/faults", #"{"endpoint":"app_store.statuses","body":"\#(body)"}"#)
        let reading = try await store.read("2000000100000001")
        #expect(reading.coverage == .none && reading.failure == ReadFailure(.malformed, store: .appStore))
        #expect(store.reports.map(\.countsForBreaker) == [true])
    }

    @Test(arguments: [#"{}"#, #"{"data":[]}"#, #"{"environment":"Production","bundleId":"com.example.app"}"#, "[]"])
    func `an answer that lacks what every answer has is no absence`(body: String) async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        store.alter { _, response in response.body = Array(body.utf8) }
        let reading = try await store.read("2000000100000001")
        #expect(reading.coverage == .none && reading.failure?.code == .malformed)
    }
}
