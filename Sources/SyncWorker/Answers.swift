import Queue
import Reconciliation
import Synchronization

/// Jobs that have ended and whose outcomes are still to be announced.
///
/// Apart from the writing of batches: the next one must not wait until the last one has been told.
final class Answers: Sendable {
    private struct State {
        var waiting: [ApplyReport.Ended] = []
        var areTold = true
    }

    private let state = Mutex(State())
    /// Raised when there is something to announce.
    let arrived = Signal()

    /// Adds ends; `areTold`: who waited for them knows already.
    func add(_ ended: [ApplyReport.Ended], areTold: Bool = false) {
        guard !ended.isEmpty else { return }
        state.withLock { state in
            state.waiting += ended
            state.areTold = state.areTold && areTold
        }
        arrived.raise()
    }

    /// Whether nobody is known to wait for any of them.
    var areTold: Bool { state.withLock { $0.areTold } }

    /// Everything that waits.
    func takeAll() -> [ApplyReport.Ended] {
        state.withLock { state in
            defer { state = State() }
            return state.waiting
        }
    }
}
