import Entitlements
import Foundation
import Synchronization

/// Many histories, several at a time.
enum Histories {
    struct Results: Sendable {
        var count = 0
        var steps = 0
        var failures: [String] = []
        var situations: [String: Int] = [:]
        var time = Duration.zero
    }

    /// Runs the histories of the seeds; the first failures are shrunk and told.
    static func run(_ seeds: [UInt64]) async throws -> Results {
        let board = Board(seeds)
        let started = ContinuousClock.now
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<min(Profile.lanes, seeds.count) {
                group.addTask {
                    try await Lane.with { lane in
                        while let seed = board.take() { await run(seed, lane, board) }
                    }
                }
            }
            try await group.waitForAll()
        }
        var all = board.results.withLock { $0 }
        all.time = .now - started
        return all
    }

    private static func run(_ seed: UInt64, _ lane: Lane, _ board: Board) async {
        let history = History(seed: seed)
        let (situations, failure) = await attempt(history.setup, history.steps, lane)
        var text: String?
        if let failure {
            let isEarly = board.results.withLock { $0.failures.count < 5 }
            text =
                isEarly
                ? await Shrink(lane: lane).tell(history, failure)
                : "ENTITLEMENT_SYNC_TEST_SEED=\(seed): \(failure.text.prefix(400))"
        }
        board.results.withLock { results in
            results.count += 1
            results.steps += history.steps.count
            for name in situations { results.situations[name, default: 0] += 1 }
            if let text { results.failures.append(text) }
        }
    }

    /// What the lanes share.
    private final class Board: Sendable {
        private let seeds: Mutex<ArraySlice<UInt64>>
        let results = Mutex(Results())

        init(_ seeds: [UInt64]) { self.seeds = Mutex(seeds[...]) }

        func take() -> UInt64? { seeds.withLock { $0.popFirst() } }
    }

    /// Runs one history.
    ///
    /// - Returns: the situations that came up, and what went wrong.
    static func attempt(_ setup: HistorySetup, _ steps: [Step], _ lane: Lane) async -> (Set<String>, Failed?) {
        var run = Run(lane: lane, setup: setup)
        do {
            try await run.perform(steps)
            return (run.model.situations, nil)
        } catch let failure as Failed {
            return (run.model.situations, failure)
        } catch {
            return (run.model.situations, Failed(kind: "error \(type(of: error))", text: "\(error)"))
        }
    }
}
