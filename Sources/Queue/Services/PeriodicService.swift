package import Logging
import Metrics
import Postgres
import ServiceLifecycle

/// Repeats a step until shutdown: at once while there is more to do, else after a pause.
///
/// A failed step is logged, counted and repeated. A shutdown cancels the running step, so a step must leave nothing half
/// done when it is cancelled.
package struct PeriodicService: Service {
    /// What follows a step.
    package enum Next: Sendable, Equatable {
        /// There may be more to do: the next step follows at once.
        case again
        /// The next step comes after the interval, which doubles up to the longest while steps stay idle.
        case idle
        case after(Duration)
        /// Nothing is left to do for this process.
        case never

        /// `again` after work, `idle` where there was none.
        package static func after(work count: Int) -> Next { count > 0 ? .again : .idle }
    }

    private let name: String
    private let interval: Duration
    private let longest: Duration
    private let delay: Duration
    private let retry: Duration
    private let signal: Signal?
    private let logger: Logger
    private let failures: Counter
    private let step: @Sendable () async throws -> Next
    private let last: (@Sendable () async -> Void)?

    /// Describes a service.
    ///
    /// - Parameters:
    ///   - name: names it in logs and metrics, such as `outbox dispatcher`.
    ///   - interval: the pause after an idle step.
    ///   - longest: up to which the pause doubles; `nil`: it stays the same.
    ///   - delay: the pause before the first step.
    ///   - retry: the pause after a failed step; `nil`: the interval, at least half a second.
    ///   - signal: ends a pause early.
    ///   - logger: gets failures.
    ///   - last: done at the end, also after a cancellation, within two seconds.
    ///   - step: does what can be done now.
    package init(
        _ name: String,
        every interval: Duration,
        upTo longest: Duration? = nil,
        after delay: Duration = .zero,
        retryingAfter retry: Duration? = nil,
        wokenBy signal: Signal? = nil,
        logger: Logger,
        last: (@Sendable () async -> Void)? = nil,
        step: @escaping @Sendable () async throws -> Next
    ) {
        self.name = name
        self.interval = interval
        self.longest = longest ?? interval
        self.delay = delay
        self.retry = retry ?? max(interval, .milliseconds(500))
        self.signal = signal
        self.logger = logger
        self.last = last
        self.step = step
        failures = Counter(
            label: "entitlement_sync_service_failures_total",
            dimensions: [("service", name.replacing(" ", with: "_"))]
        )
    }

    package func run() async {
        await cancelWhenGracefulShutdown { await repeatStep() }
        if let last { await finish(within: .seconds(2), last) }
    }

    private func repeatStep() async {
        var idle = interval
        await pause(delay)
        while !Task.isCancelled {
            switch await attempt() {
            case .again: idle = interval
            case .idle:
                await pause(idle)
                idle = min(idle * 2, longest)
            case .after(let duration):
                idle = interval
                await pause(duration)
            case .never: while !Task.isCancelled { try? await Task.sleep(for: .seconds(3600)) }
            case nil: await pause(retry)
            }
        }
    }

    /// Makes a step; `nil`: it failed.
    private func attempt() async -> Next? {
        do { return try await step() } catch {
            guard !Task.isCancelled else { return nil }
            failures.increment()
            logger.warning(
                "\(name) failed; trying again",
                metadata: errorMetadata(error).merging(["service": "\(name)"]) { $1 }
            )
            return nil
        }
    }

    private func pause(_ duration: Duration) async {
        guard duration > .zero else { return }
        if let signal { await signal.wait(upTo: duration) } else { try? await Task.sleep(for: duration) }
    }
}

/// Does the last of a service's work, although its task may be cancelled.
///
/// - Parameters:
///   - limit: the time after which the work is cancelled.
///   - work: what is left to do.
package func finish(within limit: Duration, _ work: @escaping @Sendable () async -> Void) async {
    // A task of its own, which the caller's cancellation does not reach; it is awaited here.
    await Task {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await work() }
            group.addTask { try? await Task.sleep(for: limit) }
            await group.next()
            group.cancelAll()
        }
    }.value
}

/// An error that says itself what the log may show of it.
package protocol LoggedError: Error {
    /// Codes and fixed texts, never a payload.
    var logMetadata: Logger.Metadata { get }
}

extension PostgresError: LoggedError {
    package var logMetadata: Logger.Metadata {
        ["error.code": "\(code.rawValue)", "error.sqlstate": "\(sqlState ?? "")", "error.message": "\(self)"]
    }
}

/// An error for the log: its kind, never its payload.
package func errorMetadata(_ error: any Error) -> Logger.Metadata {
    (error as? any LoggedError)?.logMetadata ?? ["error.code": "\(type(of: error))"]
}
