import Synchronization

/// How many of something each client holds at once, by address as ``TrustedProxies`` names it.
package final class ClientCounts: Sendable {
    private let most: Int
    private let counts = Mutex<[String: Int]>([:])

    package init(most: Int) { self.most = most }

    /// Counts one more; `false`: the client holds as many as it may, and nothing was counted.
    package func take(_ client: String) -> Bool {
        counts.withLock { counts in
            let count = counts[client] ?? 0
            guard count < most else { return false }
            counts[client] = count + 1
            return true
        }
    }

    package func giveBack(_ client: String) {
        counts.withLock { counts in
            let left = (counts[client] ?? 1) - 1
            counts[client] = left > 0 ? left : nil
        }
    }
}
