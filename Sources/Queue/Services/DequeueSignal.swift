import FoundationEssentials

/// Wakes this process's dequeuer.
package struct DequeueSignal: Sendable {
    /// The name under which this process queues restores: it raises the signal itself, before the database notifies it.
    package let sender = UUID().uuidString
    package let signal = Signal()

    package init() {}

    package func raise() { signal.raise() }

    /// Takes a notification of the database, whose payload names the process that queued the job.
    package func receive(_ payload: String) { if payload != sender { raise() } }
}
