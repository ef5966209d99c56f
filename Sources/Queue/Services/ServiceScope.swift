package import ServiceLifecycle
import Synchronization

/// What the periodic services of a worker share while it runs, and where one process serves several apps, all those of an app.
package final class ServiceScope: Sendable {
    typealias Instant = ContinuousClock.Instant

    /// The scope of the worker whose service runs this task; `nil` where a service runs by itself.
    @TaskLocal package static var current: ServiceScope?

    private struct State {
        var isStopping = false
        var isBusy = false
        var busySince: Instant
        /// When there was something to do last.
        var stirredAt: Instant
        /// Since when the database knows that this process has to be notified; `nil`: it does not.
        var restsSince: Instant?
        /// Whether notifications are heard.
        var isListening = false
    }

    private let state: Mutex<State>
    private let freed = Signal()
    private let awake = Signal()
    private let pulse: Duration?
    private let settling: Duration
    /// Others have their pulses at other instants.
    private let origin: Instant
    private let onRest: @Sendable (Bool) -> Void

    /// Makes a scope whose services rest where nothing happens for `settling`.
    ///
    /// At rest they make their steps `pulse` apart, all together and one after the other, so that an app costs a connection for a
    /// moment only; `nil`: they never rest. `onRest` is called when a rest begins and when it ends, in that order; it must not call back.
    package init(
        pulse: Duration? = nil,
        settling: Duration = .seconds(10),
        onRest: @escaping @Sendable (Bool) -> Void = { _ in }
    ) {
        self.pulse = pulse
        self.onRest = onRest
        self.settling = settling
        // A start is no reason to stay awake: whatever there is to do is found by the first steps.
        state = Mutex(State(busySince: .now, stirredAt: .now - settling * 2))
        origin = .now - (pulse ?? .zero) * Double.random(in: 0..<1)
    }

    /// Whether the worker drains.
    var isStopping: Bool { state.withLock(\.isStopping) }

    // MARK: Rest

    /// Whether services rest where nothing happens.
    package var mayRest: Bool { pulse != nil }

    /// The time between two steps, once nothing has happened for a while and notifications are heard; `nil`: services stay awake.
    ///
    /// The lease keeper goes by it: it tells the database first, and then ``beginRest()``.
    package var wantedPulse: Duration? {
        guard let pulse else { return nil }
        return state.withLock { state in
            !state.isStopping && state.isListening && .now - state.stirredAt > settling ? pulse : nil
        }
    }

    /// The time between two steps at rest; `nil`: there is no rest now.
    package var restingPulse: Duration? {
        pulse.flatMap { pulse in state.withLock { $0.restsSince == nil ? nil : pulse } }
    }

    /// Says that the database notifies from now on: a service rests once it has made one more step.
    package func beginRest() {
        state.withLock { state in
            guard state.isListening, state.restsSince == nil else { return }
            state.restsSince = .now
            // Under the lock: what ends the rest follows what begins it.
            onRest(true)
        }
    }

    /// Says that there is something to do: no service rests now, nor for a while.
    package func stir() { wake { $0.stirredAt = .now } }

    /// Says that notifications are heard from now on; what came before is found by the next steps.
    package func listen() { state.withLock { $0.isListening = true } }

    /// Says that notifications are not heard: services find by reading what there is to do.
    package func stopListening() { wake { $0.isListening = false } }

    private func wake(_ change: (inout State) -> Void) {
        guard pulse != nil else { return }
        let wereResting = state.withLock { state in
            change(&state)
            guard state.restsSince != nil else { return false }
            state.restsSince = nil
            onRest(false)
            return true
        }
        guard wereResting else { return }
        awake.raise()
        freed.raise()
    }

    /// Waits; at rest until the next pulse, until something happens, or for a signal, but no longer than `most`.
    ///
    /// `began`: when the last step did; one that began before the rest is followed by another.
    package static func pause(
        _ duration: Duration,
        after began: ContinuousClock.Instant,
        atMost most: Duration? = nil,
        wokenBy signal: Signal? = nil
    ) async {
        if let scope = current, let pulse = scope.pulse, scope.rests(since: began) {
            await scope.rest(pulse, atMost: most, wokenBy: signal)
        } else if let signal {
            await signal.wait(upTo: duration)
        } else {
            try? await Task.sleep(for: duration)
        }
    }

    private func rests(since began: Instant) -> Bool {
        state.withLock { state in state.restsSince.map { $0 <= began } ?? false }
    }

    private func rest(_ pulse: Duration, atMost most: Duration?, wokenBy signal: Signal?) async {
        let passed = origin.duration(to: .now) / pulse
        let coming = origin + pulse * (passed.rounded(.down) + 1)
        let next = most.map { min(coming, .now + $0) } ?? coming
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.awake.wait(unless: { self.restingPulse == nil }) }
            if let signal { group.addTask { await signal.wait() } }
            group.addTask { try? await Task.sleep(until: next, clock: .continuous) }
            await group.next()
            group.cancelAll()
        }
    }

    // MARK: Turns

    /// How long a step keeps others from theirs at rest.
    private static let longestTurn = Duration.seconds(1)

    /// Makes a step; at rest after those of other services, so that all of them need one connection.
    package static func step<Result>(_ work: () async throws -> Result) async throws -> Result {
        // A `stir` while waiting ends the rest, and the step goes ahead at once.
        while let scope = current, scope.restingPulse != nil {
            if scope.tryBegin() { return try await scope.finishing(work) }
            if scope.state.withLock({ .now - $0.busySince > longestTurn }) { break }
            try await scope.waitForTurn(.milliseconds(100))
        }
        return try await work()
    }

    /// Lets services begin no more steps, but those that jobs in flight need.
    package func stop() {
        state.withLock { $0.isStopping = true }
        wake { _ in }
    }

    /// Does upkeep, or a step at rest, one at a time.
    func alone<Result>(_ work: () async throws -> Result) async throws -> Result {
        while !tryBegin() { try await waitForTurn(.seconds(1)) }
        return try await finishing(work)
    }

    private func finishing<Result>(_ work: () async throws -> Result) async throws -> Result {
        defer {
            state.withLock { $0.isBusy = false }
            freed.raiseForOne()
        }
        return try await work()
    }

    private func waitForTurn(_ most: Duration) async throws {
        await freed.wait(upTo: most)
        try Task.checkCancellation()
    }

    private func tryBegin() -> Bool {
        state.withLock { state in
            guard !state.isBusy else { return false }
            state.isBusy = true
            state.busySince = .now
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
