package import Entitlements
import Postgres
import Queue

/// What our records hold of a purchase, as far as its store is asked by it.
package struct KnownPurchase: AccessItem, Sendable, Hashable {
    package var store: String
    package var environment: String
    package var kind: Observation.Kind
    package var status: StoreStatus
    package var givesAccess: Bool?
    /// By which id its store is asked; `nil`: only RevenueCat spoke of it.
    package var lookupID: String?
    /// The store's own name of the app that it was sold in; `nil`: the store itself has not said.
    package var storeApp: String?
    package var periodEndsAt: Instant?
    package var statedAt: Instant?
    /// Everything the store calls it by.
    package var identifiers: [PurchaseIdentifier]

    /// Whether it is over, and has been for longer than Google Play keeps tokens.
    package func isLongOver(at moment: Instant) -> Bool {
        guard accessState == .ended, let end = periodEndsAt else { return false }
        return end + .seconds(61 * 86_400) < moment
    }

    package var entitlements: [String]

    /// The words with which a subscription that gives no access is over.
    static let endedWords = StoreStatus.Known.allCases.map(\.rawValue).filter {
        Entitlements.accessState(of: .subscription, status: StoreStatus($0), givesAccess: false) == .ended
    }

    /// The most purchases of a user that are asked about, those apart that ended long ago; a user with more is never read
    /// fully.
    package static let most = 200

    init(_ row: PostgresRow) throws {
        let (store, environment, kind): (String, String, String) = try (row["store"], row["environment"], row["kind"])
        let (values, kinds): ([String], [String]) = try (row["identifiers"], row["identifier_kinds"])
        self.store = store
        self.environment = environment
        self.kind = Observation.Kind(rawValue: kind) ?? .subscription
        status = try StoreStatus(row["status"])
        givesAccess = try row["gives_access"]
        lookupID = try row["lookup_id"]
        storeApp = try row["store_app"]
        periodEndsAt = try row["period_ends_at"]
        statedAt = try row["stated_at"]
        entitlements = try row["entitlements"]
        identifiers = zip(values, kinds).map {
            PurchaseIdentifier(value: $0, store: store, environment: environment, kind: $1)
        }
    }
}
