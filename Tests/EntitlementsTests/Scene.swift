@testable import Entitlements

/// The moment at which the tests' readings begin.
let noon = Instant(microseconds: 1_800_000_000_000_000)

/// The catalogue of the tests: `premium` gives access, `badge` never does, every other key is unmapped.
let catalog = ProductCatalog(["premium": true, "badge": false])

let hour = Duration.seconds(3600)
let day = Duration.seconds(86_400)

/// An item as a store lists it; `ends` counts from noon.
func item(
    _ status: String,
    access: Bool? = nil,
    kind: Observation.Kind = .subscription,
    store: String = "app_store",
    environment: String = "production",
    id: String = "lineage-1",
    entitlements: [String] = ["premium"],
    renewal: String? = nil,
    ends: Duration? = nil,
    ownership: String = "purchased",
    owner: NamedOwner = .askedUser
) -> Observation {
    var observation = Observation(
        kind: kind,
        store: store,
        environment: environment,
        identifiers: [
            PurchaseIdentifier(value: id, store: store, environment: environment, kind: "store_id"),
            PurchaseIdentifier(value: "rc-" + id, store: store, environment: environment, kind: "revenuecat_id"),
        ],
        entitlements: entitlements,
        status: StoreStatus(status),
        givesAccess: access,
        ownership: ownership,
        owner: owner
    )
    observation.productID = "monthly"
    observation.renewal = renewal
    observation.periodEndsAt = ends.map { noon + $0 }
    return observation
}

/// An item that its store itself told of, which names no user of ours.
func stored(
    _ owner: NamedOwner,
    _ status: String = "active",
    access: Bool? = true,
    shown: Bool = true,
    source: Store = .appStore,
    id: String = "lineage-1",
    entitlements: [String] = ["premium"],
    environment: String = "production",
    bought: Duration = .zero - day * 30,
    ends: Duration? = nil,
    ownership: String = "purchased"
) -> Observation {
    var observation = Observation(
        kind: .subscription,
        store: source.rawValue,
        environment: environment,
        identifiers: [
            PurchaseIdentifier(value: id, store: source.rawValue, environment: environment, kind: "store_id")
        ],
        entitlements: entitlements,
        status: StoreStatus(status),
        givesAccess: access,
        ownership: ownership,
        owner: owner,
        source: source
    )
    observation.periodEndsAt = ends.map { noon + $0 }
    observation.isSubmitted = shown
    observation.lookupID = id
    observation.boughtAt = noon + bought
    return observation
}

/// A ledger row, by default the tested user's own, last seen with access an hour before noon.
func row(
    _ id: Int64,
    owner: Int64? = Scene.userKey,
    kind: Observation.Kind = .subscription,
    store: String = "app_store",
    environment: String = "production",
    _ status: String = "active",
    access: Bool? = true,
    entitlements: [String] = ["premium"],
    carried: [String]? = nil,
    ends: Duration? = nil,
    endAnnounced: Bool = false,
    familyShared: Bool = false,
    observed: Duration = .zero - hour,
    firstSeen: Duration = .zero - day * 30,
    ownerSince: Duration = .zero - day * 30,
    transferred: Duration? = nil,
    source: Store = .revenueCat,
    account: Int64? = nil
) -> Purchase {
    var purchase = Purchase(
        id: id,
        ownerKey: owner,
        kind: kind,
        store: store,
        status: StoreStatus(status),
        givesAccess: access,
        entitlements: entitlements,
        observedAt: noon + observed,
        firstSeenAt: noon + firstSeen,
        ownerSince: noon + ownerSince
    )
    purchase.environment = environment
    if let carried { purchase.carried = carried }
    purchase.periodEndsAt = ends.map { noon + $0 }
    purchase.endAnnounced = endAnnounced
    purchase.isFamilyShared = familyShared
    purchase.transferredAt = transferred.map { noon + $0 }
    purchase.source = source
    purchase.accountKey = account
    return purchase
}

/// One user, what the stores answered, and what was known before: everything a verdict rests on.
struct Scene {
    static let userKey: Int64 = 1

    /// An item with the ledger rows that stand under its identifiers.
    struct Read {
        var item: Observation
        var holders: [Purchase]

        init(_ item: Observation, holders: [Purchase] = []) {
            self.item = item
            self.holders = holders
        }
    }

    var kind: JobKind
    var type: UserType
    var status: UserStatus = .active
    var askedAt = noon
    var reads: [Read] = []
    /// Rows of the user that no item of the reading leads to.
    var unlisted: [Purchase] = []
    var coverage = Coverage.full
    var failure: ReadFailure?
    var claims = ClaimFindings()
    var covered = Set(Store.allCases)
    /// Stores that list something of the user's that can't be read.
    var unreadable: Set<Store> = []
    var claimed: [ClaimedPurchase] = []
    var firstSeenByEvent: [Int64: Instant] = [:]
    var grants = GrantState.none
    var sandbox = SandboxState.none
    var everObserved = false
    var decidedType: UserType?
    var absentSince: Instant?
    var accessEventAt: Instant?
    var movedAwayAt: Instant?
    var settings = DecisionSettings()

    init(_ kind: JobKind, _ type: UserType, _ items: Observation...) {
        self.kind = kind
        self.type = type
        reads = items.map { Read($0) }
    }

    /// The input, with each item attributed as the product does it.
    var input: DecisionInput {
        let attributions = attribute(
            reads.map(\.item),
            holders: reads.map(\.holders),
            userKey: Self.userKey,
            eligible: status.isEligible,
            askedAt: askedAt
        )
        let rows: [Purchase?] = attributions.map { attribution in
            attribution.target.flatMap { id in reads.flatMap(\.holders).first { $0.id == id } }
        }
        var ledger = unlisted
        for holder in reads.flatMap(\.holders) where holder.ownerKey == Self.userKey && !ledger.contains(holder) {
            ledger.append(holder)
        }
        var reading = Reading(
            coverage: coverage,
            askedAt: askedAt,
            observations: reads.map(\.item),
            failure: failure,
            covered: covered
        )
        reading.claims = claims
        reading.unreadable = unreadable
        var input = DecisionInput(
            kind: kind,
            user: User(id: "user-1", type: type, status: status),
            userKey: Self.userKey,
            reading: reading,
            attributions: attributions,
            rows: rows,
            ledger: ledger,
            listed: Set(reads.flatMap(\.holders).map(\.id)),
            catalog: catalog,
            settings: settings
        )
        input.grants = grants
        input.sandbox = sandbox
        input.everObserved = everObserved
        input.decidedType = decidedType
        input.absentSince = absentSince
        input.accessEventAt = accessEventAt
        input.movedAwayAt = movedAwayAt
        input.claimed = claimed
        input.firstSeenByEvent = firstSeenByEvent
        return input
    }

    var resolution: Resolution { decide(input) }

    /// The verdict; `nil` where the job is tried again.
    var verdict: Verdict? {
        guard case .verdict(let verdict) = resolution else { return nil }
        return verdict
    }

    /// A copy with changes, for scenes that differ in one thing.
    func with(_ change: (inout Scene) -> Void) -> Scene {
        var copy = self
        change(&copy)
        return copy
    }
}

/// A purchase that a typed id led to.
func claimedPurchase(_ id: String, customer: String = "user-2", purchase: Int64? = 7, owner: Int64? = 2)
    -> ClaimedPurchase
{
    ClaimedPurchase(
        found: FoundPurchase(
            identifier: PurchaseIdentifier(value: id, store: "app_store", environment: "production", kind: "store_id"),
            store: "app_store",
            customerID: customer
        ),
        purchase: purchase,
        ownerKey: owner,
        ownerID: owner == nil ? nil : customer
    )
}
