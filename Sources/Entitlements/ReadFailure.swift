/// Why a store gave no usable answer, as far as the rules reason about it.
package struct ReadFailure: Error, Hashable, Sendable {
    package enum Code: String, Sendable, CaseIterable {
        /// The store does not know a purchase that has to exist: it was asked with the wrong credentials, or is in error.
        case unknownToStore = "unknown_to_store"
        case throttled, unavailable, timeout, malformed, locked, unauthorized, rejected
        case unmapped = "product_unmapped"
        case breakerOpen = "breaker_open"
        case budgetExhausted = "budget_exhausted"
        case interrupted
        /// Our records could not be read, or the host's users could not be asked for.
        case recordsUnavailable = "records_unavailable"
        /// The records moved on while the store was asked.
        case overtaken
        /// What was read sufficed for a yes that did not hold: the rest has to be read.
        case incomplete
        /// An event spoke of access a moment ago, and the reading shows none.
        case readLag = "read_lag"
        /// The user's id is one that no store can be asked about: blocked, shared by many, or too long.
        case unusableID = "user_id_unusable"
        /// A proof of a store that no credentials are set for: it can't be checked.
        case storeOff = "store_not_configured"
        /// The account id in a purchase may be derived from another user's id: a walk through all users is under way.
        case ownerPending = "owner_pending"
        /// That walk took longer than a job may wait (`AccountIndex.patience`).
        case ownerUnresolved = "owner_unresolved"
        /// A proof with its store's genuine signature whose certificates were not valid when it was made: whether it counts is
        /// unclear.
        case unclearTrust = "proof_trust_unclear"
        /// The database refuses the job's data.
        case refused = "data_refused"
        /// The host adapter gave a value that its contract does not allow.
        case adapterRefused = "adapter_refused"
        /// Every process that held the job died.
        case crashed
    }

    package var code: Code
    /// The store's own wish, uncapped.
    package var retryAfter: Duration?
    /// Which store, where it is not RevenueCat.
    package var store: Store?

    package init(_ code: Code, retryAfter: Duration? = nil, store: Store? = nil) {
        self.code = code
        self.retryAfter = retryAfter
        self.store = store
    }

    /// Whether it says nothing of any store.
    package var isOurs: Bool { code == .interrupted || code == .recordsUnavailable }

    package var treatment: Treatment { Self.treatments[code] ?? .retry }

    package enum Treatment: Sendable, Hashable {
        /// Counts an attempt, waits, tries again.
        case retry
        /// Waits without counting: no store was asked.
        case wait
        /// Is asked again at once, counting nothing; the second time running it is like a failure.
        case again
        /// Would fail the same way again: parked at once, with an alarm.
        case park
    }

    package static let treatments: [Code: Treatment] = [
        .throttled: .retry,
        .unavailable: .retry,
        .timeout: .retry,
        .malformed: .retry,
        .locked: .retry,
        .unauthorized: .retry,
        .unmapped: .retry,
        .unknownToStore: .retry,
        .rejected: .park,
        .breakerOpen: .wait,
        .budgetExhausted: .wait,
        .interrupted: .wait,
        .recordsUnavailable: .retry,
        .readLag: .wait,
        .overtaken: .again,
        .incomplete: .again,
        .unusableID: .park,
        .storeOff: .park,
        .ownerPending: .wait,
        .ownerUnresolved: .park,
        .unclearTrust: .park,
        .refused: .park,
        .adapterRefused: .park,
        .crashed: .park,
    ]

    /// Whether a job whose last try ended with this code was to be asked again at once.
    package static func isImmediateRetry(_ lastError: String?) -> Bool {
        lastError.flatMap(Code.init).flatMap { treatments[$0] } == .again
    }
}
