package import ServiceLifecycle
import Synchronization

/// What the periodic services of one worker share while it runs.
package final class ServiceScope: Sendable {
    /// The scope of the worker whose service runs this task; `nil` where a service runs by itself.
    @TaskLocal package static var current: ServiceScope?

    private let state = Mutex((isStopping: false, isBusy: false))
    private let freed = Signal()

    package init() {}

    /// Whether the worker drains.
    var isStopping: Bool { state.withLock(\.isStopping) }

    /// Lets services begin no more steps, but those that jobs in flight need.
    package func stop() { state.withLock { $0.isStopping = true } }

    /// Does some upkeep once no other is under way.
    func alone<Result>(_ work: () async throws -> Result) async throws -> Result {
        while !tryBegin() {
            await freed.wait(upTo: .seconds(1))
            try Task.checkCancellation()
        }
        defer {
            state.withLock { $0.isBusy = false }
            freed.raiseForOne()
        }
        return try await work()
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
