import Storage
import Synchronization

/// Jobs that have ended and whose outcomes are still to be announced.
///
/// Apart from the writing of batches: the next one must not wait until the last one has been told.
final class Answers: Sendable {
    private let waiting = Mutex<[ApplyReport.Ended]>([])
    /// Raised when there is something to announce.
    let arrived = Signal()

    /// Adds ends; `isUrgent`: somebody may wait who was not told yet.
    func add(_ ended: [ApplyReport.Ended], isUrgent: Bool = true) {
        guard !ended.isEmpty else { return }
        waiting.withLock { $0 += ended }
        if isUrgent { arrived.raise() }
    }

    /// Everything that waits.
    func takeAll() -> [ApplyReport.Ended] {
        waiting.withLock { waiting in
            defer { waiting = [] }
            return waiting
        }
    }
}
