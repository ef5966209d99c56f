@testable import SyncWorker
import Testing

/// The slots of background jobs.
struct BackgroundConcurrencyLimitTests {
    private let start = ContinuousClock.now

    /// The places of 64 after a number of restores that took so long, one a millisecond.
    private func places(_ backgroundLimit: BackgroundConcurrencyLimit, after restores: Int, taking time: Duration)
        -> Int
    {
        for number in 0..<restores { backgroundLimit.note(time, at: start + .milliseconds(number)) }
        return backgroundLimit.places(of: 64, someoneWaits: true, at: start + .milliseconds(restores))
    }

    @Test func `alone they have three quarters, and an eighth as soon as a restore waits`() {
        let backgroundLimit = BackgroundConcurrencyLimit()
        #expect(backgroundLimit.places(of: 64, someoneWaits: false, at: start) == 48)
        #expect(backgroundLimit.places(of: 64, someoneWaits: true, at: start) == 8)
    }

    @Test func `they yield while restores are slow, and are never left without a place`() {
        #expect(places(BackgroundConcurrencyLimit(), after: 10, taking: .milliseconds(16)) == 4)
        #expect(places(BackgroundConcurrencyLimit(), after: 1000, taking: .seconds(1)) == 2)
        #expect(BackgroundConcurrencyLimit().places(of: 1, someoneWaits: true, at: start) == 1)
    }

    @Test func `they come back, more slowly, where restores are quick, and never get all`() {
        #expect(places(BackgroundConcurrencyLimit(), after: 100, taking: .milliseconds(15)) == 14)
        #expect(places(BackgroundConcurrencyLimit(), after: 5000, taking: .milliseconds(1)) == 48)
    }

    @Test func `work is rested from as long as it took, and longer while restores are slow`() {
        let backgroundLimit = BackgroundConcurrencyLimit()
        #expect(backgroundLimit.pause(after: .milliseconds(40), at: start) == .milliseconds(40))
        _ = places(backgroundLimit, after: 1000, taking: .milliseconds(1))
        #expect(backgroundLimit.pause(after: .milliseconds(40), at: start + .seconds(1)) == .milliseconds(40))
        _ = places(backgroundLimit, after: 1000, taking: .seconds(1))
        #expect(backgroundLimit.pause(after: .milliseconds(40), at: start + .seconds(1)) == .milliseconds(160))
        #expect(backgroundLimit.pause(after: .seconds(40), at: start + .seconds(1)) == .seconds(1))
    }

    @Test func `a second after the last restore what was learned is forgotten`() {
        let backgroundLimit = BackgroundConcurrencyLimit()
        #expect(places(backgroundLimit, after: 1000, taking: .seconds(1)) == 2)
        let last = start + .milliseconds(999)
        #expect(backgroundLimit.places(of: 64, someoneWaits: false, at: last + .seconds(1)) == 2)
        #expect(backgroundLimit.places(of: 64, someoneWaits: false, at: last + .milliseconds(1001)) == 48)
        backgroundLimit.note(.milliseconds(1), at: last + .milliseconds(1001))
        #expect(backgroundLimit.places(of: 64, someoneWaits: true, at: last + .milliseconds(1002)) == 8)
    }
}
