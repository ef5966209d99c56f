package import FoundationEssentials

/// Where a job waits; lower numbers are taken first.
package enum JobLane: Int16, Sendable, CaseIterable {
    case restore = 0
    case event = 1
    case sweep = 2
    /// Rows whose workers kept dying run here alone.
    case quarantine = 9
}

/// What a request said beyond its user.
package struct JobRequest: Sendable, Hashable {
    /// The checked proofs as JSON text; `nil` where there are none.
    package var proofs: String?
    package var clientError: String?
    package var productIDs: [String]?
}

/// A job leased to this process.
package struct ClaimedJob: Sendable {
    package var id: UUID
    package var kind: JobKind
    package var lane: JobLane
    /// Since when its row was to be claimed.
    package var due: Instant
    package var userKey: Int64
    /// `nil` after an erasure.
    package var userID: String?
    /// Reads of this job that ended in an error before.
    package var attempt = 0
    /// Processes that died while they held it.
    package var crashes = 0
    /// Why the last try ended; `nil` at the first.
    package var lastError: String?
    /// Since the request, by the database's clock, at the claim.
    package var age = Duration.zero
    /// Since it was put back into the queue, at the claim; `nil` where it has stood there since the request.
    package var requeuedFor: Duration?
    package var sandboxAllowed: Bool
    /// Several things give the user access: a yes to one leaves open what became of the others.
    package var holdsSeveral = false
    package var request = JobRequest()
    /// The database's clock at the claim, and ours just before it was asked: later database times follow from both.
    package var claimedAt: Instant
    package var claimedTick: ContinuousClock.Instant

    package init(
        id: UUID,
        kind: JobKind,
        lane: JobLane,
        due: Instant,
        userKey: Int64,
        userID: String?,
        lastError: String? = nil,
        sandboxAllowed: Bool = false,
        claimedAt: Instant,
        claimedTick: ContinuousClock.Instant
    ) {
        self.id = id
        self.kind = kind
        self.lane = lane
        self.due = due
        self.userKey = userKey
        self.userID = userID
        self.lastError = lastError
        self.sandboxAllowed = sandboxAllowed
        self.claimedAt = claimedAt
        self.claimedTick = claimedTick
    }

    /// Since it was last queued: what is put back begins again.
    package var queuedFor: Duration { requeuedFor.map { min($0, age) } ?? age }

    /// How long it was due when it was claimed.
    package var lateness: Duration { .microseconds(max(claimedAt.microseconds - due.microseconds, 0)) }

    /// The database's time now, never ahead of it: the claim's time and what has passed since its answer.
    package func databaseTime(at tick: ContinuousClock.Instant) -> Instant { claimedAt + (tick - claimedTick) }
}

/// A claimed job whose stores have been asked.
package struct ReadJob: Sendable {
    package var job: ClaimedJob
    package var reading: Reading

    package init(job: ClaimedJob, reading: Reading) {
        self.job = job
        self.reading = reading
    }
}
