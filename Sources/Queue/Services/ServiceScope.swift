package import ServiceLifecycle
import Synchronization

/// What the periodic services of one worker share while it runs.
package final class ServiceScope: Sendable {
    typealias Instant = ContinuousClock.Instant

    /// The scope of the worker whose service runs this task; `nil` where a service runs by itself.
    @TaskLocal package static var current: ServiceScope?

    private struct State {
        var isStopping = false
        var isBusy = false
        /// When there was something to do last.
        var stirredAt: Instant
    }

    private let state: Mutex<State>
    private let freed = Signal()
    private let stirred = Signal()
    private let pulse: Duration?
    private let settling: Duration
    /// Others have their pulses at other instants.
    private let origin: Instant

    /// Makes a scope whose services rest where nothing happens for `settling`; they begin so, each with one step.
    ///
    /// At rest they make their steps `pulse` apart, all together and one after the other, so that an app costs a connection for a
    /// moment only; `nil`: they never rest.
    package init(pulse: Duration? = nil, settling: Duration = .seconds(10)) {
        self.pulse = pulse
        self.settling = settling
        state = Mutex(State(stirredAt: .now - settling * 2))
        origin = .now - (pulse ?? .zero) * Double.random(in: 0..<1)
    }

    /// Whether the worker drains.
    var isStopping: Bool { state.withLock(\.isStopping) }

    // MARK: Rest

    /// The time between two steps at rest; `nil`: something happens, or did a moment ago.
    package var restingPulse: Duration? {
        guard let pulse else { return nil }
        return state.withLock { !$0.isStopping && .now - $0.stirredAt > settling } ? pulse : nil
    }

    /// Says that there is something to do: no service rests now, nor for a while.
    package func stir() {
        guard pulse != nil else { return }
        let wereResting = state.withLock { state in
            defer { state.stirredAt = .now }
            return .now - state.stirredAt > settling
        }
        guard wereResting else { return }
        stirred.raise()
        freed.raise()
    }

    /// Has services that rest make one step now.
    package func nudge() { if pulse != nil { stirred.raise() } }

    /// Waits; at rest until the next pulse, until something happens, or for a signal, but no longer than `most`.
    package static func pause(_ duration: Duration, atMost most: Duration? = nil, wokenBy signal: Signal? = nil) async {
        if let scope = current, let pulse = scope.restingPulse {
            await scope.rest(pulse, atMost: most, wokenBy: signal)
        } else if let signal {
            await signal.wait(upTo: duration)
        } else {
            try? await Task.sleep(for: duration)
        }
    }

    /// Makes a step; at rest once no other service makes one, so that all of them need one connection.
    package static func step<Result>(_ work: () async throws -> Result) async throws -> Result {
        // What happens meanwhile ends the wait for others' turns with the rest.
        while let scope = current, scope.restingPulse != nil {
            if scope.tryBegin() { return try await scope.finishing(work) }
            try await scope.waitForTurn()
        }
        return try await work()
    }

    private func rest(_ pulse: Duration, atMost most: Duration?, wokenBy signal: Signal?) async {
        let passed = origin.duration(to: .now) / pulse
        let coming = origin + pulse * (passed.rounded(.down) + 1)
        let next = most.map { min(coming, .now + $0) } ?? coming
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.stirred.wait() }
            if let signal { group.addTask { await signal.wait() } }
            group.addTask { try? await Task.sleep(until: next, clock: .continuous) }
            await group.next()
            group.cancelAll()
        }
    }

    /// Lets services begin no more steps, but those that jobs in flight need.
    package func stop() {
        state.withLock { $0.isStopping = true }
        nudge()
    }

    /// Does some work once no other is under way.
    func alone<Result>(_ work: () async throws -> Result) async throws -> Result {
        while !tryBegin() { try await waitForTurn() }
        return try await finishing(work)
    }

    private func finishing<Result>(_ work: () async throws -> Result) async throws -> Result {
        defer {
            state.withLock { $0.isBusy = false }
            freed.raiseForOne()
        }
        return try await work()
    }

    private func waitForTurn() async throws {
        await freed.wait(upTo: .seconds(1))
        try Task.checkCancellation()
    }

    private func tryBegin() -> Bool {
        state.withLock { state in
            guard !state.isBusy else { return false }
            state.isBusy = true
            return true
        }
    }
}

/// Does the last of a service's work, although its task may be cancelled; after `limit` the work is cancelled.
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

/// A service by the name of its type alone, a periodic one by its own name.
///
/// A service group writes its services into the log, and the description of a struct shows all that it holds, keys included.
package struct NamedService: Service, CustomStringConvertible {
    private let service: any Service

    package init(_ service: any Service) { self.service = service }

    package var description: String { (service as? PeriodicService)?.name ?? "\(type(of: service))" }

    package func run() async throws { try await service.run() }
}
