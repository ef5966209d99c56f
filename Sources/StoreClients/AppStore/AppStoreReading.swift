package import Entitlements

/// Which customer to read, by one of their ids.
package struct AppStoreQuery: Sendable {
    /// An id of a customer.
    package struct Subject: Hashable, Sendable {
        /// A transaction's id or an original one.
        package var id: String
        /// `nil`: not known.
        package var environment: AppStoreEnvironment?
        /// The bundle id of the app that it was sold in; `nil`: not known.
        package var app: String?

        package init(id: String, environment: AppStoreEnvironment? = nil, app: String? = nil) {
            self.id = id
            self.environment = environment
            self.app = app
        }
    }

    package var subject: Subject
    package var lane: Lane
    /// The id comes from a client, not from our own records: what it brings about says little about the store.
    package var isFromClient: Bool
    /// Whether the transaction certainly exists, by a verified proof or our records.
    ///
    /// Where no environment knows it, it is not visible yet, which is a failure that passes; any other unknown id is
    /// simply without an owner.
    package var isProven: Bool
    /// Whether an item with these product keys (`["app_store:PRODUCT"]`) may give access.
    ///
    /// The other purchases of a customer with a subscription that gives access are not asked for.
    package var mayGrant: @Sendable ([String]) -> Bool

    package init(
        _ subject: Subject,
        lane: Lane = .restore,
        isFromClient: Bool = false,
        isProven: Bool = false,
        mayGrant: @escaping @Sendable ([String]) -> Bool = { _ in false }
    ) {
        self.subject = subject
        self.lane = lane
        self.isFromClient = isFromClient
        self.isProven = isProven
        self.mayGrant = mayGrant
    }
}

/// What the App Store said about the customer behind an id.
package struct AppStoreReading: Sendable {
    /// `full` only where the subscriptions and the other purchases were read to the end.
    package var coverage: Coverage
    package var observations: [Observation] = []
    /// Non-renewing subscriptions that were not revoked: their ends are ours to compute.
    package var passes: [SignedTransaction] = []
    /// Every transaction of the customer's that the answers name, by its ids.
    package var transactionIDs: Set<String> = []
    /// Why the reading is not full; the last failure, where there were several.
    package var failure: ReadFailure?
    /// The failure is that the store knows nothing of what certainly exists: it is well, and may be asked for the rest.
    package var isDenied = false
    /// An item was listed, and whether it gives access can't be read; an item that does not verify is one.
    package var hasUnreadable = false
    /// HTTP requests sent.
    package var requests: Int
}

/// What became of writing an account token to a purchase, as records call it.
package enum AppStoreTokenAnswer: String, Hashable, Sendable, CaseIterable {
    case set
    /// A family member's copy takes none.
    case familyShared = "family_shared"
    /// The id is not an original one.
    case notOriginal = "not_original"
    case unknown
    /// Refused for another reason.
    case rejected
}

/// What the number of an order led to.
package enum AppStoreOrder: Sendable {
    case found([SignedTransaction])
    /// No order of this app's has it.
    case invalid
    /// The App Store does not find it, as it finds none of the sandbox.
    case refused
}
