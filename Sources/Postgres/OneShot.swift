import Synchronization

/// A value that is awaited once, and delivered by the first of a result, a deadline and a cancellation.
final class OneShot<Value: Sendable>: Sendable {
    private enum State {
        /// Leaves for `waiting` or `resolved`.
        case empty
        /// Leaves for `resolved`.
        case waiting(CheckedContinuation<Value, Never>)
        /// Final.
        case resolved(Value)
    }

    private let state = Mutex(State.empty)

    /// Delivers the value, unless another was delivered before.
    func resolve(_ value: Value) {
        let continuation = state.withLock { state -> CheckedContinuation<Value, Never>? in
            if case .resolved = state { return nil }
            defer { state = .resolved(value) }
            if case .waiting(let continuation) = state { return continuation }
            return nil
        }
        continuation?.resume(returning: value)
    }

    /// Awaits the value, whatever the task's cancellation; a caller may resolve from a cancellation handler.
    func wait() async -> Value {
        await withCheckedContinuation { continuation in
            let ready = state.withLock { state -> Value? in
                switch state {
                case .empty:
                    state = .waiting(continuation)
                    return nil
                case .waiting:
                    preconditionFailure("a one-shot has one waiter")
                case .resolved(let value):
                    return value
                }
            }
            if let ready { continuation.resume(returning: ready) }
        }
    }
}
