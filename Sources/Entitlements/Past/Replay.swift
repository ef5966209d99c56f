/// What a decision of the past comes to under today's rules.
package struct Replayed: Hashable, Sendable {
    package enum Result: Hashable, Sendable {
        case agrees
        case differs(Now)
        case unreplayable(Reason)
    }

    /// What would be decided.
    package struct Now: Hashable, Sendable {
        /// `nil`: nothing; what was read would have to be read again.
        package var outcome: String?
        /// The rule, or the code of the failure for which nothing is decided.
        package var rule: String
        package var typeAfter: UserType?
        /// A sentence for people.
        package var why: String
    }

    package enum Reason: String, Sendable, CaseIterable {
        case readingsMissing = "readings_missing"
        /// It comes to something else, but purchases were known then whose readings are not on record for the user.
        case ledgerIncomplete = "ledger_incomplete"
        case historyTooLong = "history_too_long"
    }

    package var decision: PastDecision
    package var result: Result
}

extension UserHistory {
    /// Decides again what was decided, each by what was known and read then, at its own time.
    ///
    /// Whose an item is was decided with the ledger of its moment and is taken as it was. What only held a demotion back
    /// (the mode, a pause, the brake, a run) is left out on both sides: such a decision agrees with the demotion it held.
    package func replay(
        catalog: ProductCatalog,
        settings: DecisionSettings,
        where wanted: (PastDecision) -> Bool
    ) -> [Replayed] {
        var settings = settings
        settings.mode = .full
        settings.demotionsPaused = false
        var replayed: [Replayed] = []
        var unexplained: Int64 = 0
        walk { step, ledger in
            guard let decision = step.decision, decision.knownRule == .unexplained, !ledger.isSetByHost(decision)
            else { return }
            unexplained = decision.id
        }
        walk(catalog: catalog) { step, ledger in
            guard let decision = step.decision, wanted(decision) else { return }
            var past = PastInput(history: self, step: step, decision: decision, ledger: ledger)
            // Once explained, a user stays so.
            past.everObserved = everObserved && ledger.sawExplanation && decision.id > unexplained
            var result = past.replayed(catalog, settings)
            // The host set the type, and no record tells whether the user was explained before: either answer agrees.
            if decision.knownRule == .unexplained, past.everObserved, case .differs = result {
                past.everObserved = false
                result = past.replayed(catalog, settings)
            }
            replayed.append(Replayed(decision: decision, result: result))
        }
        return replayed
    }
}

/// A decision with everything that it rested on.
private struct PastInput {
    let history: UserHistory
    let step: UserHistory.Step
    let decision: PastDecision
    let ledger: PastLedger
    var everObserved = false

    func replayed(_ catalog: ProductCatalog, _ settings: DecisionSettings) -> Replayed.Result {
        guard !history.isCut else { return .unreplayable(.historyTooLong) }
        guard !decision.restsOnReadings || !step.items.isEmpty else { return .unreplayable(.readingsMissing) }
        var input = input(catalog, settings)
        var resolution = decide(input)
        if case .retry = resolution, input.reading.coverage == .partial {
            // A store that was not configured then overrules no decision.
            input.reading.covered = [.revenueCat]
            resolution = decide(input)
        }
        guard let now = compare(resolution, input) else { return .agrees }
        return history.unread(in: ledger, at: decision.at, reading: step.items) > 0
            ? .unreplayable(.ledgerIncomplete) : .differs(now)
    }

    /// What would be decided; `nil` where it is what was decided.
    private func compare(_ resolution: Resolution, _ input: DecisionInput) -> Replayed.Now? {
        switch resolution {
        case .retry(let failure):
            return Replayed.Now(
                outcome: nil,
                rule: failure.code.rawValue,
                typeAfter: decision.typeBefore,
                why: changedProducts(input) + Self.sentence(failure)
            )
        case .verdict(let verdict):
            var outcome = verdict.outcome
            // Assets that came back made it a restoration.
            if verdict.action == .grant, outcome == .alreadySubscriber, decision.typeBefore == .subscriber,
                decision.outcome == Outcome.restored.rawValue
            {
                outcome = .restored
            }
            let typeAfter = verdict.action.type ?? decision.typeBefore
            let agrees =
                decision.isHeld
                ? decision.kind == .reconcile ? verdict.action == .demote : outcome != .alreadySubscriber
                : outcome.rawValue == decision.outcome && verdict.rule.rawValue == decision.rule
                    && typeAfter == decision.typeAfter
            guard !agrees else { return nil }
            return Replayed.Now(
                outcome: outcome.rawValue,
                rule: verdict.rule.rawValue,
                typeAfter: typeAfter,
                why: changedProducts(input) + verdict.explanation
            )
        }
    }

    private static func sentence(_ failure: ReadFailure) -> String {
        failure.code == .unmapped
            ? "Nothing would be decided before that is settled."
            : "What was read then is not enough for a yes today: the rest would have to be read."
    }

    /// Names what a store gave access to, and what gives none today.
    private func changedProducts(_ input: DecisionInput) -> String {
        let items = zip(input.reading.observations, input.attributions).filter { item, attribution in
            attribution.mayGiveAccess && item.accessState == .access
        }
        let keys = Set(items.flatMap(\.0.entitlements)).filter { input.catalog.mapping(of: [$0]) != .access }
        guard !keys.isEmpty else { return "" }
        let names = keys.sorted().prefix(5).map { key in
            input.catalog.mapping(of: [key]) == .unmapped ? "\(key) (not in the table)" : key
        }
        return "By today's products this gives no access: \(names.joined(separator: ", ")). "
    }

    private func input(_ catalog: ProductCatalog, _ settings: DecisionSettings) -> DecisionInput {
        let listed = step.items.filter { $0.observation != nil }
        let coverage = step.items.first?.coverage ?? .none
        var reading = Reading(
            coverage: coverage,
            askedAt: step.items.first?.askedAt ?? decision.at,
            observations: listed.compactMap(\.observation),
            failure: coverage == .partial ? ReadFailure(.incomplete) : nil
        )
        reading.claims.clientError = clientError
        for index in reading.observations.indices {
            reading.observations[index].isSubmitted = isSubmitted(listed[index])
        }
        // Which store's it was is not on record.
        if decision.knownRule == .unreadableItem { reading.unreadable = [.revenueCat] }
        if decision.knownRule == .storeNotAsked { reading.covered.subtract(unasked(listed)) }
        let attributions = listed.map(attribution)
        var input = DecisionInput(
            kind: decision.kind,
            user: decision.typeBefore.map {
                // Which one it was is not on record; the rules know only two kinds.
                User(id: "", type: $0, status: decision.knownRule == .notEligible ? .banned : .active)
            },
            userKey: history.userKey,
            reading: reading,
            attributions: attributions,
            rows: attributions.map { $0.target.flatMap { ledger.rows[$0]?.purchase } },
            ledger: ledger.owned,
            listed: rows(behind: listed),
            catalog: catalog,
            settings: settings
        )
        input.grants = history.grants(at: decision.at)
        input.activeGrants = history.grants.filter { $0.isInForce(at: decision.at) }.map {
            ActiveGrant(until: $0.until, source: $0.source)
        }
        input.sandbox = history.sandbox(at: decision.at)
        input.everObserved = everObserved
        input.decidedType = ledger.decidedType
        input.absentSince = ledger.absentSince
        input.movedAwayAt = ledger.movedAwayAt
        return input
    }

    /// What the app said; it is on record only in the rule that it led to.
    private var clientError: ClientError? {
        switch decision.knownRule {
        case .receiptInUse: .receiptAlreadyInUse
        case .clientLoginDiscarded: .loginDiscarded
        case .clientAppNotRegistered: .appNotRegistered
        default: nil
        }
    }

    /// Whether the user had shown a proof of it; what belongs to another user is known by the rule that it led to.
    private func isSubmitted(_ item: PastItem) -> Bool {
        guard decision.kind == .restore else { return false }
        return item.attribution == "foreign" ? decision.knownRule == .proofOfAnothers : item.attribution == "unowned"
    }

    /// The rows that the reading listed.
    ///
    /// What was not the user's then is on record without its purchase, and is known by what it is.
    private func rows(behind listed: [PastItem]) -> Set<Int64> {
        let others = listed.filter { $0.purchase == nil }.compactMap(\.observation)
        let alike = ledger.owned.filter { row in
            others.contains { $0.store == row.store && $0.environment == row.environment && $0.kind == row.kind }
        }
        return Set(listed.compactMap(\.purchase) + alike.map(\.id))
    }

    private func unasked(_ listed: [PastItem]) -> Set<Store> {
        let seen = Set(listed.compactMap(\.purchase))
        return Set(
            ledger.owned.filter { row in
                !seen.contains(row.id) && (row.accessState == .access || row.accessState == .unsettled)
            }.map(\.source)
        )
    }

    private func attribution(_ item: PastItem) -> Attribution {
        let purchase = item.purchase ?? 0
        let merging = step.merged.filter { ledger.rows[$0] != nil }.sorted()
        switch item.attribution {
        case "own": return .own(purchase: purchase, merging: merging)
        case "owner_followed_revenuecat": return .followed(purchase: purchase, from: 0, merging: merging)
        case "sources_disagree": return .disagree(purchase: purchase, owner: 0)
        case "identity_collision": return .collision(purchase: purchase, owner: 0)
        case "other_user": return .otherUser(id: "")
        case "anonymous": return .anonymous
        case "foreign": return .foreign(purchase: item.purchase, owner: nil, account: nil)
        case "contradicted": return .contradicted(purchase: item.purchase, accountKey: nil, account: nil)
        case "unowned": return .unowned(purchase: item.purchase, merging: merging)
        case "same_account": return .sameAccount(purchase: item.purchase, merging: merging)
        case "unattributed": return .unattributed(purchase: item.purchase)
        default: return .new
        }
    }
}
