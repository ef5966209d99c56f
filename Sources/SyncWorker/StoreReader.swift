package import Entitlements
package import Jobs

/// Asks the stores about a claimed job.
package struct StoreReader: Sendable {
    package var read: @Sendable (ClaimedJob) async -> Reading

    package init(read: @escaping @Sendable (ClaimedJob) async -> Reading) { self.read = read }
}
