import Entitlements

/// A user's past as a test writes it down; times count from noon.
struct Past {
    var history = UserHistory(userKey: Scene.userKey, everObserved: true)

    /// Adds a decision with what was read for it.
    mutating func decide(
        _ id: Int64,
        _ at: Duration,
        _ rule: Rule,
        _ outcome: Outcome,
        _ before: UserType?,
        _ after: UserType?,
        kind: JobKind = .reconcile,
        observed: Bool = false,
        coverage: Coverage = .full,
        _ items: (Int64, String, Observation)...,
        isRead: Bool = true
    ) {
        var decision = PastDecision(
            id: id,
            at: noon + at,
            kind: kind,
            rule: rule.rawValue,
            outcome: outcome.rawValue,
            typeBefore: before,
            typeAfter: after
        )
        decision.isObserved = observed
        decision.explanation = "Because."
        history.decisions.append(decision)
        guard isRead else { return }
        let reading = PastItem(
            decision: id,
            recordedAt: noon + at,
            userKey: Scene.userKey,
            askedAt: noon + at - .milliseconds(20),
            coverage: coverage
        )
        if items.isEmpty { history.items.append(reading) }
        for (purchase, attribution, observation) in items {
            var item = reading
            item.purchase = purchase
            item.attribution = attribution
            item.observation = observation
            // As storage hands it out.
            let name = PurchaseIdentifier(
                value: "\(purchase)",
                store: observation.store,
                environment: observation.environment,
                kind: "purchase"
            )
            item.observation?.identifiers = [name]
            history.items.append(item)
        }
    }

    /// Adds the ledger's row of a purchase as it stands now.
    mutating func line(
        _ id: Int64,
        owner: Int64? = Scene.userKey,
        since: Duration,
        mergedInto: Int64? = nil,
        transferred: Duration? = nil
    ) {
        var line = Lineage(id: id, ownerKey: owner, ownerSince: noon + since, firstSeenAt: noon + since)
        line.transferredAt = transferred.map { noon + $0 }
        line.mergedInto = mergedInto
        history.lineages.append(line)
    }

    func state(_ at: Duration) -> PastState { history.state(at: noon + at) }

    /// Replays everything.
    func replay(_ today: ProductCatalog = catalog, _ settings: DecisionSettings = DecisionSettings()) -> [Replayed
        .Result]
    {
        history.replay(catalog: today, settings: settings) { _ in true }.map(\.result)
    }

    /// A subscriber who lapses and comes back.
    static var comeback: Past {
        var past = Past()
        let paid = item("active", access: true, ends: day)
        past.decide(1, .zero, .storeAccess, .promoted, .free, .subscriber, (7, "new", paid))
        let over = item("expired", access: false, ends: day)
        past.decide(2, day * 2, .storeEnded, .demoted, .subscriber, .free, (7, "own", over))
        let again = item("active", access: true, ends: day * 40)
        past.decide(3, day * 10, .storeAccess, .restored, .free, .subscriber, kind: .restore, (7, "own", again))
        past.line(7, since: .zero)
        return past
    }
}
