/// A user's records as they stood at a moment, rebuilt step by step from what was written down.
struct PastLedger {
    /// A ledger row with what decides nothing but is shown.
    struct Row {
        var purchase: Purchase
        var productID: String?
    }

    /// By id; rows that became part of others are gone.
    private(set) var rows: [Int64: Row] = [:]
    private(set) var last: PastDecision?
    private(set) var absentSince: Instant?
    private(set) var movedAwayAt: Instant?
    /// The type that the last decision gave the user or found right.
    private(set) var decidedType: UserType?
    private(set) var readAt: Instant?
    /// An item of the user's own was seen that explains a type, by whatever catalogue.
    private(set) var sawExplanation = false
    private let userKey: Int64
    /// What means access; `nil`: not known.
    private let catalog: ProductCatalog?

    init(userKey: Int64, catalog: ProductCatalog? = nil) {
        self.userKey = userKey
        self.catalog = catalog
    }

    var owned: [Purchase] {
        rows.values.map(\.purchase).filter { $0.ownerKey == userKey }.sorted { $0.id < $1.id }
    }

    /// Whether the host made the user a subscriber between the last decision and this one, which then is `unexplained`.
    func isSetByHost(_ decision: PastDecision) -> Bool { decision.typeBefore == .subscriber && decidedType == .free }

    mutating func apply(_ transfer: PastTransfer) {
        guard var row = rows[transfer.purchase] else { return }
        // Only what gave access explains that it is gone.
        let gaveAccess = row.purchase.givesAccess ?? (row.purchase.status.known == .owned)
        if transfer.from == userKey, !row.purchase.entitlements.isEmpty, gaveAccess { movedAwayAt = transfer.at }
        row.purchase.ownerKey = transfer.to
        row.purchase.ownerSince = transfer.at
        row.purchase.transferredAt = transfer.at
        // Readings that began before say nothing any more.
        row.purchase.observedAt = max(row.purchase.observedAt, transfer.at)
        rows[transfer.purchase] = row
    }

    mutating func apply(_ step: UserHistory.Step) {
        record(step.items)
        for id in step.merged { rows[id] = nil }
        guard let decision = step.decision else { return }
        if let first = step.items.first { readAt = max(readAt ?? first.askedAt, first.askedAt) }
        sawExplanation =
            sawExplanation || step.items.contains(where: \.canExplain) || owned.contains(where: \.canExplain)
        switch decision.absence {
        case .keep: break
        case .clear: (absentSince, movedAwayAt) = (nil, nil)
        case .begin:
            // There was no note where a silence was the first.
            if decision.knownRule == .firstAbsence { absentSince = nil }
            absentSince = absentSince ?? step.items.first?.askedAt ?? decision.at
        }
        decidedType = decision.settledType ?? decidedType
        last = decision
    }

    /// Brings rows up to a reading, by the rule that the ledger has for several items of one purchase.
    private mutating func record(_ items: [PastItem]) {
        var named: [Int64: [PastItem]] = [:]
        for item in items {
            guard let id = item.purchase, item.observation != nil, item.updatesRow || rows[id] == nil else { continue }
            named[id, default: []].append(item)
        }
        for (id, items) in named {
            let observations = items.compactMap(\.observation)
            guard let prevailing = PrevailingItem(among: observations, counts: items.map(\.counts)) else { continue }
            write(items[prevailing.place], observations[prevailing.place], to: id)
        }
    }

    private mutating func write(_ item: PastItem, _ observation: Observation, to id: Int64) {
        let before = rows[id]?.purchase
        if let before, before.observedAt > item.askedAt { return }
        let announces = AccessSummary.announces(observation, at: item.askedAt)
        let isRunning = observation.periodEndsAt.map { item.askedAt < $0 } ?? false
        let announcedBefore = before.map { $0.endAnnounced && $0.periodEndsAt == observation.periodEndsAt } ?? false
        let owner = item.counts ? item.userKey : before?.ownerKey
        // Only what gave access explains that it is gone.
        if let before, before.ownerKey == userKey, owner != userKey, !before.carried.isEmpty,
            before.accessState == .access
        {
            movedAwayAt = item.askedAt
        }
        var purchase = Purchase(
            id: id,
            ownerKey: owner,
            kind: observation.kind,
            store: observation.store,
            status: observation.status,
            givesAccess: observation.givesAccess,
            entitlements: observation.entitlements,
            observedAt: item.askedAt,
            firstSeenAt: before?.firstSeenAt ?? item.recordedAt,
            ownerSince: owner == before?.ownerKey ? before?.ownerSince ?? item.askedAt : item.askedAt
        )
        purchase.environment = observation.environment
        purchase.carried = Purchase.carried(observation.entitlements, before: before?.carried ?? [], catalog: catalog)
        purchase.periodEndsAt = observation.periodEndsAt
        purchase.endAnnounced = isRunning || before == nil ? announces : announcedBefore
        purchase.isFamilyShared = observation.isFamilyShared
        purchase.transferredAt = before?.transferredAt
        purchase.source = observation.source
        rows[id] = Row(purchase: purchase, productID: observation.productID)
    }
}

extension PastItem {
    /// Whether it spoke for the user who was read.
    var counts: Bool {
        switch attribution {
        case "new", "own", "owner_followed_revenuecat": true
        default: false
        }
    }

    /// Whether the row of its purchase took over what it says.
    var updatesRow: Bool {
        counts || attribution == "unowned" || attribution == "same_account" || attribution == "unattributed"
    }

    var canExplain: Bool {
        (counts || attribution == "same_account") && observation?.canExplain == true
    }
}

extension PastDecision {
    /// What became of the note of an absence.
    var absence: AbsenceMark {
        guard let rule = knownRule, let before = typeBefore else { return .keep }
        // No user was demoted.
        if isObserved, before == .subscriber, typeAfter == .free { return .keep }
        switch rule {
        case .storeAccess, .grantAccess, .ownerFollowedRevenuecat: return .clear
        case .accountGone, .notEligible: return .keep
        default: break
        }
        guard before == .subscriber else { return .clear }
        // What a subscriber without access hears notes nothing: the demotion is the reconcile's.
        if kind == .restore, outcome != Outcome.alreadySubscriber.rawValue { return .keep }
        switch rule {
        case .softWindow, .firstAbsence: return .begin
        case .storeEnded, .movedAway, .absenceConfirmed: return .clear
        default: return .keep
        }
    }

    enum AbsenceMark { case keep, clear, begin }

    /// The type that the decision settled; `nil` where it left open whether the type is right.
    var settledType: UserType? {
        guard !isObserved, let rule = knownRule, rule != .notEligible, rule != .accountGone else { return nil }
        switch rule {
        case .storeAccess, .grantAccess, .ownerFollowedRevenuecat: return .subscriber
        default: return typeAfter == .free ? .free : nil
        }
    }
}
