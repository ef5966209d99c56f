import Synchronization

/// Lets one sign-in at a time derive what a password shows, and one of each address: from known browsers first, and each kind in the
/// order in which they came.
///
/// Each takes a core for a third of a second, and anybody can ask.
final class SignInGate: Sendable {
    /// Those who wait, of each kind; more are sent away.
    private static let mostWaiting = 16
    private static let patience = Duration.seconds(10)

    private struct Waiter {
        var number: Int
        var isKnown: Bool
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
    /// A second sign-in from an address is refused while the first waits or runs. `isKnown`: the name's operator has
    /// signed in with this browser of late.
    ///
    /// - Returns: `nil`: too many others are at it, or one from the same address.
    func pass<Result>(
        from address: String,
        isKnown: Bool,
        _ body: () async throws -> Result
    ) async throws -> Result? {
        guard state.withLock({ $0.addresses.insert(address).inserted }) else { return nil }
        defer { state.withLock { _ = $0.addresses.remove(address) } }
        guard await enter(isKnown: isKnown) else {
            try Task.checkCancellation()
            return nil
        }
        defer { leave() }
        return try await body()
    }

    private func enter(isKnown: Bool) async -> Bool {
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
                        let alike = state.waiting.count { $0.isKnown == isKnown }
                        guard alike < Self.mostWaiting, !Task.isCancelled else { return false }
                        let place = isKnown ? state.waiting.firstIndex { !$0.isKnown } : nil
                        state.waiting.insert(
                            Waiter(number: number, isKnown: isKnown, continuation: continuation),
                            at: place ?? state.waiting.endIndex
                        )
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
