/// Decides one job: a pure function of what was read and what is known, by the first rule that holds.
package func decide(_ input: DecisionInput) -> Resolution {
    guard let user = input.user else {
        return .verdict(
            Verdict(
                rule: .accountGone,
                outcome: .notEligible,
                messageKey: input.kind == .restore ? .accountGone : nil,
                explanation: "The account does not exist any more; nothing was written."
            )
        )
    }
    guard user.status.isEligible else { return .verdict(notEligible(user, input)) }
    if input.attributions.contains(.overtaken) { return .retry(ReadFailure(.overtaken)) }
    let summary = AccessSummary(input)
    if summary.hasAccess || input.grants == .active {
        return .verdict(access(user, summary, input))
    }
    if let failure = ignorance(summary, input) { return .retry(failure) }
    let lapse = user.type == .subscriber ? lapse(summary, input) : nil
    // What was read may be older than what the event speaks of; a yes needs no such care.
    let takesAway = input.kind == .reconcile && lapse?.demotes == true
    if let age = sinceAccessEvent(input), age < (takesAway ? ReadLag.holds : ReadLag.settles) {
        return .retry(ReadFailure(.readLag, retryAfter: max(.seconds(2), age)))
    }
    switch input.kind {
    case .reconcile:
        var verdict = reconcile(lapse, summary, input)
        verdict.detached = summary.detached
        return .verdict(verdict)
    case .restore:
        var verdict = restoreWithoutAccess(lapse, summary, input)
        verdict.detached = summary.detached
        let refusals = input.reading.claims.refusals
        if !refusals.isEmpty {
            verdict.explanation += " What was shown did not verify: \(refusals.joined(separator: ", "))."
        }
        // A mismatch waits for no lookup: whatever that finds, the answer is the same.
        if lapse == nil, verdict.outcome == .nothingToRestore, let failure = input.reading.claims.failure {
            return .retry(failure)
        }
        if verdict.outcome == .storeAccountMismatch, let failure = input.reading.claims.failure {
            verdict.explanation +=
                " A lookup of what was shown failed (\(failure.code.rawValue)): the ticket may not name the purchase."
        }
        return .verdict(verdict)
    }
}

/// Why the reading does not suffice for a no.
private func ignorance(_ summary: AccessSummary, _ input: DecisionInput) -> ReadFailure? {
    var failure = input.reading.failure
    if input.reading.coverage != .full { failure = failure ?? ReadFailure(.incomplete) }
    // What is missing in the catalogue is missing whatever else failed. A store that was not asked is asked first.
    if summary.hasUnmapped, failure.map({ $0.treatment == .retry }) ?? true {
        return ReadFailure(.unmapped, retryAfter: failure?.retryAfter)
    }
    guard input.reading.coverage == .full else { return failure }
    let store = summary.unlistedBy.min { $0.rawValue < $1.rawValue }
    return store.map { ReadFailure(.unknownToStore, store: $0) }
}

/// How long before this reading an event spoke of access.
private func sinceAccessEvent(_ input: DecisionInput) -> Duration? {
    guard input.reading.covered.contains(.revenueCat), let at = input.accessEventAt else { return nil }
    return .microseconds(max(0, input.reading.askedAt.microseconds - at.microseconds))
}

private func notEligible(_ user: User, _ input: DecisionInput) -> Verdict {
    let isDeleting = user.status == .toBeDeleted
    return Verdict(
        rule: .notEligible,
        outcome: .notEligible,
        messageKey: input.kind == .reconcile ? nil : isDeleting ? .notEligibleDeleting : .notEligible,
        explanation: "The account's status is \(user.status.rawValue), so it can gain neither type nor assets."
    )
}

private func access(_ user: User, _ summary: AccessSummary, _ input: DecisionInput) -> Verdict {
    let rule: Rule =
        summary.followedOwner ? .ownerFollowedRevenuecat : summary.hasAccess ? .storeAccess : .grantAccess
    let wasFree = user.type == .free
    let because =
        switch rule {
        case .ownerFollowedRevenuecat:
            "RevenueCat names this user as the owner of a purchase that gives access; it belonged to another account"
                + " before"
        case .storeAccess: "A store says that a purchase of this user gives access"
        default: grantReason(Set(input.activeGrants.map(\.source)).sorted())
        }
    let isAtRisk = summary.hasAccess && !summary.hasPaidAccess && input.grants != .active
    return Verdict(
        rule: rule,
        action: .grant,
        outcome: input.kind == .restore
            ? wasFree ? .restored : .alreadySubscriber : wasFree ? .promoted : .unchanged,
        messageKey: input.kind == .restore ? wasFree ? .restored : .alreadySubscriber : nil,
        absence: .clear,
        tickets: ownershipTickets(input),
        detached: summary.detached,
        entitlements: summary.held.entitlements(input),
        explanation: because + (wasFree ? ", so the user became a subscriber." : ", so the user stays a subscriber.")
            + (isAtRisk ? " It is at risk: the last payment has failed, and the store gives time to mend that." : "")
    )
}

private func grantReason(_ sources: [String]) -> String {
    let others = sources.filter { $0 != "grant" }
    guard !others.isEmpty else { return "A grant by our own people gives access" }
    let own = others.count < sources.count ? ", and so does a grant by our own people" : ""
    return "The host says that the user has access from \(others.joined(separator: " and "))\(own)"
}

private func reconcile(_ lapse: Lapse?, _ summary: AccessSummary, _ input: DecisionInput) -> Verdict {
    let tickets = ownershipTickets(input)
    guard let lapse else {
        if !input.reading.unreadable.isEmpty {
            return Verdict(
                rule: .unreadableItem,
                outcome: .storeUnavailable,
                absence: .clear,
                tickets: tickets,
                explanation: unreadable(input) + " so the user is read again later."
            )
        }
        return Verdict(
            rule: .noAccess,
            outcome: .unchanged,
            absence: .clear,
            tickets: tickets,
            explanation: "No purchase or grant gives access, and the user is free already."
        )
    }
    return Verdict(
        rule: lapse.rule,
        action: lapse.demotes ? .demote : .none,
        outcome: lapse.demotes ? .demoted : .deferred,
        absence: lapse.absence,
        tickets: tickets,
        wasAnnounced: lapse.demotes && summary.wasAnnounced,
        explanation: lapse.explanation
    )
}

private func restoreWithoutAccess(_ lapse: Lapse?, _ summary: AccessSummary, _ input: DecisionInput) -> Verdict {
    let tickets = ownershipTickets(input)
    if let lapse, !lapse.demotes {
        return Verdict(
            rule: lapse.rule,
            outcome: .alreadySubscriber,
            messageKey: .alreadySubscriber,
            absence: lapse.absence,
            tickets: tickets,
            explanation: lapse.explanation
        )
    }
    // Whatever a subscriber without access is answered, the demotion is the reconcile's: it needs the note of the first absence.
    let absence: AbsenceNote = lapse == nil ? .clear : .keep
    let shown = shownTickets(input)
    let contradiction = contradiction(input)
    let clientError = input.reading.claims.clientError
    // The first row whose condition holds.
    let table: [(condition: Bool, refusal: () -> Refusal)] = [
        (
            !shown.isEmpty && contradiction == nil,
            {
                Refusal(
                    rule: .proofOfAnothers,
                    outcome: .storeAccountMismatch,
                    messageKey: .mismatch,
                    tickets: shown,
                    explanation:
                        "A proof was verified, and the purchase belongs to another account; support can examine it."
                )
            }
        ),
        (
            clientError == .receiptAlreadyInUse,
            {
                Refusal(
                    rule: .receiptInUse,
                    outcome: .storeAccountMismatch,
                    messageKey: .mismatch,
                    tickets: [mismatchTicket(input)],
                    explanation:
                        "The store account's purchases belong to another account, as the app's error says; support can"
                        + " examine it."
                )
            }
        ),
        (
            contradiction != nil,
            {
                Refusal(
                    rule: contradiction ?? .identityCollision,
                    outcome: .storeAccountMismatch,
                    messageKey: .mismatch,
                    reconciles: false,
                    explanation:
                        "What the store names as this user's purchase is held by another account; nothing was moved."
                )
            }
        ),
        (
            clientError == .loginDiscarded,
            {
                Refusal(
                    rule: .clientLoginDiscarded,
                    outcome: .storeUnavailable,
                    messageKey: .signInNeeded,
                    explanation: "The user left the store's login, and no other store gives access."
                )
            }
        ),
        (
            clientError == .appNotRegistered,
            {
                Refusal(
                    rule: .clientAppNotRegistered,
                    outcome: .storeUnavailable,
                    messageKey: .unavailable,
                    explanation:
                        "The store does not know the app: its configuration has to be checked. No other store gives access."
                )
            }
        ),
        (
            lapse != nil,
            {
                Refusal(
                    rule: lapse?.rule ?? .noAccess,
                    outcome: .nothingToRestore,
                    messageKey: endedKey(summary),
                    explanation: (lapse?.explanation ?? "") + " A restore never takes access away; a reconcile follows."
                )
            }
        ),
        (
            !input.reading.unreadable.isEmpty,
            {
                Refusal(
                    rule: .unreadableItem,
                    outcome: .storeUnavailable,
                    messageKey: .unavailable,
                    explanation: unreadable(input) + " so the user is read again later."
                )
            }
        ),
        (
            summary.hasAnonymous,
            {
                Refusal(
                    rule: .anonymousOwner,
                    outcome: .nothingToRestore,
                    messageKey: .restoreInAppSignedIn,
                    tickets: unprovenTickets(input),
                    explanation:
                        "A purchase is held by an anonymous customer; a restore in the app while signed in attaches it."
                )
            }
        ),
    ]
    let refusal = table.first(where: \.condition)?.refusal() ?? nothing(summary, input)
    return Verdict(
        rule: refusal.rule,
        outcome: refusal.outcome,
        messageKey: refusal.messageKey,
        absence: absence,
        tickets: refusal.tickets.reduce(tickets) { adding($1, to: $0) },
        enqueuesReconcile: refusal.reconciles && lapse != nil,
        explanation: refusal.explanation
    )
}

/// What a restore is answered where no store gives access.
private struct Refusal {
    var rule: Rule
    var outcome: Outcome
    var messageKey: MessageKey
    /// Beside those that ownership brings about.
    var tickets: [TicketRequest] = []
    /// Whether a reconcile follows for a user who is a subscriber still.
    var reconciles = true
    var explanation: String
}

/// The answer where every store was read to the end, and nothing of it is the user's.
private func nothing(_ summary: AccessSummary, _ input: DecisionInput) -> Refusal {
    let key = nothingKey(summary, input)
    let explanation =
        switch key {
        case .nothingSandbox:
            "Every store was read to the end; purchases of a store's sandbox do not count for this user."
        case .nothingOtherStoreAccount:
            "Every store was read to the end, and none gives this user access; no purchase of the user is on record under"
                + " the store account of the device."
        default: "Every store was read to the end, and none gives this user access."
        }
    return Refusal(
        rule: .noAccess,
        outcome: .nothingToRestore,
        messageKey: key,
        tickets: unprovenTickets(input),
        explanation: explanation
    )
}

/// Tickets for what the claimant reported, and no proof shows.
private func unprovenTickets(_ input: DecisionInput) -> [TicketRequest] {
    unattributedTickets(input) + [needsProofTicket(input)].compactMap(\.self)
}

/// The most helpful thing to say to a subscriber whose purchases are over, as long as the type stands.
private func endedKey(_ summary: AccessSummary) -> MessageKey {
    if summary.endedWords.contains(.inBillingRetry) { return .nothingEndedBillingRetry }
    if summary.endedWords.contains(.paused) { return .nothingEndedPaused }
    return .nothingEnded
}

/// The most helpful thing to say about purchases that give no access; a card to update beats "nothing found".
private func nothingKey(_ summary: AccessSummary, _ input: DecisionInput) -> MessageKey {
    let words = summary.endedWords.union(summary.unownedEndedWords)
    if words.contains(.inBillingRetry) { return .nothingBillingRetry }
    if summary.hasPending { return .nothingPendingPayment }
    if words.contains(.paused) { return .nothingPaused }
    if words.contains(.refunded) { return .nothingRefunded }
    if words.contains(.expired) { return .nothingExpired }
    if summary.hasSandboxOnly { return .nothingSandbox }
    return input.usesOtherStoreAccount ? .nothingOtherStoreAccount : .nothing
}
