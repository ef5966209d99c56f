@testable import RateLimits
import Testing

/// Tokens in hand.
struct LocalTokenCacheTests {
    private let start = ContinuousClock.now

    private func chunk(_ cache: inout LocalTokenCache, at offset: Duration) -> Int? {
        guard case .refill(let count) = cache.spend(at: start + offset) else { return nil }
        return count
    }

    /// Gives tokens, the first of which is for the request that asked.
    private func expectAdded(
        _ cache: inout LocalTokenCache,
        _ count: Int,
        wait: Duration,
        at now: ContinuousClock.Instant,
        _ location: SourceLocation = #_sourceLocation
    ) {
        let isGiven = cache.add(count, wait: wait, at: now)
        #expect(isGiven == (count > 0), sourceLocation: location)
    }

    @Test("Tokens are spent once, and one asks for more while the others wait")
    func once() {
        var cache = LocalTokenCache(largest: 20)
        #expect(cache.spend(at: start) == .refill(1))
        #expect(cache.spend(at: start) == .wait(.milliseconds(5)))
        expectAdded(&cache, 2, wait: .zero, at: start)
        #expect(cache.spend(at: start) == .go)
        #expect(cache.spend(at: start) != .go)
    }

    @Test("93: what is kept for longer than a second is not spent any more")
    func validity() {
        var cache = LocalTokenCache(largest: 20)
        #expect(cache.spend(at: start) == .refill(1))
        expectAdded(&cache, 4, wait: .zero, at: start)
        #expect(cache.spend(at: start + .milliseconds(900)) == .go)
        #expect(cache.spend(at: start + LocalTokenCache.validity) == .go)
        #expect(cache.spend(at: start + LocalTokenCache.validity + .milliseconds(1)) == .refill(3))
    }

    @Test("As many are asked for as are spent in the meantime, and never more than allowed")
    func chunks() throws {
        var cache = LocalTokenCache(largest: 6)
        var offset = Duration.zero
        var asked: [Int] = []
        for _ in 0..<5 {
            let count = try #require(chunk(&cache, at: offset))
            asked.append(count)
            expectAdded(&cache, count, wait: .zero, at: start + offset)
            for _ in 1..<count {
                offset += .milliseconds(1)
                #expect(cache.spend(at: start + offset) == .go)
            }
        }
        #expect(asked == [1, 2, 4, 6, 6])
        // One a second from here on: the first ask learns it, and nothing is lost after that.
        let last = try #require(chunk(&cache, at: offset))
        expectAdded(&cache, last, wait: .zero, at: start + offset)
        for _ in 0..<3 {
            offset += .milliseconds(1100)
            #expect(chunk(&cache, at: offset) == 1)
            expectAdded(&cache, 1, wait: .zero, at: start + offset)
        }
    }

    @Test("Where there are none, nobody asks again before there may be some")
    func empty() {
        var cache = LocalTokenCache(largest: 20)
        #expect(cache.spend(at: start) == .refill(1))
        expectAdded(&cache, 0, wait: .milliseconds(300), at: start)
        #expect(cache.spend(at: start + .milliseconds(100)) == .wait(.milliseconds(200)))
        #expect(cache.spend(at: start + .milliseconds(300)) == .refill(1))
        var patient = LocalTokenCache(largest: 20, rest: .milliseconds(500))
        #expect(patient.spend(at: start) == .refill(1))
        expectAdded(&patient, 0, wait: .milliseconds(300), at: start)
        #expect(patient.spend(at: start + .milliseconds(300)) == .wait(.milliseconds(200)))
    }

    @Test("As many sweeps wait at a limit as it serves within a quarter of a second, dry runs aside")
    func turns() {
        #expect(LimiterOccupancy(perMinute: 1, waiting: 0).most == 3)
        #expect(LimiterOccupancy(perMinute: 480, waiting: 0).most == 4)
        #expect(LimiterOccupancy(perMinute: 4800, waiting: 0).most == 19)
        #expect(LimiterOccupancy(perMinute: 480, waiting: 4).room(besides: 0) == 0)
        #expect(LimiterOccupancy(perMinute: 480, waiting: 4).room(besides: 1) == 1)
        #expect(LimiterOccupancy(perMinute: 480, waiting: 4).room(besides: 100) == 2)
        #expect(LimiterOccupancy(perMinute: 4800, waiting: 1, isStarved: true).room(besides: 0) == 0)
    }

    @Test("After a pause one token is asked for, and a bucket that takes long is not looked at all the time")
    func pauses() {
        var cache = LocalTokenCache(largest: 20)
        for (count, offset) in [(1, 0), (2, 10), (4, 20)] {
            #expect(chunk(&cache, at: .milliseconds(offset)) == count)
            expectAdded(&cache, count, wait: .zero, at: start + .milliseconds(offset))
            for _ in 1..<count { #expect(cache.spend(at: start + .milliseconds(offset)) == .go) }
        }
        #expect(chunk(&cache, at: .seconds(60)) == 1)
        #expect(cache.spend(at: start + .seconds(60) + .milliseconds(1)) == .wait(.milliseconds(5)))
        #expect(cache.spend(at: start + .seconds(60) + .milliseconds(40)) == .wait(.milliseconds(40)))
        #expect(cache.spend(at: start + .seconds(90)) == .wait(.milliseconds(100)))
    }
}
