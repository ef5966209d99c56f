import Synchronization

/// Values that are made once for each key, by whoever asks first, while the others wait.
actor Once<Key: Hashable & Sendable, Value: Sendable> {
    private enum Slot {
        /// Leaves for `made`.
        case making([CheckedContinuation<Result<Value, any Error>, Never>])
        /// Final; a failure too, which would only happen again.
        case made(Result<Value, any Error>)
    }

    private var slots: [Key: Slot] = [:]

    /// The value for a key; made by the closure if this is the first to ask.
    func value(for key: Key, _ make: @Sendable () async throws -> Value) async throws -> Value {
        switch slots[key] {
        case .made(let result):
            return try result.get()
        case .making(let waiters):
            let result = await withCheckedContinuation { slots[key] = .making(waiters + [$0]) }
            return try result.get()
        case nil:
            slots[key] = .making([])
            let result: Result<Value, any Error>
            do {
                result = .success(try await make())
            } catch {
                result = .failure(error)
            }
            if case .making(let waiters) = slots.updateValue(.made(result), forKey: key) {
                for waiter in waiters { waiter.resume(returning: result) }
            }
            return try result.get()
        }
    }
}

/// Numbers from 1.
final class Counter: Sendable {
    private let last = Mutex(0)

    func next() -> Int {
        last.withLock { last in
            last += 1
            return last
        }
    }
}
