import Synchronization

/// Lets one sign-in at a time derive what a password shows: each takes a core for a third of a second, and anybody can ask.
final class SignInGate: Sendable {
    /// Those who wait; more are sent away.
    private static let mostWaiting = 16
    private static let patience = Duration.seconds(10)

    private struct State {
        var isTaken = false
        var waiting = 0
    }

    private let state = Mutex(State())

    /// Runs a body when it is its turn.
    ///
    /// - Returns: what the body returns; `nil`: too many others are at it.
    /// - Throws: what the body throws; `CancellationError`.
    func pass<Result>(_ body: () async throws -> Result) async throws -> Result? {
        guard try await enter() else { return nil }
        defer { state.withLock { $0.isTaken = false } }
        return try await body()
    }

    private func enter() async throws -> Bool {
        let mayWait = state.withLock { state in
            guard state.waiting < Self.mostWaiting else { return false }
            state.waiting += 1
            return true
        }
        guard mayWait else { return false }
        defer { state.withLock { $0.waiting -= 1 } }
        let ends = ContinuousClock.now + Self.patience
        while true {
            let isOurs = state.withLock { state in
                guard !state.isTaken else { return false }
                state.isTaken = true
                return true
            }
            if isOurs { return true }
            guard ContinuousClock.now < ends else { return false }
            try await Task.sleep(for: .milliseconds(50))
        }
    }
}
