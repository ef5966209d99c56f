import HTTPTypes
import Hummingbird
import Logging
import Synchronization
import Testing
@testable import UserRequests
@testable import WebAPI

/// The count that all processes share, as the database keeps it, by a clock that stands still.
private final class SharedCount: Sendable {
    private struct Minute {
        var began: Duration
        var taken = 0
    }

    private struct State {
        var now = Duration.zero
        var minutes: [[UInt8]: Minute] = [:]
        var asked: [Int] = []
    }

    private let allowed: Int
    private let state = Mutex(State())

    init(allowed: Int) { self.allowed = allowed }

    /// How many were asked for, call by call.
    var asked: [Int] { state.withLock { $0.asked } }
    /// Whom they were counted for.
    var keys: [[UInt8]] { state.withLock { Array($0.minutes.keys) } }

    /// How much time has passed.
    var elapsed: Duration { state.withLock { $0.now } }

    /// Lets time pass.
    func pass(_ time: Duration) { state.withLock { $0.now += time } }

    func take(_ wanted: Int, _ key: [UInt8]) -> RequestCounts.Given {
        state.withLock { state in
            state.asked.append(wanted)
            var minute = state.minutes[key] ?? Minute(began: state.now)
            if state.now - minute.began >= .seconds(60) { minute = Minute(began: state.now) }
            let before = min(minute.taken, allowed)
            minute.taken = before + wanted
            state.minutes[key] = minute
            return RequestCounts.Given(
                requests: max(0, min(wanted, allowed - before)),
                wait: max(.zero, .seconds(60) - (state.now - minute.began))
            )
        }
    }
}

/// How often one key may ask.
@Suite struct RequestLimitTests {
    private struct NoCount: Error {}

    private func makeLimit(
        _ allowed: Int,
        _ shared: SharedCount,
        of subject: String = "address"
    ) throws -> RequestLimit {
        let began = ContinuousClock.now
        let limit = RequestLimit(
            perMinute: allowed,
            of: subject,
            logger: HeardLines().logger,
            now: { began + shared.elapsed }
        ) { wanted, key in
            shared.take(wanted, key)
        }
        return try #require(limit)
    }

    private static func refusal(_ limit: RequestLimit, _ name: String = "192.0.2.1") async -> Problem? {
        do throws(Problem) {
            try await limit.count(name)
            return nil
        } catch { return error }
    }

    private static func admits(_ limit: RequestLimit, _ name: String = "192.0.2.1") async -> Bool {
        await refusal(limit, name) == nil
    }

    @Test(arguments: [1, 2, 7, 19, 20, 59, 100, 601])
    func `Two processes together give what is allowed, and at most what each may lend beyond it`(
        allowed: Int
    ) async throws {
        let shared = SharedCount(allowed: allowed)
        let limits = [try makeLimit(allowed, shared), try makeLimit(allowed, shared)]
        let atOnce = await withTaskGroup(of: Bool.self) { group in
            for number in 0..<allowed * 3 {
                let limit = limits[number % 2]
                group.addTask { await Self.admits(limit) }
            }
            var count = 0
            for await isAdmitted in group where isAdmitted { count += 1 }
            return count
        }
        // What both have taken and not used yet.
        var later = 0
        for limit in limits {
            for _ in 0..<allowed {
                if await Self.admits(limit) { later += 1 }
            }
        }
        let lent = allowed / 20 * 2
        #expect((allowed...allowed + lent).contains(atOnce + later), "\(atOnce) and \(later)")
        for limit in limits {
            let isAdmitted = await Self.admits(limit)
            #expect(!isAdmitted)
        }
    }

    @Test(arguments: [20, 40, 100, 600, 6_000])
    func `Most requests cost no call, the first ones none at all, and one process holds the limit`(
        allowed: Int
    ) async throws {
        let shared = SharedCount(allowed: allowed)
        let limit = try makeLimit(allowed, shared)
        var admitted = 0
        for _ in 0..<allowed / 20 {
            if await Self.admits(limit) { admitted += 1 }
        }
        #expect(admitted == allowed / 20 && shared.asked.isEmpty)
        for _ in 0..<allowed {
            if await Self.admits(limit) { admitted += 1 }
            if admitted == allowed { break }
        }
        #expect(admitted == allowed)
        #expect(shared.asked.count <= 20)
        #expect(shared.asked.reduce(0, +) == allowed, "what was lent is counted as well")
        let isAdmitted = await Self.admits(limit)
        #expect(!isAdmitted)
    }

    @Test(arguments: [.zero, .milliseconds(12_500), .seconds(59), .milliseconds(59_999)] as [Duration])
    func `Whoever is refused hears when the minute is over`(elapsed: Duration) async throws {
        let shared = SharedCount(allowed: 1)
        let limit = try makeLimit(1, shared)
        #expect(await Self.refusal(limit) == nil)
        shared.pass(elapsed)
        let problem = try #require(await Self.refusal(limit))
        #expect(problem.kind == .tooManyRequests)
        let seconds = try #require(problem.retryAfterSeconds)
        let (told, wait) = (Duration.seconds(seconds), Duration.seconds(60) - elapsed)
        #expect(told >= wait && told <= wait + .seconds(1))
        let response = problem.response(requestID: "r-1")
        #expect(response.status == .tooManyRequests)
        #expect(response.headers[.retryAfter] == "\(seconds)")
    }

    @Test func `The next minute gives what the last one gave`() async throws {
        let shared = SharedCount(allowed: 7)
        let limit = try makeLimit(7, shared)
        for minute in 0..<3 {
            var admitted = 0
            for _ in 0..<20 {
                if await Self.admits(limit) { admitted += 1 }
            }
            #expect(admitted == 7, "minute \(minute)")
            shared.pass(.seconds(60))
        }
    }

    @Test(arguments: [1, 19, 100])
    func `A count that can't be had stops nobody, and is heard of without a name`(allowed: Int) async throws {
        let heard = HeardLines()
        let made = RequestLimit(perMinute: allowed, of: "address", logger: heard.logger) { _, _ in throw NoCount() }
        let limit = try #require(made)
        for number in 0..<allowed * 3 {
            let isAdmitted = await Self.admits(limit)
            #expect(isAdmitted, "request \(number)")
        }
        let line = HeardLines.Line(
            level: .info,
            message: "requests can't be counted",
            metadata: ["limit.subject": "address"]
        )
        #expect(!heard.all.isEmpty && heard.all.allSatisfy { $0 == line })
    }

    @Test func `Keys and subjects are counted apart, and nobody is named`() async throws {
        let shared = SharedCount(allowed: 1)
        let addresses = try makeLimit(1, shared)
        let users = try makeLimit(1, shared, of: "user")
        let asks = [(addresses, "ann"), (addresses, "bob"), (addresses, "ANN"), (users, "ann"), (users, "bob")]
        for (limit, name) in asks {
            #expect(await Self.refusal(limit, name) == nil, "\(name)")
        }
        for (limit, name) in asks {
            #expect(await Self.refusal(limit, name)?.kind == .tooManyRequests, "\(name)")
        }
        let keys = shared.keys
        #expect(keys.count == asks.count)
        #expect(keys.allSatisfy { $0.count == 32 }, "a digest each")
    }

    @Test(arguments: [0, -1])
    func `A limit of nothing is none`(perMinute: Int) {
        let limit = RequestLimit(perMinute: perMinute, of: "address", logger: HeardLines().logger) { wanted, _ in
            RequestCounts.Given(requests: wanted, wait: .zero)
        }
        let isNone = limit == nil
        #expect(isNone)
    }
}
