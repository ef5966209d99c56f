package import FoundationEssentials

package struct JobEnd: Sendable {
    package enum State: String, Sendable { case done, dead, canceled }

    package var id: UUID
    package var userKey: Int64
    package var kind: JobKind
    package var state: State
    package var outcome: Outcome?
    package var messageKey: MessageKey?
    package var ticketID: Int64?
    package var attempt: Int
    package var lastError: String?
    /// What stands for a decision of its own, where the job only confirmed one.
    package var confirmation: Confirmation?

    package init(id: UUID, userKey: Int64, kind: JobKind, state: State, outcome: Outcome?, attempt: Int) {
        self.id = id
        self.userKey = userKey
        self.kind = kind
        self.state = state
        self.outcome = outcome
        self.attempt = attempt
    }

    package init(_ job: ClaimedJob, _ state: State, outcome: Outcome?) {
        self.init(
            id: job.id,
            userKey: job.userKey,
            kind: job.kind,
            state: state,
            outcome: outcome,
            attempt: job.attempt
        )
    }

    package struct Confirmation: Sendable, Hashable {
        /// The number among decisions.
        package var id: Int64
        package var decision: Int64

        package init(id: Int64, decision: Int64) {
            self.id = id
            self.decision = decision
        }
    }
}

package struct JobRetry: Sendable {
    package var userKey: Int64
    package var kind: JobKind
    package var after: Duration
    package var attempt: Int
    package var error: String
}
