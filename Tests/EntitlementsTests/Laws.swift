import Entitlements
import TestSupport

extension DecideProperties {
    static let laws: [Law] = [
        accessGrants, nothingElseGrants, onlyFullReadingsDeny, restoresNeverDemote, theQueuedReconcileDemotes,
        demotionNeedsAWord, ineligibleNeverGain, everyStateHasItsReason, orderDoesNotMatter, repetitionDoesNotMatter,
        oneTicketAPurchase, answersFitTheJob, whatHasToExistIsNoAbsence, whatWasDetachedKeeps, whatTheHostSetStays,
        promisesHoldBackOnlyANo, theUnreadableDecidesNothing, theStoreAccountDecidesNothing,
    ]

    static let accessGrants = Law(name: "L2: whoever is eligible and has access is a subscriber") {
        scene,
        input,
        resolution in
        guard scene.status.isEligible, Oracle.hasAccess(input) else { return nil }
        if input.attributions.contains(.overtaken) {
            return resolution == .retry(ReadFailure(.overtaken)) ? nil : "not read again: \(resolution)"
        }
        guard case .verdict(let verdict) = resolution, verdict.action == .grant else { return "denied: \(resolution)" }
        return nil
    }

    static let nothingElseGrants = Law(name: "L4: nobody is promoted without access") { _, input, resolution in
        guard case .verdict(let verdict) = resolution, verdict.action == .grant else { return nil }
        return Oracle.hasAccess(input) ? nil : "granted by \(verdict.rule)"
    }

    static let onlyFullReadingsDeny = Law(name: "L3: a reading that is not full never demotes and never finds nothing")
    {
        scene,
        _,
        resolution in
        guard scene.coverage != .full, scene.status.isEligible else { return nil }
        guard case .verdict(let verdict) = resolution else { return nil }
        return verdict.action == .grant ? nil : "\(verdict.outcome) by \(verdict.rule)"
    }

    static let restoresNeverDemote = Law(name: "A restore never demotes, and says what the reconcile would do") {
        scene,
        _,
        resolution in
        guard scene.kind == .restore, case .verdict(let verdict) = resolution else { return nil }
        guard verdict.action != .demote else { return "demoted" }
        let reconcile = scene.with { $0.kind = .reconcile }.verdict
        if reconcile?.outcome == .deferred {
            return verdict.outcome == .alreadySubscriber && verdict.rule == reconcile?.rule ? nil : "\(verdict.outcome)"
        }
        guard reconcile?.action == .demote else { return nil }
        return verdict.enqueuesReconcile && verdict.outcome != .alreadySubscriber ? nil : "\(verdict.outcome)"
    }

    static let theQueuedReconcileDemotes = Law(
        name: "181: the reconcile that a restore queued demotes on the same facts"
    ) {
        scene,
        _,
        resolution in
        guard case .verdict(let verdict) = resolution, verdict.enqueuesReconcile else { return nil }
        // Later, if it has to wait for what an event promised.
        let next = after(verdict, scene).with {
            $0.kind = .reconcile
            $0.accessEventAt = nil
        }
        return next.verdict?.action == .demote ? nil : "then \(next.resolution)"
    }

    static let demotionNeedsAWord = Law(
        name: "L3: a demotion rests on a store's word or on silence twice, a margin apart"
    ) {
        scene,
        input,
        resolution in
        guard case .verdict(let verdict) = resolution, verdict.action == .demote else { return nil }
        if scene.settings.mode == .promoteOnly || scene.settings.demotionsPaused { return "demotions are off" }
        if !scene.unreadable.isEmpty { return "something can't be read" }
        let names = input.attributions.filter { !$0.counts }.map(\.name)
        if !Set(["anonymous", "foreign", "unowned", "unattributed"]).isSuperset(of: names) {
            return "the sources disagree"
        }
        switch verdict.rule {
        case .storeEnded:
            let words =
                input.reading.observations.map(\.status)
                + (input.ledger + input.rows.compactMap { $0 }).map(\.status)
            let ends: Set<StoreStatus.Known> = [.expired, .refunded, .paused, .inBillingRetry, .consumed]
            return words.contains { ends.contains($0.known) } ? nil : "no word of an end"
        case .absenceConfirmed:
            guard let since = scene.absentSince else { return "no first absence" }
            guard since + hour * 24 <= scene.askedAt else { return "within the margin" }
            return input.isExplained ? nil : "unexplained"
        case .movedAway:
            guard let moved = scene.movedAwayAt, moved <= scene.askedAt else { return "nothing was moved away" }
            return AccessSummary(input).openItems == 0 ? nil : "something else may give access"
        default: return "by \(verdict.rule)"
        }
    }

    static let ineligibleNeverGain = Law(name: "L6: who is not eligible never gains, never loses, never waits") {
        scene,
        _,
        resolution in
        guard !scene.status.isEligible else { return nil }
        guard case .verdict(let verdict) = resolution else { return "tried again" }
        return verdict.action == .none && verdict.outcome == .notEligible && verdict.tickets.isEmpty
            ? nil : "\(verdict)"
    }

    static let everyStateHasItsReason = Law(
        name: "L2: after a full reading a subscriber has access, a deferral or a reconcile"
    ) {
        scene,
        input,
        resolution in
        guard scene.status.isEligible, scene.coverage == .full, case .verdict(let verdict) = resolution else {
            return nil
        }
        guard after(verdict, scene).type == .subscriber else {
            return Oracle.hasAccess(input) ? "free with access" : nil
        }
        let isDeferred = verdict.outcome == .deferred || verdict.outcome == .alreadySubscriber
        return Oracle.hasAccess(input) || isDeferred || verdict.enqueuesReconcile ? nil : "\(verdict.outcome)"
    }

    static let orderDoesNotMatter = Law(name: "L7: the order of items, rows and claims does not matter") {
        scene,
        input,
        resolution in
        var turned = scene
        turned.reads.reverse()
        turned.unlisted.reverse()
        turned.claimed.reverse()
        for index in turned.reads.indices { turned.reads[index].holders.reverse() }
        guard turned.resolution == resolution else { return "\(resolution)\nbut \(turned.resolution)" }
        var generator = SeededGenerator(seed: UInt64(input.reading.observations.count))
        turned.reads.shuffle(using: &generator)
        return turned.resolution == resolution ? nil : "\(resolution)\nbut \(turned.resolution)"
    }

    static let repetitionDoesNotMatter = Law(name: "L7: the same facts a second time change nothing more") {
        scene,
        _,
        resolution in
        guard case .verdict(let verdict) = resolution else { return nil }
        let once = after(verdict, scene)
        guard case .verdict(let second) = once.resolution else { return "then tried again" }
        let twice = after(second, once)
        guard twice.type == once.type, twice.absentSince == once.absentSince else { return "then \(second)" }
        return second.tickets == verdict.tickets ? nil : "other tickets"
    }

    static let oneTicketAPurchase = Law(name: "L8: one verdict asks for one ticket a purchase") { _, _, resolution in
        guard case .verdict(let verdict) = resolution else { return nil }
        return Set(verdict.tickets.map(\.purchase)).count == verdict.tickets.count ? nil : "\(verdict.tickets)"
    }

    static let theStoreAccountDecidesNothing = Law(
        name: "The store account of the device refines an answer that says nothing, and decides nothing"
    ) {
        _,
        input,
        resolution in
        var without = input
        without.reading.claims.accounts = []
        guard case .verdict(var verdict) = resolution, case .verdict(let plain) = decide(without) else {
            return resolution == decide(without) ? nil : "\(resolution)"
        }
        if verdict.messageKey == .nothingOtherStoreAccount, plain.messageKey == .nothing {
            verdict.messageKey = .nothing
            verdict.explanation = plain.explanation
        }
        return verdict == plain ? nil : "\(verdict) for \(plain)"
    }

    static let answersFitTheJob = Law(name: "Outcomes and keys are those of the job's kind") { scene, _, resolution in
        guard case .verdict(let verdict) = resolution else { return nil }
        guard (verdict.messageKey != nil) == (scene.kind == .restore) else {
            return "key \(String(describing: verdict.messageKey))"
        }
        let restores: Set<Outcome> = [
            .notEligible, .restored, .alreadySubscriber, .storeAccountMismatch, .storeUnavailable, .nothingToRestore,
        ]
        let reconciles: Set<Outcome> = [.promoted, .demoted, .unchanged, .deferred, .notEligible, .storeUnavailable]
        guard (scene.kind == .restore ? restores : reconciles).contains(verdict.outcome) else {
            return "\(verdict.outcome)"
        }
        return verdict.explanation.hasSuffix(".") ? nil : "no explanation"
    }

    static let whatHasToExistIsNoAbsence = Law(
        name: "L3: a paid period that runs is no absence, whichever store does not list it"
    ) {
        scene,
        input,
        resolution in
        guard scene.status.isEligible, scene.coverage == .full, !Oracle.hasAccess(input),
            !input.attributions.contains(.overtaken)
        else { return nil }
        let isMissing = input.ledger.contains { row in
            let isPaid = row.kind == .oneTime ? row.status.raw == "owned" : row.givesAccess == true
            // It may be the item that can't be read.
            return isPaid && !input.listed.contains(row.id) && row.observedAt <= scene.askedAt
                && !scene.unreadable.contains(row.source)
                && row.periodEndsAt.map { scene.askedAt < $0 } ?? true
                && row.entitlements.contains { $0 == "premium" || $0 == "gold" }
                && (row.environment == "production" || scene.sandbox == .allowed) && scene.covered.contains(row.source)
                // Support moved what RevenueCat held.
                && !(row.source == .revenueCat && scene.movedAwayAt.map { row.observedAt <= $0 } ?? false)
        }
        guard isMissing else { return nil }
        guard case .retry(let failure) = resolution else { return "decided: \(resolution)" }
        return failure.code == .unknownToStore || failure.code == .unmapped ? nil : "\(failure.code)"
    }

    static let whatWasDetachedKeeps = Law(
        name: "L3: an entitlement that was detached from its product takes nothing away"
    ) {
        scene,
        input,
        resolution in
        guard case .verdict(let verdict) = resolution, scene.status.isEligible else { return nil }
        let isDetached = zip(input.reading.observations, zip(input.attributions, input.rows)).contains {
            item,
            known in
            let isPaid = item.kind == .oneTime ? item.status.raw == "owned" : item.givesAccess == true
            guard case .own(_, []) = known.0 else { return false }
            return isPaid && item.entitlements.allSatisfy { $0 == "badge" }
                && known.1?.carried.contains("premium") == true
                && (item.environment == "production" || scene.sandbox == .allowed)
                // Its own store, and newer rows, outrank what is listed.
                && item.source != .revenueCat && (known.1.map { $0.observedAt <= scene.askedAt } ?? true)
        }
        return isDetached && verdict.action == .demote && scene.coverage == .full ? "demoted by \(verdict.rule)" : nil
    }

    static let whatTheHostSetStays = Law(name: "L3: a user whom the host made a subscriber after our decision is kept")
    {
        scene,
        input,
        resolution in
        guard scene.type == .subscriber, scene.decidedType == .free, case .verdict(let verdict) = resolution else {
            return nil
        }
        return verdict.action == .demote ? "demoted by \(verdict.rule)" : nil
    }

    static let promisesHoldBackOnlyANo = Law(
        name:
            "74: an event that promised access holds back a no for half a minute, a demotion for two, and nothing else"
    ) {
        scene,
        _,
        resolution in
        let plain = scene.with { $0.accessEventAt = nil }.resolution
        var settles = Duration.seconds(30)
        if case .verdict(let verdict) = plain, verdict.action == .demote { settles = .seconds(120) }
        let isYoung = scene.accessEventAt.map { scene.askedAt < $0 + settles } == true
        var isNo = false
        if case .verdict(let verdict) = plain { isNo = verdict.action != .grant && verdict.outcome != .notEligible }
        guard isYoung, isNo else { return resolution == plain ? nil : "\(resolution)\ninstead of \(plain)" }
        guard case .retry(let failure) = resolution, failure.code == .readLag else { return "believed: \(resolution)" }
        return nil
    }

    static let theUnreadableDecidesNothing = Law(
        name: "L3: what can't be read takes nothing, finds nothing, and holds back no access"
    ) {
        scene,
        _,
        resolution in
        guard !scene.unreadable.isEmpty, case .verdict(let verdict) = resolution else { return nil }
        let plain = scene.with { $0.unreadable = [] }.verdict
        if plain?.action == .grant || verdict.rule != .unreadableItem {
            let isHeard = [.nothingToRestore, .demoted].contains(verdict.outcome) || verdict.rule == .noAccess
            // Without it the reading might not have sufficed for any decision.
            return (plain == nil || plain == verdict) && !isHeard
                ? nil : "\(verdict)\ninstead of \(String(describing: plain))"
        }
        // Where nothing is found, what was typed about the same purchase makes the ticket one that needs a proof.
        let asksNoMore =
            plain.map { plain in
                verdict.tickets.allSatisfy { ticket in
                    plain.tickets.contains {
                        $0 == ticket || $0.kind == .needsProof && $0.purchase != nil && $0.purchase == ticket.purchase
                    }
                }
            } ?? true
        guard verdict.action == .none, asksNoMore else { return "\(verdict)" }
        let fits: Set<Outcome> = scene.type == .subscriber ? [.deferred, .alreadySubscriber] : [.storeUnavailable]
        return fits.contains(verdict.outcome) ? nil : "\(verdict.outcome)"
    }

    /// The scene as the verdict leaves it: the type and the note of absence are written.
    private static func after(_ verdict: Verdict, _ scene: Scene) -> Scene {
        scene.with {
            switch verdict.action {
            case .grant: $0.type = .subscriber
            case .demote: $0.type = .free
            case .none: break
            }
            switch verdict.absence {
            case .keep: break
            case .clear: $0.absentSince = nil
            case .begin(let moment): $0.absentSince = moment
            }
        }
    }
}
