import Foundation
import UserRequests

/// Waits for jobs by polling; the answer is always `job_status`.
struct Waiting {
    var requests: Requests

    /// Waits until every job has ended.
    ///
    /// `progress`: hears how many have ended.
    /// Returns whether all ended within the time.
    func untilEnded(_ ids: [UUID], within limit: Duration?, progress: (Int) -> Void) async throws -> Bool {
        let clock = ContinuousClock()
        let deadline = limit.map { clock.now + $0 }
        var left = ids
        var pause = Duration.milliseconds(10)
        while true {
            let statuses = try await requests.status(Array(left.prefix(1000)))
            let ended = Set(statuses.filter(\.hasEnded).map(\.id))
            left.removeAll { ended.contains($0) }
            progress(ids.count - left.count)
            if left.isEmpty { return true }
            if let deadline, clock.now >= deadline { return false }
            pause = ended.isEmpty ? min(pause * 2, .milliseconds(250)) : .milliseconds(10)
            try await Task.sleep(for: deadline.map { min(pause, max($0 - clock.now, .zero)) } ?? pause)
        }
    }
}
