import Foundation
import Synchronization

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

    /// Hands values out to three lanes that work side by side, each on a database that it opens itself.
    ///
    /// - Parameters:
    ///   - values: what there is to do, in the order in which it is taken up.
    ///   - lane: works until nothing more is to be taken.
    /// - Throws: what a lane threw.
    static func sideBySide<Value: Sendable>(
        _ values: [Value],
        _ lane: @escaping @Sendable (_ take: @escaping @Sendable () -> Value?) async throws -> Void
    ) async throws {
        let left = Left(values)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<min(3, values.count) {
                group.addTask { try await lane { left.take() } }
            }
            try await group.waitForAll()
        }
    }

    /// What has been taken by nobody yet.
    private final class Left<Value: Sendable>: Sendable {
        private let values: Mutex<ArraySlice<Value>>

        init(_ values: [Value]) { self.values = Mutex(values[...]) }

        func take() -> Value? { values.withLock { $0.popFirst() } }
    }
}

/// A sum to which every lane adds.
final class Sum: Sendable {
    private let sum = Atomic(0)

    var value: Int { sum.load(ordering: .relaxed) }

    func add(_ number: Int) { sum.add(number, ordering: .relaxed) }
}
