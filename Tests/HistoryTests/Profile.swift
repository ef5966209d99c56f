import Foundation

/// Which histories run.
enum Profile {
    /// 200 seeds, and 60 with runs; 2,000 and 2,000 with `ENTITLEMENT_SYNC_TEST_PROFILE=full`; one with
    /// `ENTITLEMENT_SYNC_TEST_SEED=N`, some with `N-M`.
    static let seeds: [UInt64] = {
        let environment = ProcessInfo.processInfo.environment
        let asked = environment["ENTITLEMENT_SYNC_TEST_SEED"]?.split(separator: "-").compactMap { UInt64($0) } ?? []
        if let first = asked.first, let last = asked.last, first <= last { return Array(first...last) }
        return Array(0..<(isFull ? 2000 : 200)) + Array(History.runs..<History.runs + (isFull ? 2000 : 60))
    }()

    /// Whether ten times as much is asked for.
    static var isFull: Bool { ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_TEST_PROFILE"] == "full" }

    /// Whether a whole profile runs, so that rare situations must occur.
    static var isWhole: Bool { seeds.count > 1 }
}
