package import Logging
import Metrics
import ServiceLifecycle

/// Repeats a step until shutdown: at once while there is more to do, else after a pause.
///
/// A failed step is logged, counted and repeated. A shutdown cancels the running step, so a step must leave nothing half
/// done when it is cancelled.
package struct PeriodicService: Service {
    /// How a service shares its process with others; see ``ServiceScope``.
    package enum Kind: Sendable {
        /// Begins no step once the worker drains.
        case work
        /// As `work`, and one service at a time: upkeep leaves the database's connections to jobs.
        case upkeep
        /// Goes on until its own shutdown: jobs in flight need it.
        case untilEnd
    }

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
        package static func again(ifAny count: Int) -> Next { count > 0 ? .again : .idle }

        /// Works on all items at once, and waits for the last: `again` if there were any, else `idle`.
        package static func handlingAll<Item: Sendable>(
            _ items: [Item],
            _ work: @escaping @Sendable (Item) async -> Void
        ) async -> Next {
            await withDiscardingTaskGroup { group in
                for item in items { group.addTask { await work(item) } }
            }
            return .again(ifAny: items.count)
        }
    }

    let name: String
    private let kind: Kind
    private let rests: Bool
    private let interval: Duration
    private let longest: Duration
    private let delay: Duration
    private let retry: Duration
    private let signal: Signal?
    private let logger: Logger
    private let failures: Counter
    private let step: @Sendable () async throws -> Next

    /// The name stands in logs and metrics, such as `outbox dispatcher`.
    ///
    /// After an idle step `interval` passes, which doubles up to `longest`; before the first one `delay`; after a failed one
    /// `retry`, by default the interval, at least half a second. `signal` ends a pause early. `rests`: whether it waits for the
    /// next pulse where nothing happens; see ``ServiceScope``.
    package init(
        _ name: String,
        _ kind: Kind = .work,
        rests: Bool = true,
        every interval: Duration,
        upTo longest: Duration? = nil,
        after delay: Duration = .zero,
        retryingAfter retry: Duration? = nil,
        wokenBy signal: Signal? = nil,
        logger: Logger,
        step: @escaping @Sendable () async throws -> Next
    ) {
        self.name = name
        self.kind = kind
        self.rests = rests
        self.interval = interval
        self.longest = longest ?? interval
        self.delay = delay
        self.retry = retry ?? max(interval, .milliseconds(500))
        self.signal = signal
        self.logger = logger
        self.step = step
        failures = Counter(
            label: "entitlement_sync_service_failures_total",
            dimensions: [("service", name.replacing(" ", with: "_"))]
        )
    }

    package func run() async { await cancelWhenGracefulShutdown { await repeatStep() } }

    private func repeatStep() async {
        var idle = interval
        await pause(delay)
        while !Task.isCancelled {
            guard kind == .untilEnd || ServiceScope.current?.isStopping != true else { return await untilCancelled() }
            let began = ContinuousClock.now
            switch await attempt() {
            case .again:
                idle = interval
                if kind == .work { ServiceScope.current?.stir() }
            case .idle:
                await rest(idle, after: began)
                idle = min(idle * 2, longest)
            case .after(let duration):
                idle = interval
                await pause(duration)
            case .never: await untilCancelled()
            // No signal ends it: what has just failed would fail again.
            case nil: try? await Task.sleep(for: retry)
            }
        }
    }

    /// Makes a step; `nil`: it failed.
    private func attempt() async -> Next? {
        do {
            if kind == .upkeep, let scope = ServiceScope.current { return try await scope.alone(step) }
            return rests && kind == .work ? try await ServiceScope.step(step) : try await step()
        } catch {
            guard !Task.isCancelled else { return nil }
            failures.increment()
            logger.warning(
                "\(name) failed; trying again",
                metadata: errorMetadata(error).merging(["service": "\(name)"]) { $1 }
            )
            return nil
        }
    }

    private func untilCancelled() async {
        while !Task.isCancelled { try? await Task.sleep(for: .seconds(3600)) }
    }

    private func rest(_ duration: Duration, after began: ContinuousClock.Instant) async {
        if rests {
            await ServiceScope.pause(duration, after: began, wokenBy: signal)
        } else {
            await pause(duration)
        }
    }

    private func pause(_ duration: Duration) async {
        guard duration > .zero else { return }
        if let signal { await signal.wait(upTo: duration) } else { try? await Task.sleep(for: duration) }
    }
}
