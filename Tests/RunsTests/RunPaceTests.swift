import Foundation
@testable import Runs
import Testing

/// How fast runs go, as their planner sees it.
@Suite struct RunPaceTests {
    private let start = Date(timeIntervalSince1970: 1_700_000_000)

    private func at(_ seconds: Double) -> Date { start.addingTimeInterval(seconds) }

    @Test func `It looks every other second, keeps twenty minutes, and begins anew where the clock is set back`() {
        let pace = RunPace()
        #expect(pace.isDue(1, at: start))
        pace.note(1, users: 0, at: start)
        #expect(!pace.isDue(1, at: at(1.9)) && pace.isDue(1, at: at(2)) && pace.isDue(1, at: at(-5)))
        for second in 1...2000 { pace.note(1, users: Int64(second), at: at(Double(second))) }
        #expect(pace.curve(of: 1).first?.users == 800 && pace.curve(of: 1).last?.users == 2000)
        pace.note(1, users: 7, at: at(-5))
        #expect(pace.curve(of: 1) == [RunRecord.Point(at: at(-5), users: 7)])
        pace.note(2, users: 3, at: start)
        pace.keep([2])
        #expect(pace.curve(of: 1).isEmpty && pace.curve(of: 2).count == 1)
    }
}
