import Synchronization

/// Lets a few begin at a time; the others wait for their turn, first come, first served.
final class StartTurns: Sendable {
    private struct State {
        var free: Int
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    private let state: Mutex<State>

    init(_ most: Int) { state = Mutex(State(free: most)) }

    /// Waits for a turn, to be given back with ``giveBack()``; also in a cancelled task, whose turn comes as soon.
    func take() async {
        await withCheckedContinuation { continuation in
            let isFree = state.withLock { state in
                guard state.free > 0 else {
                    state.waiting.append(continuation)
                    return false
                }
                state.free -= 1
                return true
            }
            if isFree { continuation.resume() }
        }
    }

    func giveBack() {
        let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
            guard state.waiting.isEmpty else { return state.waiting.removeFirst() }
            state.free += 1
            return nil
        }
        next?.resume()
    }
}

/// A turn that is given back once, however often it ends.
final class StartTurn: Sendable {
    private let turns: StartTurns
    private let isHeld = Atomic(true)

    init(_ turns: StartTurns) { self.turns = turns }

    func end() { if isHeld.exchange(false, ordering: .relaxed) { turns.giveBack() } }
}
