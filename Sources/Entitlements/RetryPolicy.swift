/// When a job that got no answer is tried again, and when it is given up.
package struct RetryPolicy: Hashable, Sendable {
    /// Reads that ended in an error, at most; at least 1.
    package var maxAttempts: Int
    package var backoffBase: Duration
    package var backoffCap: Duration
    /// Counted from when the job was last queued; ends a job only after a read that ended in an error.
    package var maxAge: Duration

    package init(maxAttempts: Int, backoffBase: Duration, backoffCap: Duration, maxAge: Duration) {
        self.maxAttempts = maxAttempts
        self.backoffBase = backoffBase
        self.backoffCap = backoffCap
        self.maxAge = maxAge
    }

    package enum Next: Hashable, Sendable {
        case again(after: Duration, attempt: Int)
        case dead(attempt: Int)
    }

    /// Decides what follows a failed read: a wait, at least the store's own wish (capped), or the end.
    ///
    /// `attempt`: reads of this job that failed before. `age`: since it was last queued. `jitter`: from 0 to 1. `isRepeated`:
    /// the try before this one was to be asked again at once as well; a free second try is free once.
    package func next(after failure: ReadFailure, attempt: Int, age: Duration, jitter: Double, isRepeated: Bool = false)
        -> Next
    {
        if failure.treatment == .again, !isRepeated { return .again(after: .zero, attempt: attempt) }
        // A wait in which no store was asked says nothing about the job, however old it is.
        let counted = failure.treatment == .wait ? attempt : attempt + 1
        if failure.treatment == .park || failure.treatment != .wait && (counted >= maxAttempts || age >= maxAge) {
            return .dead(attempt: counted)
        }
        let doubled = backoffBase * Double(UInt64(1) << UInt64(min(max(counted - 1, 0), 40)))
        let spread = min(doubled, backoffCap) * (0.5 + 0.5 * min(max(jitter, 0), 1))
        let wished = min(failure.retryAfter ?? .zero, max(backoffCap, .seconds(60)))
        // Each try asks the other stores again, so an old job is tried less often.
        let patience = failure.code == .breakerOpen ? min(age / 8, backoffCap) : .zero
        return .again(after: max(spread, wished, patience), attempt: counted)
    }
}
