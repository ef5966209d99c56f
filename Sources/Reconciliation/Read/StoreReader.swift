package import Entitlements
import Queue
package import StoreEvents

/// Asks the stores about a claimed job.
package struct StoreReader: Sendable {
    package var read: @Sendable (ClaimedJob) async -> Reading

    /// Asks the stores who an event is about; `nil`: it is not known how.
    package var resolve: (@Sendable (Inbox.Ask) async -> Inbox.Answer)?

    package init(
        read: @escaping @Sendable (ClaimedJob) async -> Reading,
        resolve: (@Sendable (Inbox.Ask) async -> Inbox.Answer)? = nil
    ) {
        self.read = read
        self.resolve = resolve
    }
}
