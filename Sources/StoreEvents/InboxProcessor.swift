package import Logging
import Metrics
package import Queue
import ServiceLifecycle

/// Queues a read of each user that a store's event is about.
package struct InboxProcessor: Service {
    /// Events that are examined together.
    private static let batch = 500

    private let inbox: Inbox
    private let dequeue: DequeueSignal
    private let longestPause: Duration
    private let rest: @Sendable (Duration) -> Duration
    private let logger: Logger
    private let examined = Counter(label: "entitlement_sync_events_examined_total")

    /// `dequeue` is raised when jobs were queued, and the pause grows up to `longestPause` while no event comes.
    ///
    /// `rest`: how long to leave the machine to jobs after work that took so long.
    package init(
        _ inbox: Inbox,
        dequeue: DequeueSignal,
        longestPause: Duration,
        rest: @escaping @Sendable (Duration) -> Duration,
        logger: Logger
    ) {
        self.rest = rest
        self.inbox = inbox
        self.dequeue = dequeue
        self.longestPause = longestPause
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("inbox processor", every: .milliseconds(100), upTo: longestPause, logger: logger) {
            try await step()
        }.run()
    }

    package func step() async throws -> PeriodicService.Next {
        let began = ContinuousClock.now
        let drained = try await inbox.drain(upTo: Self.batch)
        if drained.examined > 0 { examined.increment(by: drained.examined) }
        if drained.queued > 0 { dequeue.raise() }
        guard drained.examined == Int64(Self.batch) else {
            return drained.examined > 0 ? .after(.milliseconds(100)) : .idle
        }
        // In a burst of events half of the time is left to jobs, or more.
        return .after(rest(.now - began))
    }
}

/// Asks the stores about events that lead to no user: the first one of a purchase, or a customer without an id of ours.
package struct EventResolver: Service {
    /// Events whose stores are asked together.
    private static let batch = 20

    private let inbox: Inbox
    private let resolve: @Sendable (Inbox.Ask) async -> Inbox.Answer
    private let longestPause: Duration
    private let logger: Logger

    /// `longestPause`: up to which the pause grows while no event comes; `resolve` asks the store of an event.
    package init(
        _ inbox: Inbox,
        longestPause: Duration,
        logger: Logger,
        resolve: @escaping @Sendable (Inbox.Ask) async -> Inbox.Answer
    ) {
        self.inbox = inbox
        self.resolve = resolve
        self.longestPause = longestPause
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("event resolver", every: .milliseconds(100), upTo: longestPause, logger: logger) {
            try await step()
        }.run()
    }

    /// Asks about each purchase once, however many events name it, and keeps each answer as it comes.
    package func step() async throws -> PeriodicService.Next {
        let asks = try await inbox.takeAsks(upTo: Self.batch)
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
        return .again(ifAny: asks.count)
    }
}
