import Synchronization

/// A wake-up that is kept until a task waits for it: signals coalesce, and none is lost.
package final class Signal: Sendable {
    private struct State {
        package var isRaised = false
        package var nextID = 0
        package var waiting: [Int: CheckedContinuation<Void, Never>] = [:]
    }

    private let state = Mutex(State())

    package init() {}

    /// How many wait.
    package var waiterCount: Int { state.withLock { $0.waiting.count } }

    /// Wakes every waiter, or the next one to come.
    package func raise() {
        let waiting = state.withLock { state in
            let waiting = state.waiting
            state.waiting = [:]
            state.isRaised = waiting.isEmpty
            return waiting
        }
        for continuation in waiting.values { continuation.resume() }
    }

    /// Wakes one waiter, or the next one to come.
    package func raiseForOne() {
        let continuation = state.withLock { state in
            guard let id = state.waiting.keys.first else {
                state.isRaised = true
                return nil as CheckedContinuation<Void, Never>?
            }
            return state.waiting.removeValue(forKey: id)
        }
        continuation?.resume()
    }

    /// Drops a wake-up that no task has waited for.
    package func lower() { state.withLock { $0.isRaised = false } }

    /// Waits for a signal, for the time to pass, or for the task's cancellation, whichever comes first.
    package func wait(upTo limit: Duration) async {
        guard limit > .zero else { return }
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.wait() }
            group.addTask { try? await Task.sleep(for: limit, tolerance: limit / 10) }
            await group.next()
            group.cancelAll()
        }
    }

    /// Waits for a signal or for the task's cancellation.
    ///
    /// `isOver` is asked once more where the wait begins: what is changed before a ``raise()`` is seen there, or ends the wait.
    package func wait(unless isOver: () -> Bool = { false }) async {
        let id = state.withLock { state in
            state.nextID += 1
            return state.nextID
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let goesOn = state.withLock { state in
                    if state.isRaised {
                        state.isRaised = false
                        return true
                    }
                    if Task.isCancelled || isOver() { return true }
                    state.waiting[id] = continuation
                    return false
                }
                if goesOn { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: id) }?.resume()
        }
    }
}
