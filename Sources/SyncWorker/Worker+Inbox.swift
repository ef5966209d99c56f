import Logging
import Metrics
import Queue
import Reconciliation
import StoreEvents

extension Worker {
    /// Events that are looked into at a time.
    private static let eventBatch = 500

    /// Has whoever the stores' events are about read again.
    func inboxDuty() async {
        var pause = Duration.milliseconds(100)
        while !Task.isCancelled, !shared.isStopping {
            do {
                let began = ContinuousClock.now
                let drained = try await inbox.drain(upTo: Self.eventBatch)
                if drained.examined > 0 {
                    WorkerMetrics.shared.eventsLooked.increment(by: drained.examined)
                    pause = .milliseconds(100)
                }
                if drained.queued > 0 { shared.wake.raise() }
                if drained.examined == Int64(Self.eventBatch) {
                    // In a storm half of the time is left to whoever people wait for, or more.
                    let now = ContinuousClock.now
                    try? await Task.sleep(for: shared.backgroundLimit.pause(after: now - began, at: now))
                    continue
                }
            } catch {
                guard !Task.isCancelled, !shared.isStopping else { return }
                logger.warning("events could not be looked into; trying again", metadata: describe(error))
            }
            try? await Task.sleep(for: pause)
            // An empty inbox is looked into less often.
            pause = min(pause * 2, settings.untilIdle ? .milliseconds(200) : .seconds(1))
        }
    }

    /// Events whose stores are asked at a time.
    private static let askBatch = 20

    /// Asks the stores about events that lead to no user by themselves: the first word of a purchase, or a customer without
    /// a name of ours.
    func askDuty() async {
        guard let resolve = reader.resolve else { return }
        var pause = Duration.milliseconds(100)
        while !Task.isCancelled, !shared.isStopping {
            do {
                let asks = try await inbox.takeAsks(upTo: Self.askBatch)
                if !asks.isEmpty {
                    try await keepAnswers(to: asks, resolve)
                    pause = .milliseconds(100)
                    continue
                }
            } catch {
                guard !Task.isCancelled, !shared.isStopping else { return }
                logger.warning("stores could not be asked about events; trying again", metadata: describe(error))
            }
            try? await Task.sleep(for: pause)
            pause = min(pause * 2, settings.untilIdle ? .milliseconds(200) : .seconds(1))
        }
    }

    /// Asks about each purchase once, however many events tell of it, and keeps each answer as it comes.
    private func keepAnswers(
        to asks: [Inbox.Ask],
        _ resolve: @escaping @Sendable (Inbox.Ask) async -> Inbox.Answer
    ) async throws {
        try await withThrowingTaskGroup(of: [Inbox.Answer].self) { group in
            for same in Dictionary(grouping: asks, by: \.about).values {
                group.addTask {
                    guard let first = same.first else { return [] }
                    let answer = await resolve(first)
                    return same.map {
                        Inbox.Answer($0, users: answer.users, purchases: answer.purchases, failed: answer.failed)
                    }
                }
            }
            for try await answers in group {
                // What was asked while this process stops is asked again by another.
                guard !Task.isCancelled else { return }
                try await inbox.keep(answers)
            }
        }
    }
}
