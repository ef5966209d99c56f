import FoundationEssentials
package import Logging
package import Postgres

/// Wakes this process's dequeuer.
package struct DequeueSignal: Sendable {
    /// The name under which this process queues restores: it raises the signal itself, before the database notifies it.
    package let sender = UUID().uuidString
    package let signal = Signal()

    package init() {}

    package func raise() { signal.raise() }

    /// Takes a notification of the database, whose payload names the process that queued the job.
    package func receive(_ payload: String) { if payload != sender { raise() } }

    /// Wakes the dequeuer when another process queues a job.
    ///
    /// A notification is a hint; polling finds what it misses.
    package func service(_ listener: PostgresListener, logger: Logger) -> PeriodicService {
        PeriodicService("job listener", .untilEnd, every: .seconds(60), logger: logger) {
            try await listener.run(
                channels: ["entitlement_sync_wake"],
                onNotification: { receive($0.payload) },
                onConnected: { raise() }
            )
            return .idle
        }
    }
}
