package import FoundationEssentials

/// A name by which a store, or RevenueCat, knows a purchase; unique in (store, environment).
package struct PurchaseIdentifier: Hashable, Comparable, Sendable {
    package var value: String
    package var store: String
    package var environment: String
    /// `revenuecat_id` or `store_id`.
    package var kind: String

    package init(value: String, store: String, environment: String, kind: String) {
        self.value = value
        self.store = store
        self.environment = environment
        self.kind = kind
    }

    package static func < (left: Self, right: Self) -> Bool { left.key < right.key }

    package static func == (left: Self, right: Self) -> Bool {
        left.key == right.key && left.kind.isExactly(right.kind)
    }

    package func hash(into hasher: inout Hasher) {
        key.hash(into: &hasher)
        hasher.combineExactly(kind)
    }

    /// Whether it opens the purchase to any holder of it.
    package var isSecret: Bool { kind == "purchase_token" }

    package var key: PurchaseIdentifierKey { .init(value: value, store: store, environment: environment) }
}

/// What makes an identifier unique: its bytes, as in the database.
package struct PurchaseIdentifierKey: Hashable, Comparable, Sendable {
    package var value: String
    package var store: String
    package var environment: String

    package init(value: String, store: String, environment: String) {
        self.value = value
        self.store = store
        self.environment = environment
    }

    package static func == (left: Self, right: Self) -> Bool {
        left.value.isExactly(right.value) && left.store.isExactly(right.store)
            && left.environment.isExactly(right.environment)
    }

    package static func < (left: Self, right: Self) -> Bool {
        let order = left.value.compareExactly(to: right.value)
        guard order == 0 else { return order < 0 }
        let stores = left.store.compareExactly(to: right.store)
        return stores != 0 ? stores < 0 : left.environment.compareExactly(to: right.environment) < 0
    }

    package func hash(into hasher: inout Hasher) {
        hasher.combineExactly(value)
        hasher.combineExactly(store)
        hasher.combineExactly(environment)
    }
}

/// The owner that an item names which was read for a user.
package enum NamedOwner: Hashable, Sendable {
    // RevenueCat's word, which names customers.
    /// The user we asked for, directly or through an alias that leads to no other user.
    case askedUser
    /// An anonymous customer whose aliases do not hold our user.
    case anonymous
    /// Another of our users, who shares the store's customer record with the one we asked for.
    case otherUser(id: String)

    // The stores' own, which know accounts of theirs and at most an id that the app gave them.
    /// The app's id in the purchase is the asked user's.
    case account
    /// The app's id in the purchase is another user's.
    case otherAccount(id: String)
    /// RevenueCat, asked about it, names another customer.
    case heldElsewhere(id: String)
    /// Nothing names an owner.
    case unnamed
    /// Nothing names an owner, and the store's rules let no proof stand in for that.
    case unattributable
}

/// One verified read of one item a store holds.
package struct Observation: Hashable, Sendable {
    package enum Kind: String, Sendable, CaseIterable {
        case subscription
        case oneTime = "one_time"
    }

    /// Who said it.
    package var source: Store
    package var kind: Kind
    /// The store's raw name, `app_store` and `play_store` among them; unknown names are kept.
    package var store: String
    /// The raw environment; only `production` counts without an allow-list entry.
    package var environment: String
    package var identifiers: [PurchaseIdentifier]
    package var productID: String?
    /// The lookup keys of the entitlements the item carries.
    package var entitlements: [String]
    package var status: StoreStatus
    /// The store's own answer; `nil` where it gives none (one-time purchases).
    package var givesAccess: Bool?
    /// The store waits for the money, whatever the status.
    package var isPaymentPending = false
    package var renewal: String?
    package var periodStartsAt: Instant?
    package var periodEndsAt: Instant?
    /// The raw ownership; `purchased` and `family_shared` are known.
    package var ownership: String
    package var owner: NamedOwner
    /// The asked user has shown a proof of it, which its store has verified.
    package var isSubmitted = false
    /// An operator names the asked user as its owner, in a file that another operator has approved.
    package var isImported = false
    /// The id that the app gave the store for the buyer, as the store tells it; never shown, never logged.
    package var accountID: String?
    /// By which of its identifiers the store is asked again; `nil`: it is not asked about single purchases.
    package var lookupID: String?
    /// The account of the store in whose lists it stands.
    package var storeAccount: StoreAccount?
    /// The store's own name of the app that it was sold in: a bundle id or a package; `nil`: the store itself did not say.
    package var storeApp: String?
    /// The project of RevenueCat's that listed it.
    package var revenueCatProject: String?
    /// When it was bought first, whatever was renewed or restored since.
    package var boughtAt: Instant?
    /// What Google Play waits for before it keeps the sale.
    package var acknowledgement: Acknowledgement?
    /// When something changes by itself before the period's end (a pause, a part of it): only plans a check.
    package var changesAt: Instant?
    /// The store itself says of a one-time purchase that it ends, and does not tell when.
    package var isLimited = false
    /// The store's own version of what it said: when it signed or fetched it.
    package var statedAt: Instant?
    /// SHA-256 over the facts.
    package var payloadHash: [UInt8] = []

    package init(
        kind: Kind,
        store: String,
        environment: String,
        identifiers: [PurchaseIdentifier],
        entitlements: [String],
        status: StoreStatus,
        givesAccess: Bool? = nil,
        ownership: String = "purchased",
        owner: NamedOwner = .askedUser,
        source: Store = .revenueCat
    ) {
        self.source = source
        self.kind = kind
        self.store = store
        self.environment = environment
        self.identifiers = identifiers.sorted()
        self.entitlements = entitlements
        self.status = status
        self.givesAccess = givesAccess
        self.ownership = ownership
        self.owner = owner
    }

    /// The id by which operators and users know the purchase; never one that would open it to its reader.
    package var spokenID: String? {
        let spoken = identifiers.first { $0.kind == "order_id" } ?? identifiers.first { $0.kind == "store_id" }
        if source == .revenueCat { return spoken?.value ?? identifiers.first?.value }
        return source == .googlePlay ? spoken?.value : lookupID ?? spoken?.value
    }

    package var isFamilyShared: Bool { ownership == "family_shared" }

    /// Whether the store has said that the period's end is final.
    package var announcesEnd: Bool { renewal.map(Entitlements.announcesEnd) ?? false }
}

/// Whether a store's word on the renewal says that there will be none.
func announcesEnd(_ renewal: String) -> Bool { renewal == "will_not_renew" || renewal == "will_pause" }

/// Tells whether two items of a reading belong to one account of a store: no fact of a purchase, and only kept as a hash.
package struct StoreAccount: Hashable, Sendable {
    /// The id that the store was asked for: all items of one answer belong to one account.
    package var answer: String
    /// The store's own name for the account in this app, where it gives one; never shown, never logged.
    package var id: String?
    /// The keyed hash under which our records know it, once they were asked.
    package var hash: UUID?

    package init(answer: String, id: String? = nil) {
        self.answer = answer
        self.id = id
    }
}

/// The store account of the device, as a verified app transaction names it.
package struct SubmittedAccount: Hashable, Sendable {
    /// The store's own name for the account in this app; never shown, never logged.
    package var id: String
    /// As in the ledger.
    package var environment: String
    /// The bundle id.
    package var app: String
    /// The keyed hash under which our records know it, once they were asked.
    package var hash: UUID?

    package init(id: String, environment: String, app: String) {
        self.id = id
        self.environment = environment
        self.app = app
    }

    package var isSandbox: Bool { environment != "production" }
}

/// A sale that Google Play takes back unless it is acknowledged in time.
package struct Acknowledgement: Hashable, Sendable {
    package var productID: String
    /// The purchase token; never shown, never logged.
    package var token: String
    package var kind: Observation.Kind
    /// When Google Play refunds and revokes it.
    package var deadline: Instant
    /// The app's ids for the buyer of a purchase made in Play itself, which Google forgets unless the acknowledgement
    /// repeats them; never shown, never logged.
    package var accountID: String?
    package var profileID: String?
    /// The package that it was sold in; `nil`: not known.
    package var package: String?

    package init(productID: String, token: String, kind: Observation.Kind, deadline: Instant) {
        self.productID = productID
        self.token = token
        self.kind = kind
        self.deadline = deadline
    }
}

/// A store's word on an item: the raw text is kept beside the case, and an unknown word is data, never a failure.
package struct StoreStatus: Hashable, Sendable {
    package enum Known: String, Sendable, CaseIterable {
        case trialing, active, expired, paused, incomplete, owned, refunded
        case inGracePeriod = "in_grace_period"
        case inBillingRetry = "in_billing_retry"
        /// Another purchase of the same person stands in its place.
        case replaced
        /// Paid, and it has not begun.
        case scheduled
        case consumed
        /// The store's own `unknown`, and every word we have not met.
        case unknown
    }

    package let raw: String
    package var known: Known { Known(rawValue: raw) ?? .unknown }

    package init(_ raw: String) { self.raw = raw }
}

/// How much of what a source holds was read.
package enum Coverage: String, Sendable, CaseIterable {
    /// Every list to its last page.
    case full
    /// Enough to say yes, not enough to say no.
    case partial
    /// Nothing usable.
    case none
}

/// Everything one job learned from the stores.
package struct Reading: Sendable {
    package var coverage: Coverage
    /// When the first request began, by the database's clock.
    package var askedAt: Instant
    package var observations: [Observation]
    package var failure: ReadFailure?
    package var claims = ClaimFindings()
    /// Whose silence means something: the stores that are configured.
    package var covered: Set<Store>
    /// The projects of RevenueCat's that were asked; empty: not known, and then its silence is about any.
    package var revenueCatProjects: Set<String> = []
    /// Items that no decision may use, because their owner is not known yet.
    package var withheld: [Observation] = []
    /// The stores that did not answer in full, and why; empty where that is not known by store.
    package var silent: [Store: ReadFailure] = [:]
    /// The stores that hold an item of the user's of which it is not known whether it gives access.
    package var unreadable: Set<Store> = []

    package init(
        coverage: Coverage,
        askedAt: Instant,
        observations: [Observation] = [],
        failure: ReadFailure? = nil,
        covered: Set<Store> = Set(Store.allCases)
    ) {
        self.covered = covered
        self.coverage = coverage
        self.askedAt = askedAt
        self.observations = observations
        self.failure = failure
    }

    /// Whether silence about a purchase means something: the one that spoke of it last was asked, in the right project.
    func covers(_ purchase: Purchase) -> Bool {
        guard covered.contains(purchase.source) else { return false }
        guard purchase.source == .revenueCat, let project = purchase.revenueCatProject else { return true }
        return revenueCatProjects.isEmpty || revenueCatProjects.contains(project)
    }
}
