import Entitlements
import Testing

@Suite struct RetryPolicyTests {
    let policy = RetryPolicy(
        maxAttempts: 8,
        backoffBase: .seconds(1),
        backoffCap: .seconds(300),
        maxAge: .seconds(86_400)
    )

    /// The treatment of every failure, as the design's failure paragraph has it.
    static let treatments: [(ReadFailure.Code, ReadFailure.Treatment)] = [
        (.throttled, .retry), (.unavailable, .retry), (.timeout, .retry), (.malformed, .retry), (.locked, .retry),
        (.unauthorized, .retry), (.unmapped, .retry), (.rejected, .park), (.breakerOpen, .wait),
        (.budgetExhausted, .wait), (.interrupted, .wait), (.readLag, .wait), (.overtaken, .again),
        (.incomplete, .again), (.ownerPending, .wait), (.ownerUnresolved, .park), (.unknownToStore, .retry),
        (.unusableID, .park), (.storeOff, .park), (.unclearTrust, .park), (.refused, .park), (.crashed, .park),
        (.adapterRefused, .park), (.recordsUnavailable, .retry),
    ]

    @Test func `Every failure code has a treatment of its own`() {
        #expect(Set(ReadFailure.treatments.keys) == Set(ReadFailure.Code.allCases))
        #expect(Set(Self.treatments.map(\.0)) == Set(ReadFailure.Code.allCases))
        #expect(Set(ReadFailure.Code.allCases.map(\.rawValue)).count == ReadFailure.Code.allCases.count)
    }

    @Test(arguments: treatments)
    func `A failure counts, waits, is asked again or parks`(code: ReadFailure.Code, treatment: ReadFailure.Treatment) {
        let failure = ReadFailure(code)
        #expect(failure.treatment == treatment)
        let fresh = policy.next(after: failure, attempt: 0, age: .zero, jitter: 1)
        let last = policy.next(after: failure, attempt: 7, age: .zero, jitter: 1)
        switch treatment {
        case .retry:
            #expect(fresh == .again(after: .seconds(1), attempt: 1))
            #expect(last == .dead(attempt: 8))
        case .wait:
            #expect(fresh == .again(after: .seconds(1), attempt: 0))
            #expect(last == .again(after: .seconds(64), attempt: 7), "waiting never uses an attempt up")
        case .again:
            #expect(fresh == .again(after: .zero, attempt: 0))
            #expect(last == .again(after: .zero, attempt: 7))
            let second = policy.next(after: failure, attempt: 0, age: .zero, jitter: 1, isRepeated: true)
            #expect(second == .again(after: .seconds(1), attempt: 1), "a second look is free once")
        case .park:
            #expect(fresh == .dead(attempt: 1))
            #expect(last == .dead(attempt: 8))
        }
    }

    @Test(arguments: ReadFailure.Code.allCases, [86_400, 86_401, 40 * 86_400])
    func `A failed read ends a job that is a day old; a wait in which no store was asked ends none`(
        code: ReadFailure.Code,
        seconds: Int
    ) {
        let failure = ReadFailure(code)
        let last = policy.next(after: failure, attempt: 0, age: .seconds(seconds), jitter: 1, isRepeated: true)
        // Other stores are asked in every try that ends at an open breaker.
        let wait = Duration.seconds(code == .breakerOpen ? 300 : 1)
        #expect(last == (failure.treatment == .wait ? .again(after: wait, attempt: 0) : .dead(attempt: 1)))
        let tired = policy.next(after: failure, attempt: 7, age: .seconds(seconds), jitter: 1, isRepeated: true)
        let longer = Duration.seconds(code == .breakerOpen ? 300 : 64)
        #expect(tired == (failure.treatment == .wait ? .again(after: longer, attempt: 7) : .dead(attempt: 8)))
    }

    @Test func `An unmapped product is told by the name that operators see`() {
        #expect(ReadFailure(.unmapped).code.rawValue == "product_unmapped")
    }

    @Test(arguments: [(0, 1), (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64)])
    func `The wait doubles with every attempt`(attempt: Int, seconds: Int) {
        let next = policy.next(after: ReadFailure(.timeout), attempt: attempt, age: .zero, jitter: 1)
        #expect(next == .again(after: .seconds(seconds), attempt: attempt + 1))
    }

    @Test(arguments: [(0.0, 500), (0.5, 750), (1.0, 1000), (-3.0, 500), (7.0, 1000)])
    func `Jitter takes at most half of the wait away`(jitter: Double, milliseconds: Int) {
        let next = policy.next(after: ReadFailure(.timeout), attempt: 0, age: .zero, jitter: jitter)
        #expect(next == .again(after: .milliseconds(milliseconds), attempt: 1))
    }

    @Test(arguments: [9, 39, 62, 63, 64, 1000, Int.max - 1])
    func `The wait never passes its cap, however many attempts there were`(attempt: Int) {
        var patient = policy
        patient.maxAttempts = .max
        let next = patient.next(after: ReadFailure(.unavailable), attempt: attempt, age: .zero, jitter: 1)
        guard case .again(let wait, _) = next else {
            // The very last attempt an integer can count ends the job.
            #expect(attempt == Int.max - 1)
            return
        }
        #expect(wait == .seconds(300))
    }

    @Test(arguments: [(30, 30), (299, 299), (300, 300), (100_000, 300), (0, 1), (-5, 1)])
    func `93: the store's own wish is honoured up to the cap`(wish: Int, seconds: Int) {
        let failure = ReadFailure(.throttled, retryAfter: .seconds(wish))
        #expect(
            policy.next(after: failure, attempt: 0, age: .zero, jitter: 1)
                == .again(after: .seconds(seconds), attempt: 1)
        )
    }

    @Test func `93: a short backoff cap still lets a store ask for a minute`() {
        var short = policy
        short.backoffCap = .milliseconds(50)
        let failure = ReadFailure(.throttled, retryAfter: .seconds(3600))
        #expect(
            short.next(after: failure, attempt: 3, age: .zero, jitter: 1) == .again(after: .seconds(60), attempt: 4)
        )
        let silent = ReadFailure(.throttled)
        #expect(
            short.next(after: silent, attempt: 3, age: .zero, jitter: 1) == .again(after: .milliseconds(50), attempt: 4)
        )
    }
}
