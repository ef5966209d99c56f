import Foundation
import Testing

@testable import WebAPI

/// What is known of restores for a while.
@Suite struct ExpiringCacheTests {
    private let start = ContinuousClock.now
    private let time = Duration.seconds(30)

    private func after(_ seconds: Int) -> ContinuousClock.Instant { start + .seconds(seconds) }

    @Test func `Known until its time is over, whether or not it has been forgotten`() {
        var known = ExpiringCache<String>(most: 10)
        let id = UUID()
        let isTaken = known.insert("first", for: id, until: start + time, at: start)
        #expect(isTaken)
        #expect(known.value(id, at: after(29)) == "first")
        #expect(known.value(id, at: after(30)) == nil)
        known.forget(upTo: 10, at: after(29))
        #expect(known[id] == "first")
        known.forget(upTo: 10, at: after(30))
        #expect(known[id] == nil)
    }

    @Test func `Who comes again stays for the later time, and what is updated for its own`() {
        var known = ExpiringCache<String>(most: 10)
        let id = UUID()
        let isTaken = known.insert("first", for: id, until: start + time, at: start)
        #expect(isTaken)
        let isTakenAgain = known.insert("second", for: id, until: after(10) + time, at: after(10))
        #expect(isTakenAgain)
        known.forget(upTo: 10, at: after(35))
        #expect(known.value(id, at: after(35)) == "second")
        known.update("third", for: id)
        #expect(known.value(id, at: after(39)) == "third")
        known.forget(upTo: 10, at: after(40))
        #expect(known[id] == nil)
        known.update("fourth", for: id)
        #expect(known[id] == nil)
    }

    @Test func `A stream forgets as it goes, and no more than its limit is kept`() {
        var known = ExpiringCache<Int>(most: 100)
        for second in 0..<1000 {
            let isTaken = known.insert(second, for: UUID(), until: after(second) + time, at: after(second))
            #expect(isTaken)
            #expect(known.count <= 31)
        }
        var full = ExpiringCache<Int>(most: 100)
        let ids = (0...100).map { _ in UUID() }
        for id in ids { _ = full.insert(1, for: id, until: start + time, at: start) }
        #expect(full.count == 100)
        #expect(full[ids[100]] == nil)
        let isNextTaken = full.insert(2, for: ids[100], until: after(30) + time, at: after(30))
        #expect(isNextTaken)
    }

    @Test func `One that comes again and again is no way around the limit`() {
        var known = ExpiringCache<Int>(most: 100)
        let id = UUID()
        let taken = (0..<150).map { known.insert($0, for: id, until: start + time, at: start) }
        #expect(taken == (0..<150).map { $0 < 100 })
    }

    @Test func `No more are forgotten at a time than was asked for, and under load they become fewer`() {
        var known = ExpiringCache<Int>(most: 1000)
        for number in 0..<100 { _ = known.insert(number, for: UUID(), until: start + time, at: start) }
        let hasMore = known.forget(upTo: 40, at: after(30))
        #expect(hasMore && known.count == 60)
        for number in 0..<30 { _ = known.insert(number, for: UUID(), until: after(60), at: after(30)) }
        #expect(known.count == 30)
        let hasYetMore = known.forget(upTo: 40, at: after(59))
        #expect(!hasYetMore && known.count == 30)
        let hasRest = known.forget(upTo: 30, at: after(60))
        #expect(!hasRest && known.count == 0)
    }
}
