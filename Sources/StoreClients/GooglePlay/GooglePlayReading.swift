package import Entitlements

/// Which purchases to read, and what the reader must know to need few requests.
package struct GooglePlayQuery: Sendable {
    /// Purchase tokens; of those that a client named the first 20 are asked for, and a reading of more is never full.
    ///
    /// Never shown, never logged.
    package var tokens: [String]
    /// Tokens of the user's own purchases by what our records know: the walk of a chain stops at one of them.
    package var known: Set<String>
    /// The packages that tokens were sold in, as far as they are known; each other one is asked for in every package.
    package var packages: [ExactText: String] = [:]
    /// The database's time now, to compare expiry times with.
    package var askedAt: Instant
    package var lane: Lane
    /// Whether a client named the tokens: what comes of them then says little about the store.
    package var isFromClient: Bool
    /// Whether an item with these product keys means access.
    package var mayGrant: @Sendable ([String]) -> Bool

    package init(
        tokens: [String],
        known: Set<String> = [],
        askedAt: Instant,
        lane: Lane = .restore,
        isFromClient: Bool = false,
        mayGrant: @escaping @Sendable ([String]) -> Bool = { _ in true }
    ) {
        self.mayGrant = mayGrant
        self.tokens = tokens
        self.known = known
        self.askedAt = askedAt
        self.lane = lane
        self.isFromClient = isFromClient
    }
}

/// What Google Play said about some tokens.
package struct GooglePlayReading: Sendable {
    /// `full` only where every token was answered (unknown and gone are answers) and every chain walked.
    package var coverage: Coverage
    /// Of each chain of purchases the newest one's: apart from each other what gives access and what does not.
    package var observations: [Observation] = []
    /// A purchase, or a part of one, can't be read: whether it gives access is not known.
    package var hasUnreadable = false
    /// Tokens of the query that Google does not know.
    package var unknown: [String] = []
    /// Why the reading is not full; the first failure, where there were several.
    package var failure: ReadFailure?
    /// HTTP requests sent, those for access tokens included.
    package var requests = 0
}

/// What came of an acknowledgement.
package enum GooglePlayAcknowledged: Sendable, CaseIterable {
    case accepted
    /// Google says no, which it also does to what was acknowledged before: the purchase tells.
    case refused
}

/// Whether a purchase still waits for its acknowledgement.
package enum GooglePlayAcknowledgementState: Sendable, CaseIterable {
    case pending
    case acknowledged
    /// Expired or revoked: there is nothing left to acknowledge.
    case over
    /// Google knows nothing of it, or will not tell any more; it forgets no sale within its days, so a later request
    /// may be answered otherwise.
    case unknown
}
