import TestSupport

/// The seeds of the histories that run.
enum Seeds {
    /// 80 seeds, and 30 with runs; 2,000 and 2,000 in the full profile; or those that are asked for.
    static let all: [UInt64] = {
        if let asked = Profile.seeds { return Array(asked) }
        let (plain, withRuns): (UInt64, UInt64) = Profile.isFull ? (2000, 2000) : (80, 30)
        return Array(0..<plain) + Array(History.runs..<History.runs + withRuns)
    }()

    /// True if a whole profile runs, so that rare situations must occur.
    static var isWhole: Bool { all.count > 1 }
}
