@testable import Reconciliation
import Testing

/// How far background jobs step back while users wait.
struct BackgroundShareTests {
    private let start = ContinuousClock.now

    /// The share after a number of restores that took so long, one a millisecond.
    private func share(_ share: BackgroundShare, after restores: Int, taking time: Duration) -> Double? {
        for number in 0..<restores { share.restoreEnded(after: time, at: start + .milliseconds(number)) }
        return share.besideRestores(at: start + .milliseconds(restores))
    }

    @Test func `There is no share without restores, and an eighth for a second after the first one`() {
        let share = BackgroundShare()
        #expect(share.besideRestores(at: start) == nil)
        share.noteRestore(at: start)
        #expect(share.besideRestores(at: start) == 0.125)
        #expect(share.besideRestores(at: start + .seconds(1)) == 0.125)
        #expect(share.besideRestores(at: start + .milliseconds(1001)) == nil)
    }

    @Test func `It falls quickly while restores are slow, and rises slowly`() throws {
        let few = try #require(share(BackgroundShare(), after: 10, taking: .milliseconds(16)))
        #expect(abs(few - 0.0748) < 0.0001)
        let slow = BackgroundShare()
        #expect(share(slow, after: 1000, taking: .seconds(1)) == 1.0 / 32)
        let quick = BackgroundShare()
        let some = try #require(share(quick, after: 100, taking: .milliseconds(15)))
        #expect(abs(some - 0.225) < 0.0001)
        #expect(share(quick, after: 5000, taking: .milliseconds(1)) == 0.75)
        // A second after the last restore what was learned is forgotten.
        let last = start + .milliseconds(999)
        #expect(slow.besideRestores(at: last + .seconds(1)) == 1.0 / 32)
        slow.restoreEnded(after: .milliseconds(1), at: last + .milliseconds(1001))
        #expect(slow.besideRestores(at: last + .milliseconds(1002)) == 0.126)
    }

    @Test func `Another worker's restores leave an eighth, however slow they are`() {
        let restores = BackgroundShare.Restores()
        let (ours, theirs) = (BackgroundShare(among: restores), BackgroundShare(among: restores))
        _ = share(theirs, after: 1000, taking: .seconds(1))
        #expect(theirs.besideRestores(at: start + .seconds(1)) == 1.0 / 32)
        #expect(ours.besideRestores(at: start + .seconds(1)) == 0.125)
        #expect(ours.besideRestores(at: start + .seconds(3)) == nil)
    }

    @Test func `Work beside the slots is rested from as long as it took, and longer while restores are slow`() {
        let share = BackgroundShare()
        #expect(share.rest(after: .milliseconds(40), at: start) == .milliseconds(40))
        _ = self.share(share, after: 1000, taking: .seconds(1))
        #expect(share.rest(after: .milliseconds(40), at: start + .seconds(1)) == .milliseconds(160))
        #expect(share.rest(after: .seconds(40), at: start + .seconds(1)) == .seconds(1))
    }
}
