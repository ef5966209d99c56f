package import Entitlements
package import Jobs

/// Asks the stores about a claimed job.
package struct StoreReader: Sendable {
    package var read: @Sendable (ClaimedJob) async -> Reading

    /// What has to go on beside the reading, until it is cancelled.
    var background: (@Sendable () async -> Void)?

    package init(read: @escaping @Sendable (ClaimedJob) async -> Reading) { self.read = read }
}
