package import Entitlements

/// The words of the App Store, and ours.
enum AppStoreMapping {
    /// One status of a subscription, and what it means.
    typealias StatusRow = (number: Int64, status: String, givesAccess: Bool)

    /// Every status that is documented.
    ///
    /// - SeeAlso: https://developer.apple.com/documentation/appstoreserverapi/status
    static let statuses: [StatusRow] = [
        (1, "active", true),
        (2, "expired", false),
        (3, "in_billing_retry", false),
        (4, "in_grace_period", true),
        (5, "refunded", false),
    ]

    /// The row of a number; a number we have not met is a word of its own and gives nothing.
    static func status(_ number: Int64) -> StatusRow {
        statuses.first { $0.number == number } ?? (number, "apple_status_\(number)", false)
    }

    static func ownership(_ word: String) -> String {
        switch word {
        case "PURCHASED": "purchased"
        case "FAMILY_SHARED": "family_shared"
        default: word.lowercased()
        }
    }

    static func renewal(_ info: SignedRenewalInfo?) -> String? {
        switch info?.autoRenewStatus {
        case 1: "will_renew"
        case 0: "will_not_renew"
        default: nil
        }
    }

    /// What kind of product a transaction of the history is about.
    enum Product: Sendable { case oneTime, pass, other }

    static func product(_ type: String) -> Product {
        switch type {
        case "Non-Consumable": .oneTime
        case "Non-Renewing Subscription": .pass
        default: .other
        }
    }
}

extension Observation {
    /// What a status of a subscription comes to.
    init(line: SignedTransaction, renewal: SignedRenewalInfo?, status number: Int64) {
        let row = AppStoreMapping.status(number)
        self.init(
            line,
            kind: .subscription,
            status: row.status,
            givesAccess: row.givesAccess,
            renewal: AppStoreMapping.renewal(renewal),
            periodStartsAt: line.purchasedAt,
            periodEndsAt: number == 4 ? renewal?.gracePeriodExpiresAt ?? line.expiresAt : line.expiresAt
        )
    }

    /// A purchase that was only named: its status was not read.
    package init(named transaction: SignedTransaction) {
        self.init(transaction, kind: .subscription, status: "named", givesAccess: false)
    }

    /// What a purchase for ever comes to.
    init(oneTime transaction: SignedTransaction) {
        self.init(transaction, kind: .oneTime, status: transaction.revokedAt == nil ? "owned" : "refunded")
    }

    /// What a subscription that does not renew comes to, once it was revoked.
    init(revokedPass pass: SignedTransaction) {
        self.init(
            pass,
            kind: .subscription,
            status: "refunded",
            givesAccess: false,
            renewal: "will_not_renew",
            periodStartsAt: pass.purchasedAt
        )
    }

    /// What a subscription that does not renew comes to: it is limited, and the App Store does not know its end.
    package init(pass: SignedTransaction) {
        self.init(pass, kind: .oneTime, status: "owned", periodStartsAt: pass.purchasedAt)
        isLimited = true
    }

    private init(
        _ transaction: SignedTransaction,
        kind: Kind,
        status: String,
        givesAccess: Bool? = nil,
        renewal: String? = nil,
        periodStartsAt: Instant? = nil,
        periodEndsAt: Instant? = nil
    ) {
        let environment =
            AppStoreEnvironment(rawValue: transaction.environment)?.ledgerName ?? transaction.environment.lowercased()
        let ids = [
            transaction.originalTransactionID, transaction.transactionID, transaction.previousOriginalTransactionID,
        ]
        self.init(
            kind: kind,
            store: Store.appStore.rawValue,
            environment: environment,
            identifiers: Set(ids.compactMap(\.self)).map { id in
                PurchaseIdentifier(
                    value: id,
                    store: Store.appStore.rawValue,
                    environment: environment,
                    kind: "store_id"
                )
            },
            entitlements: ["\(Store.appStore.rawValue):\(transaction.productID)"],
            status: StoreStatus(status),
            givesAccess: givesAccess,
            ownership: AppStoreMapping.ownership(transaction.ownership),
            owner: .unnamed,
            source: .appStore
        )
        productID = transaction.productID
        self.renewal = renewal
        self.periodStartsAt = periodStartsAt
        self.periodEndsAt = periodEndsAt
        accountID = transaction.appAccountToken
        lookupID = transaction.originalTransactionID
        storeAccount = StoreAccount(answer: "", id: transaction.appTransactionID)
        storeApp = transaction.bundleID
        boughtAt = transaction.originallyPurchasedAt
        statedAt = transaction.signedAt
        payloadHash = factsHash
    }
}
