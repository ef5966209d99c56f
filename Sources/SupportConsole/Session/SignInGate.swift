import Synchronization

/// Lets one sign-in at a time derive what a password shows, in the order in which they came, and one of each address.
///
/// Each takes a core for a third of a second, and anybody can ask.
final class SignInGate: Sendable {
    /// Those who wait; more are sent away.
    private static let mostWaiting = 16
    private static let patience = Duration.seconds(10)

    private struct Waiter {
        var number: Int
        var continuation: CheckedContinuation<Bool, Never>
    }

    private struct State {
        var isTaken = false
        var waiting: [Waiter] = []
        /// Of those who wait, and of whose turn it is.
        var addresses: Set<String> = []
        var nextNumber = 0
    }

    private let state = Mutex(State())

    /// Runs a body when it is its turn.
    ///
    /// - Parameters:
    ///   - address: the client's; a second sign-in from it is refused while the first waits or runs.
    ///   - body: what to do.
    /// - Returns: what the body returns; `nil`: too many others are at it, or one from the same address.
    /// - Throws: what the body throws; `CancellationError`.
    func pass<Result>(from address: String, _ body: () async throws -> Result) async throws -> Result? {
        guard state.withLock({ $0.addresses.insert(address).inserted }) else { return nil }
        defer { state.withLock { _ = $0.addresses.remove(address) } }
        guard await enter() else {
            try Task.checkCancellation()
            return nil
        }
        defer { leave() }
        return try await body()
    }

    private func enter() async -> Bool {
        let number = state.withLock { state in
            state.nextNumber += 1
            return state.nextNumber
        }
        return await withTaskGroup(of: Void.self) { group in
            group.addTask { [self] in
                try? await Task.sleep(for: Self.patience)
                giveUp(number)
            }
            defer { group.cancelAll() }
            return await withTaskCancellationHandler {
                await withCheckedContinuation { continuation in
                    let answer = state.withLock { state -> Bool? in
                        guard state.isTaken || !state.waiting.isEmpty else {
                            state.isTaken = true
                            return true
                        }
                        guard state.waiting.count < Self.mostWaiting, !Task.isCancelled else { return false }
                        state.waiting.append(Waiter(number: number, continuation: continuation))
                        return nil
                    }
                    if let answer { continuation.resume(returning: answer) }
                }
            } onCancel: {
                giveUp(number)
            }
        }
    }

    private func giveUp(_ number: Int) {
        let waiter = state.withLock { state in
            state.waiting.firstIndex { $0.number == number }.map { state.waiting.remove(at: $0) }
        }
        waiter?.continuation.resume(returning: false)
    }

    private func leave() {
        let next = state.withLock { state -> Waiter? in
            guard !state.waiting.isEmpty else {
                state.isTaken = false
                return nil
            }
            return state.waiting.removeFirst()
        }
        next?.continuation.resume(returning: true)
    }
}
