import Dispatch

/// Threads for the few calls that block (name lookups, `PQcancel`), away from the cooperative pool.
enum BlockingWork {
    private static let queue = DispatchQueue(label: "postgres.blocking", attributes: .concurrent)

    /// Runs a blocking call on another thread; nil when the deadline or, if `cancellable`, the cancellation came first.
    ///
    /// The call itself cannot be stopped: it goes on alone and its result is dropped.
    static func run<Value: Sendable>(
        until deadline: ContinuousClock.Instant,
        cancellable: Bool,
        _ work: @escaping @Sendable () -> Value
    ) async -> Value? {
        let answer = OneShot<Value?>()
        let timer = Reactor.shared.schedule(at: deadline) { answer.resolve(nil) }
        defer { Reactor.shared.cancel(timer) }
        queue.async { answer.resolve(work()) }
        guard cancellable else { return await answer.wait() }
        return await withTaskCancellationHandler {
            await answer.wait()
        } onCancel: {
            answer.resolve(nil)
        }
    }
}
