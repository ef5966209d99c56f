import Synchronization

/// How many requests a minute each address may make of the console; enough for a team behind one address.
final class RequestPace: Sendable {
    private static let most = 600
    /// Addresses that are counted at once; beyond it all begin at zero.
    private static let mostAddresses = 10_000

    private struct State {
        var began = ContinuousClock.now
        var counts: [String: Int] = [:]
    }

    private let state = Mutex(State())

    /// Counts a request, and says whether it is within the limit.
    func takes(_ address: String) -> Bool {
        let now = ContinuousClock.now
        return state.withLock { state in
            if now - state.began >= .seconds(60) || state.counts.count >= Self.mostAddresses {
                state = State(began: now)
            }
            let count = (state.counts[address] ?? 0) + 1
            state.counts[address] = count
            return count <= Self.most
        }
    }
}
