@testable import SyncWorker
import Testing

/// The places of jobs that nobody waits for.
struct CourtesyTests {
    private let start = ContinuousClock.now

    /// The places of 64 after a number of restores that took so long, one a millisecond.
    private func places(_ courtesy: Courtesy, after restores: Int, taking time: Duration) -> Int {
        for number in 0..<restores { courtesy.note(time, at: start + .milliseconds(number)) }
        return courtesy.places(of: 64, someoneWaits: true, at: start + .milliseconds(restores))
    }

    @Test func `alone they have three quarters, and an eighth as soon as somebody waits`() {
        let courtesy = Courtesy()
        #expect(courtesy.places(of: 64, someoneWaits: false, at: start) == 48)
        #expect(courtesy.places(of: 64, someoneWaits: true, at: start) == 8)
    }

    @Test func `they yield while restores are slow, and are never left without a place`() {
        #expect(places(Courtesy(), after: 10, taking: .milliseconds(16)) == 4)
        #expect(places(Courtesy(), after: 1000, taking: .seconds(1)) == 2)
        #expect(Courtesy().places(of: 1, someoneWaits: true, at: start) == 1)
    }

    @Test func `they come back, more slowly, where restores are quick, and never get all`() {
        #expect(places(Courtesy(), after: 100, taking: .milliseconds(15)) == 14)
        #expect(places(Courtesy(), after: 5000, taking: .milliseconds(1)) == 48)
    }

    @Test func `work is rested from as long as it took, and longer while restores are slow`() {
        let courtesy = Courtesy()
        #expect(courtesy.pause(after: .milliseconds(40), at: start) == .milliseconds(40))
        _ = places(courtesy, after: 1000, taking: .milliseconds(1))
        #expect(courtesy.pause(after: .milliseconds(40), at: start + .seconds(1)) == .milliseconds(40))
        _ = places(courtesy, after: 1000, taking: .seconds(1))
        #expect(courtesy.pause(after: .milliseconds(40), at: start + .seconds(1)) == .milliseconds(160))
        #expect(courtesy.pause(after: .seconds(40), at: start + .seconds(1)) == .seconds(1))
    }

    @Test func `a second after the last restore what was learned is forgotten`() {
        let courtesy = Courtesy()
        #expect(places(courtesy, after: 1000, taking: .seconds(1)) == 2)
        let last = start + .milliseconds(999)
        #expect(courtesy.places(of: 64, someoneWaits: false, at: last + .seconds(1)) == 2)
        #expect(courtesy.places(of: 64, someoneWaits: false, at: last + .milliseconds(1001)) == 48)
        courtesy.note(.milliseconds(1), at: last + .milliseconds(1001))
        #expect(courtesy.places(of: 64, someoneWaits: true, at: last + .milliseconds(1002)) == 8)
    }
}
