import Logging
import Metrics
import Storage

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
                if drained.looked > 0 {
                    WorkerMetrics.shared.eventsLooked.increment(by: drained.looked)
                    pause = .milliseconds(100)
                }
                if drained.queued > 0 { shared.wake.raise() }
                if drained.looked == Int64(Self.eventBatch) {
                    // In a storm half of the time is left to whoever people wait for, or more.
                    let now = ContinuousClock.now
                    try? await Task.sleep(for: shared.courtesy.pause(after: now - began, at: now))
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
}
