/// Decides one job: a pure function of what was read and what is known, by the first rule that holds.
package func decide(_ situation: Situation) -> Resolution {
    guard let user = situation.user else {
        return .verdict(
            Verdict(
                .accountGone,
                outcome: .notEligible,
                messageKey: situation.kind == .restore ? .accountGone : nil,
                explanation: "The account does not exist any more; nothing was written."
            )
        )
    }
    guard user.status.isEligible else { return .verdict(notEligible(user, situation)) }
    if situation.attributions.contains(.overtaken) { return .retry(ReadFailure(.overtaken)) }
    let evidence = Evidence(situation)
    if evidence.hasAccess || situation.grants == .active {
        return .verdict(access(user, evidence, situation))
    }
    if let failure = ignorance(evidence, situation) { return .retry(failure) }
    let lapse = user.type == .subscriber ? lapse(evidence, situation) : nil
    // What was read may be older than what the event speaks of; a yes needs no such care.
    let takesAway = situation.kind == .reconcile && lapse?.demotes == true
    if let age = promiseAge(situation), age < (takesAway ? Promise.holds : Promise.settles) {
        return .retry(ReadFailure(.promised, retryAfter: max(.seconds(2), age)))
    }
    switch situation.kind {
    case .reconcile:
        var verdict = reconcile(lapse, evidence, situation)
        verdict.detached = evidence.detached
        return .verdict(verdict)
    case .restore:
        var verdict = restoreWithoutAccess(lapse, evidence, situation)
        verdict.detached = evidence.detached
        let refusals = situation.reading.claims.refusals
        if !refusals.isEmpty {
            verdict.explanation += " What was shown did not verify: \(refusals.joined(separator: ", "))."
        }
        // A mismatch waits for no lookup: whatever that finds, the answer is the same.
        if lapse == nil, verdict.outcome == .nothingToRestore, let failure = situation.reading.claims.failure {
            return .retry(failure)
        }
        if verdict.outcome == .storeAccountMismatch, let failure = situation.reading.claims.failure {
            verdict.explanation +=
                " A lookup of what was shown failed (\(failure.code.rawValue)): the ticket may not name the purchase."
        }
        return .verdict(verdict)
    }
}

/// Why the reading does not suffice for a no.
private func ignorance(_ evidence: Evidence, _ situation: Situation) -> ReadFailure? {
    var failure = situation.reading.failure
    if situation.reading.coverage != .full { failure = failure ?? ReadFailure(.incomplete) }
    // What is missing in the catalogue is missing whatever else failed. A store that was not asked is asked first.
    if evidence.hasUnmapped, failure.map({ $0.treatment == .retry }) ?? true {
        return ReadFailure(.unmapped, retryAfter: failure?.retryAfter)
    }
    guard situation.reading.coverage == .full else { return failure }
    let store = evidence.unlistedBy.min { $0.rawValue < $1.rawValue }
    return store.map { ReadFailure(.unknownToStore, store: $0) }
}

/// How long before this reading an event spoke of access.
private func promiseAge(_ situation: Situation) -> Duration? {
    guard situation.reading.covered.contains(.revenueCat), let at = situation.promisedAt else { return nil }
    return .microseconds(max(0, situation.reading.askedAt.microseconds - at.microseconds))
}

private func notEligible(_ user: User, _ situation: Situation) -> Verdict {
    let isDeleting = user.status == .toBeDeleted
    return Verdict(
        .notEligible,
        outcome: .notEligible,
        messageKey: situation.kind == .reconcile ? nil : isDeleting ? .notEligibleDeleting : .notEligible,
        explanation: "The account's status is \(user.status.rawValue), so it can gain neither type nor assets."
    )
}

private func access(_ user: User, _ evidence: Evidence, _ situation: Situation) -> Verdict {
    let rule: Rule =
        evidence.followedOwner ? .ownerFollowedRevenuecat : evidence.hasAccess ? .storeAccess : .grantAccess
    let wasFree = user.type == .free
    let because =
        switch rule {
        case .ownerFollowedRevenuecat:
            "RevenueCat names this user as the owner of a purchase that gives access; it belonged to another account"
                + " before"
        case .storeAccess: "A store says that a purchase of this user gives access"
        default: "A grant by our own people gives access"
        }
    let isAtRisk = evidence.hasAccess && !evidence.hasPaidAccess && situation.grants != .active
    var verdict = Verdict(
        rule,
        .grant,
        outcome: situation.kind == .restore
            ? wasFree ? .restored : .alreadySubscriber : wasFree ? .promoted : .unchanged,
        messageKey: situation.kind == .restore ? wasFree ? .restored : .alreadySubscriber : nil,
        absence: .clear,
        tickets: ownershipTickets(situation),
        explanation: because + (wasFree ? ", so the user became a subscriber." : ", so the user stays a subscriber.")
            + (isAtRisk ? " It is at risk: the last payment has failed, and the store gives time to mend that." : "")
    )
    verdict.detached = evidence.detached
    return verdict
}

private func reconcile(_ lapse: Lapse?, _ evidence: Evidence, _ situation: Situation) -> Verdict {
    let tickets = ownershipTickets(situation)
    guard let lapse else {
        if !situation.reading.unreadable.isEmpty {
            return Verdict(
                .unreadableItem,
                outcome: .storeUnavailable,
                absence: .clear,
                tickets: tickets,
                explanation: unreadable(situation) + " so the user is read again later."
            )
        }
        return Verdict(
            .noAccess,
            outcome: .unchanged,
            absence: .clear,
            tickets: tickets,
            explanation: "No purchase or grant gives access, and the user is free already."
        )
    }
    return Verdict(
        lapse.rule,
        lapse.demotes ? .demote : .none,
        outcome: lapse.demotes ? .demoted : .deferred,
        absence: lapse.absence,
        tickets: tickets,
        wasAnnounced: lapse.demotes && evidence.wasAnnounced,
        explanation: lapse.explanation
    )
}

private func restoreWithoutAccess(_ lapse: Lapse?, _ evidence: Evidence, _ situation: Situation) -> Verdict {
    let tickets = ownershipTickets(situation)
    if let lapse, !lapse.demotes {
        return Verdict(
            lapse.rule,
            outcome: .alreadySubscriber,
            messageKey: .alreadySubscriber,
            absence: lapse.absence,
            tickets: tickets,
            explanation: lapse.explanation
        )
    }
    // Whatever a subscriber without access is answered, the demotion is the reconcile's: it needs the note of the first absence.
    let absence: AbsenceNote = lapse == nil ? .clear : .keep
    let shown = shownTickets(situation)
    let contradiction = contradiction(situation)
    let clientError = situation.reading.claims.clientError
    // The first row whose condition holds.
    let table: [(condition: Bool, refusal: () -> Refusal)] = [
        (
            !shown.isEmpty && contradiction == nil,
            {
                Refusal(
                    .proofOfAnothers,
                    .storeAccountMismatch,
                    .mismatch,
                    tickets: shown,
                    "A proof was verified, and the purchase belongs to another account; support can examine it."
                )
            }
        ),
        (
            clientError == .receiptAlreadyInUse,
            {
                Refusal(
                    .receiptInUse,
                    .storeAccountMismatch,
                    .mismatch,
                    tickets: [mismatchTicket(situation)],
                    "The store account's purchases belong to another account, as the app's error says; support can"
                        + " examine it."
                )
            }
        ),
        (
            contradiction != nil,
            {
                Refusal(
                    contradiction ?? .identityCollision,
                    .storeAccountMismatch,
                    .mismatch,
                    reconciles: false,
                    "What the store names as this user's purchase is held by another account; nothing was moved."
                )
            }
        ),
        (
            clientError == .loginDiscarded,
            {
                Refusal(
                    .clientLoginDiscarded,
                    .storeUnavailable,
                    .signInNeeded,
                    "The user left the store's login, and no other store gives access."
                )
            }
        ),
        (
            clientError == .appNotRegistered,
            {
                Refusal(
                    .clientAppNotRegistered,
                    .storeUnavailable,
                    .unavailable,
                    "The store does not know the app: its configuration has to be checked. No other store gives access."
                )
            }
        ),
        (
            lapse != nil,
            {
                Refusal(
                    lapse?.rule ?? .noAccess,
                    .nothingToRestore,
                    endedKey(evidence),
                    (lapse?.explanation ?? "") + " A restore never takes access away; a reconcile follows."
                )
            }
        ),
        (
            !situation.reading.unreadable.isEmpty,
            {
                Refusal(
                    .unreadableItem,
                    .storeUnavailable,
                    .unavailable,
                    unreadable(situation) + " so the user is read again later."
                )
            }
        ),
        (
            evidence.hasAnonymous,
            {
                Refusal(
                    .anonymousOwner,
                    .nothingToRestore,
                    .restoreInAppSignedIn,
                    tickets: unprovenTickets(situation),
                    "A purchase is held by an anonymous customer; a restore in the app while signed in attaches it."
                )
            }
        ),
    ]
    let refusal = table.first(where: \.condition)?.refusal() ?? nothing(evidence, situation)
    return Verdict(
        refusal.rule,
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
    var tickets: [TicketRequest]
    /// Whether a reconcile follows for a user who is a subscriber still.
    var reconciles: Bool
    var explanation: String

    init(
        _ rule: Rule,
        _ outcome: Outcome,
        _ messageKey: MessageKey,
        tickets: [TicketRequest] = [],
        reconciles: Bool = true,
        _ explanation: String
    ) {
        self.rule = rule
        self.outcome = outcome
        self.messageKey = messageKey
        self.tickets = tickets
        self.reconciles = reconciles
        self.explanation = explanation
    }
}

/// The answer where every store was read to the end, and nothing of it is the user's.
private func nothing(_ evidence: Evidence, _ situation: Situation) -> Refusal {
    let key = nothingKey(evidence)
    return Refusal(
        .noAccess,
        .nothingToRestore,
        key,
        tickets: unprovenTickets(situation),
        key == .nothingSandbox
            ? "Every store was read to the end; purchases of a store's sandbox do not count for this user."
            : "Every store was read to the end, and none gives this user access."
    )
}

/// Tickets for what the claimant reported, and no proof shows.
private func unprovenTickets(_ situation: Situation) -> [TicketRequest] {
    unattributedTickets(situation) + [needsProofTicket(situation)].compactMap(\.self)
}

/// The most helpful thing to say to a subscriber whose purchases are over, as long as the type stands.
private func endedKey(_ evidence: Evidence) -> MessageKey {
    if evidence.endedWords.contains(.inBillingRetry) { return .nothingEndedBillingRetry }
    if evidence.endedWords.contains(.paused) { return .nothingEndedPaused }
    return .nothingEnded
}

/// The most helpful thing to say about purchases that give no access; a card to update beats "nothing found".
private func nothingKey(_ evidence: Evidence) -> MessageKey {
    let words = evidence.endedWords.union(evidence.unownedEndedWords)
    if words.contains(.inBillingRetry) { return .nothingBillingRetry }
    if evidence.hasPending { return .nothingPendingPayment }
    if words.contains(.paused) { return .nothingPaused }
    if words.contains(.refunded) { return .nothingRefunded }
    if words.contains(.expired) { return .nothingExpired }
    if evidence.hasSandboxOnly { return .nothingSandbox }
    return .nothing
}
