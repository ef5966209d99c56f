import Synchronization

/// Work on many values, some at a time.
enum Lanes {
    /// Hands values out to at most three tasks side by side.
    ///
    /// - Parameters:
    ///   - values: what there is to do, in the order in which it is taken up.
    ///   - work: what each task does until nothing more is to be taken; it opens a database of its own.
    /// - Throws: what a task threw, after all have ended.
    static func sideBySide<Value: Sendable>(
        _ values: [Value],
        _ work: @escaping @Sendable (_ take: @escaping @Sendable () -> Value?) async throws -> Void
    ) async throws {
        let untaken = Untaken(values)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<min(3, values.count) {
                group.addTask { try await work { untaken.take() } }
            }
            try await group.waitForAll()
        }
    }

    private final class Untaken<Value: Sendable>: Sendable {
        private let values: Mutex<ArraySlice<Value>>

        init(_ values: [Value]) { self.values = Mutex(values[...]) }

        func take() -> Value? { values.withLock { $0.popFirst() } }
    }
}

/// A sum to which every task adds.
final class Sum: Sendable {
    private let sum = Atomic(0)

    var value: Int { sum.load(ordering: .relaxed) }

    func add(_ number: Int) { sum.add(number, ordering: .relaxed) }
}
