import Entitlements
import Foundation
import Synchronization
import Testing

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
        let board = Board()
        let started = ContinuousClock.now
        try await Lanes.sideBySide(seeds) { take in
            try await Lane.with { lane in
                while let seed = take() { await run(seed, lane, board) }
            }
        }
        var all = board.results.withLock { $0 }
        all.time = .now - started
        return all
    }

    /// Lives through histories, and looks at what each of them left; what goes wrong is an issue that names the seed.
    ///
    /// - Parameters:
    ///   - seeds: of the histories.
    ///   - takesPlace: which of a history's steps do.
    ///   - look: is called with the lane after each history.
    /// - Throws: why there is no lane.
    static func liveThrough(
        _ seeds: [UInt64],
        where takesPlace: @escaping @Sendable (Step) -> Bool = { _ in true },
        _ look: @escaping @Sendable (History, Lane) async throws -> Void
    ) async throws {
        let failures = Sum()
        try await Lanes.sideBySide(seeds) { take in
            try await Lane.with { lane in
                while let seed = take() {
                    let history = History(seed: seed)
                    var run = Run(lane: lane, setup: history.setup)
                    do {
                        try await run.live(history.steps.filter(takesPlace))
                        try await look(history, lane)
                    } catch {
                        failures.add(1)
                        let text = (error as? Failed)?.text ?? "\(error)"
                        // The first ones are told in full.
                        let told = failures.value <= 5 ? text[...] : text.prefix(400)
                        Issue.record("ENTITLEMENT_SYNC_TEST_SEED=\(seed): \(told)")
                    }
                }
            }
        }
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
        let results = Mutex(Results())
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
