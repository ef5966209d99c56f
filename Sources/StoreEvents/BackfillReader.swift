package import Entitlements
package import Logging
import Queue
import ServiceLifecycle

/// Reads what stores list of what they sent, for runs that catch up.
package struct BackfillReader: Service {
    private let listings: Listings
    private let lists: [StoreList]
    /// The waits after failures; for as long as the run goes on there is another try.
    private let retry: RetryPolicy
    private let logger: Logger

    package init(_ listings: Listings, lists: [StoreList], retry: RetryPolicy, logger: Logger) {
        self.listings = listings
        self.lists = lists
        self.retry = retry
        self.logger = logger
    }

    package func run() async {
        await withDiscardingTaskGroup { group in
            // Side by side: none waits for another store's, which may be long.
            for list in lists {
                group.addTask {
                    await PeriodicService("backfill reader", every: .seconds(1), logger: logger) {
                        try await step(list)
                    }.run()
                }
            }
        }
    }

    private func step(_ list: StoreList) async throws -> PeriodicService.Next {
        guard let taken = try await listings.take(list.name, reach: list.reach) else { return .idle }
        try await read(list, taken)
        return .again
    }

    /// After so many failures in a row a run's end waits no longer; as `plan_backfills` has it.
    private static let mostAwaited: Int32 = 3

    /// The wait after a failure, and how often it has failed in a row by now.
    func next(after failure: ReadFailure, failures: Int32) -> (pause: Duration, failures: Int32) {
        let attempt = min(Int(failures), retry.maxAttempts - 2)
        let next = retry.next(after: failure, attempt: attempt, age: .zero, jitter: .random(in: 0...1))
        guard case .again(let pause, _) = next else { return (retry.backoffCap, max(failures + 1, Self.mostAwaited)) }
        // Our own limit is no failure: it is waited for.
        return (pause, failure.code == .budgetExhausted ? failures : failures + 1)
    }

    private func read(_ list: StoreList, _ taken: Listings.Taken) async throws {
        var failures = taken.failures
        do {
            var start = taken.reached
            repeat {
                let end = min(list.window(after: failures).map { start + $0 } ?? taken.until, taken.until)
                try await list.read(start, end) { page in
                    guard try await listings.keep(page, from: list.source, isOwned: list.isOwned, of: taken)
                    else { throw Overtaken() }
                }
                guard try await listings.move(taken, to: end) else { throw Overtaken() }
                failures = 0
                start = end
            } while start < taken.until
            logger.notice("a store's list was read to its end", metadata: describe(taken))
        } catch is Overtaken {
            return
        } catch {
            let failure = error as? ReadFailure
            // A shutdown is no failure; a task of its own, because this one may be cancelled.
            guard !Task.isCancelled, failure?.code != .interrupted else {
                return try await Task { [failures] in
                    try await listings.postpone(taken, for: .zero, code: nil, failures: failures)
                }.value
            }
            // What the database refused is tried again as what the store did.
            let next = next(after: failure ?? ReadFailure(.unavailable), failures: failures)
            let code = failure?.code.rawValue ?? "not_kept"
            logger.warning(
                "a store's list could not be read; the run goes on",
                metadata: describe(taken).merging(["error.code": "\(code)"]) { $1 }
            )
            try await listings.postpone(taken, for: next.pause, code: code, failures: next.failures)
            if failure?.code == .unauthorized, list.isMain {
                try await listings.noteRefusal(by: list.source)
            }
        }
    }

    private func describe(_ taken: Listings.Taken) -> Logger.Metadata {
        ["run.id": "\(taken.run)", "run.list": "\(taken.list)"]
    }
}

extension StoreList {
    /// What is listed at a time: less the more often it has failed, so that a list that is too long comes in parts.
    fileprivate func window(after failures: Int32) -> Duration? {
        window.map { max($0 / (1 << min(Int(failures), 8)), .seconds(300)) }
    }
}

/// Another process goes on with a list, or its run does not go on.
private struct Overtaken: Error {}
