import Entitlements

/// What one transaction of a line is worth by itself.
enum OnsideStanding: Hashable, Sendable, CaseIterable {
    /// Taken back.
    case revoked
    /// Bought for ever.
    case owned
    /// A subscription without an end, which can't be.
    case undated
    /// Paid, and its period goes on.
    case running
    /// Its period is over.
    case over

    /// Whether it gives access unless a later transaction of the line has the say.
    var givesAccess: Bool { self == .owned || self == .running }
}

/// The table of lines: which of a line's transactions speaks for it.
enum OnsideLineRule {
    /// The earlier transactions of a line, which matter only where the latest one was taken back.
    enum Earlier: Hashable, Sendable, CaseIterable {
        /// One of them gives access still.
        case access
        /// None does, but one is a subscription without an end, whose status is unknown.
        case undated
        case nothing
    }

    enum Verdict: Hashable, Sendable, CaseIterable {
        /// The latest transaction says it all.
        case byLatest
        /// The latest of the earlier ones that give access does.
        case byEarlier
        /// It makes no sense, and is left out as if it had not been read.
        case malformed
    }
}

/// Every line, by what its latest transaction by purchase date is worth, and the earlier ones (`nil`: whatever).
let onsideLineRules: [(latest: OnsideStanding, earlier: OnsideLineRule.Earlier?, verdict: OnsideLineRule.Verdict)] = [
    // latest    earlier   verdict
    (.running, nil, .byLatest),
    (.owned, nil, .byLatest),
    (.over, nil, .byLatest),
    (.undated, nil, .malformed),
    (.revoked, .access, .byEarlier),
    (.revoked, .undated, .malformed),
    (.revoked, .nothing, .byLatest),
]

/// The transactions with one original order id.
struct OnsideLine: Sendable {
    /// By purchase date, the latest first; one for each order.
    private var transactions: [OnsideTransaction]
    private let query: OnsideQuery

    /// Sorts transactions into lines.
    ///
    /// Consumables are left out: they are no business of ours. Of several statements on one order the newest counts.
    static func lines(of transactions: [OnsideTransaction], _ query: OnsideQuery) -> [OnsideLine] {
        var newest: [String: OnsideTransaction] = [:]
        for transaction in transactions where transaction.productType != "CONSUMABLE" {
            newest[transaction.orderID] = newest[transaction.orderID].map { max($0, transaction) } ?? transaction
        }
        return Dictionary(grouping: newest.values, by: \.originalOrderID)
            .sorted { $0.key < $1.key }
            .map { line in
                OnsideLine(line.value.sorted { ($0.purchasedAt, $0.orderID) > ($1.purchasedAt, $1.orderID) }, query)
            }
    }

    private static func max(_ left: OnsideTransaction, _ right: OnsideTransaction) -> OnsideTransaction {
        func rank(_ transaction: OnsideTransaction) -> [Int64] {
            [
                transaction.fetchedAt.microseconds, transaction.revokedAt?.microseconds ?? -1,
                transaction.purchasedAt.microseconds, transaction.expiresAt?.microseconds ?? -1,
            ]
        }
        return rank(left).lexicographicallyPrecedes(rank(right)) ? right : left
    }

    private init(_ transactions: [OnsideTransaction], _ query: OnsideQuery) {
        self.transactions = transactions
        self.query = query
    }

    /// What the domain reasons about; `nil` where the line makes no sense.
    var observation: Observation? {
        guard let latest = transactions.first else { return nil }
        let earlier = transactions.dropFirst()
        let standing: OnsideLineRule.Earlier =
            earlier.contains { self.standing($0).givesAccess }
            ? .access : earlier.contains { self.standing($0) == .undated } ? .undated : .nothing
        let rule = onsideLineRules.first {
            $0.latest == self.standing(latest) && ($0.earlier == nil || $0.earlier == standing)
        }
        switch rule?.verdict {
        case .byLatest: return observe(latest)
        case .byEarlier: return earlier.first { self.standing($0).givesAccess }.map(observe)
        case .malformed, nil: return nil
        }
    }

    /// The first condition that holds decides.
    private func standing(_ transaction: OnsideTransaction) -> OnsideStanding {
        if let revokedAt = transaction.revokedAt, revokedAt <= query.askedAt { return .revoked }
        guard let expiresAt = transaction.expiresAt else { return isSubscription(transaction) ? .undated : .owned }
        return expiresAt > query.askedAt ? .running : .over
    }

    private func isSubscription(_ transaction: OnsideTransaction) -> Bool {
        transaction.expiresAt != nil || transaction.subscriptionID != nil
    }

    private func observe(_ transaction: OnsideTransaction) -> Observation {
        let kind: Observation.Kind = isSubscription(transaction) ? .subscription : .oneTime
        let (status, givesAccess): (String, Bool) =
            switch standing(transaction) {
            case .revoked: ("refunded", false)
            case .owned: ("owned", true)
            case .running: ("active", true)
            case .over: ("expired", false)
            case .undated: ("unknown", false)
            }
        let token = transaction.appAccountToken.flatMap { $0.isEmpty ? nil : $0 }
        let ids = Set(transactions.map(\.orderID) + [transaction.originalOrderID])
        var observation = Observation(
            kind: kind,
            store: Store.onside.rawValue,
            environment: "production",
            identifiers: ids.map { id in
                PurchaseIdentifier(value: id, store: Store.onside.rawValue, environment: "production", kind: "store_id")
            },
            entitlements: ["onside:\(transaction.productID)"],
            status: StoreStatus(status),
            givesAccess: kind == .subscription ? givesAccess : nil,
            owner: token == nil ? .unattributable : .unnamed,
            source: .onside
        )
        observation.productID = transaction.productID
        observation.periodStartsAt = transaction.purchasedAt
        observation.periodEndsAt = transaction.expiresAt
        observation.accountID = token
        observation.lookupID = transaction.originalOrderID
        observation.boughtAt = transaction.originallyPurchasedAt
        // A line is as new as the newest statement on it.
        observation.statedAt = transactions.map(\.fetchedAt).max()
        observation.payloadHash = observation.factsHash
        return observation
    }
}
