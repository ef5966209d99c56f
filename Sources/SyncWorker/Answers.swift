import Storage
import Synchronization

/// Jobs that have ended and whose outcomes are still to be announced.
///
/// Apart from the writing of batches: the next one must not wait until the last one has been told.
final class Answers: Sendable {
    private let waiting = Mutex<[ApplyReport.Ended]>([])
    /// Raised when there is something to announce.
    let arrived = Signal()

    func add(_ ended: [ApplyReport.Ended]) {
        guard !ended.isEmpty else { return }
        waiting.withLock { $0 += ended }
        arrived.raise()
    }

    /// Everything that waits.
    func takeAll() -> [ApplyReport.Ended] {
        waiting.withLock { waiting in
            defer { waiting = [] }
            return waiting
        }
    }
}
