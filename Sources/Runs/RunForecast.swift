import FoundationEssentials

/// When runs will end, by how fast they went and how fast the stores may be asked.
package struct RunForecast: Sendable, Hashable {
    /// Requests a minute that sweeps may send to the store that every user is read from; `nil`: there is no limit.
    package var requestsPerMinute: Double?
    /// Requests a user's reading takes, where nothing is known of them.
    package static let requestsPerUser = 1.2
    /// The share kept for restores and support, below 1: background jobs have it only while those need none.
    package var reserved: Double

    package init(requestsPerMinute: Double?, reserved: Double = 0) {
        self.requestsPerMinute = requestsPerMinute
        self.reserved = reserved
    }

    /// Users a minute at most; `nil`: there is no limit.
    package var usersPerMinute: Int? { requestsPerMinute.map { max(1, Int($0 / Self.requestsPerUser)) } }

    /// Requests that checks may count on within a day; `nil`: there is no limit.
    package var dayRequests: Double? { requestsPerMinute.map { max($0 * (1 - reserved) * 1440, 1) } }

    /// What a day's checks need of what the stores' limits leave them, at most 1 if the day suffices; `nil`: no limit.
    package func dayRatio(checks: Int64) -> Double? { dayRequests.map { Double(checks) * Self.requestsPerUser / $0 } }

    /// For how long a run has to be watched before its own pace says more than the limit.
    private static let watched: Double = 20

    /// Seconds until a run's end; `nil`: its users are still being counted, or nothing can be said yet.
    ///
    /// `read`: its users who were read so far; `curve`: how far it had come lately, oldest first.
    package func secondsLeft(of run: RunRecord, read: Int64, _ curve: [RunRecord.Point]) -> Double? {
        guard let total = run.total else { return nil }
        let left = max(total - read - run.skipped, 0)
        guard left > 0 else { return 0 }
        // Of a dry run nothing is known between the ends of its stretches; the first takes minutes under a limit.
        if !run.isDry, let first = curve.first, let last = curve.last,
            last.at.timeIntervalSince(first.at) >= Self.watched
        {
            // One that stands still has no end.
            return Self.pace(of: curve).map { Double(left) / $0 }
        }
        // A planner that has just taken over knows the run's own curve alone.
        if let pace = Self.pace(of: run.progress) { return Double(left) / pace }
        return requestsPerMinute.map { Double(left) * Self.requestsPerUser / $0 * 60 }
    }

    /// Users a second, over the younger half of what is known.
    private static func pace(of curve: [RunRecord.Point]) -> Double? {
        guard let last = curve.last, let first = curve.first else { return nil }
        let middle = first.at.addingTimeInterval(last.at.timeIntervalSince(first.at) / 2)
        let from = curve.last { $0.at <= middle } ?? first
        let seconds = last.at.timeIntervalSince(from.at)
        guard seconds >= watched / 2, last.users > from.users else { return nil }
        return Double(last.users - from.users) / seconds
    }
}
