/// What becomes of a subscriber without access after a full read.
struct Lapse: Hashable, Sendable {
    var rule: Rule
    var demotes = false
    var absence = AbsenceNote.keep
    var explanation: String
}

/// Decides between demotion and deferral.
///
/// Demotion asks for a store's word, for silence twice, a margin apart, or for a transfer to another user.
func lapse(_ summary: AccessSummary, _ input: DecisionInput) -> Lapse {
    let natural = naturalLapse(summary, input)
    guard natural.demotes else { return natural }
    guard !input.isSetByHost else {
        return Lapse(
            rule: .unexplained,
            explanation:
                "The application made the user a subscriber after our last decision, which found no access; operators"
                + " have to examine it."
        )
    }
    if input.settings.mode == .promoteOnly {
        return held(natural, by: .promoteOnly, "The worker runs in promote_only mode, so no user is demoted.")
    }
    if input.settings.demotionsPaused {
        return held(natural, by: .demotionsPaused, "Demotions are paused, so the user stays a subscriber.")
    }
    return natural
}

private func held(_ lapse: Lapse, by rule: Rule, _ reason: String) -> Lapse {
    // The note stays: nothing was acted on, and a second read of the same facts must come to the same verdict.
    Lapse(rule: rule, explanation: lapse.explanation + " " + reason)
}

private func naturalLapse(_ summary: AccessSummary, _ input: DecisionInput) -> Lapse {
    if summary.hasContradiction {
        return Lapse(
            rule: contradiction(input) ?? .sourcesDisagree,
            explanation: "The sources disagree about who owns a purchase, so nothing is taken away."
        )
    }
    if !input.reading.unreadable.isEmpty {
        return Lapse(rule: .unreadableItem, explanation: unreadable(input) + " so nothing is taken away.")
    }
    if summary.hasUnknownStatus {
        return Lapse(
            rule: .unknownStatus,
            explanation: "A store gave a status we do not know; that is no word that access is over."
        )
    }
    if summary.unaskedItems > 0 {
        return Lapse(
            rule: .storeNotAsked,
            explanation:
                "A store that gave access before is not configured any more, so it is not known whether it is over."
        )
    }
    if !summary.detached.isEmpty {
        return Lapse(
            rule: .entitlementDetached,
            explanation: "A purchase goes on at the store without the entitlement that it carried"
                + " (\(summary.detached.sorted().joined(separator: ", "))): it was detached from its product, which is no word"
                + " that access is over."
        )
    }
    if summary.openItems > 0 {
        if let end = summary.softWindowEnds, input.reading.askedAt < end {
            return Lapse(
                rule: .softWindow,
                absence: beginning(input),
                explanation: "The paid period ended a short while ago and the store has not said that it is over."
            )
        }
        return absence(summary, input)
    }
    if !summary.endedWords.isEmpty {
        let words = summary.endedWords.map(\.rawValue).sorted().joined(separator: ", ")
        return Lapse(
            rule: .storeEnded,
            demotes: true,
            absence: .clear,
            explanation: "The store says that every purchase of the user is over (\(words))."
        )
    }
    if let moved = input.movedAwayAt, moved <= input.reading.askedAt {
        return Lapse(
            rule: .movedAway,
            demotes: true,
            absence: .clear,
            explanation:
                "The user's purchase was moved to another account, by support or by RevenueCat's word, and nothing"
                + " else gives access."
        )
    }
    guard input.isExplained else {
        return Lapse(
            rule: .unexplained,
            explanation: "No purchase or grant was ever seen for this subscriber; operators have to examine it."
        )
    }
    return absence(summary, input)
}

/// Which stores listed something of which it is not known whether it gives access; a clause that goes on.
func unreadable(_ input: DecisionInput) -> String {
    let stores = input.reading.unreadable.map(\.name).sorted().joined(separator: ", ")
    return "An item of the user's can't be read (\(stores)): whether it gives access is not known,"
}

private func beginning(_ input: DecisionInput) -> AbsenceNote {
    input.absentSince == nil ? .begin(input.reading.askedAt) : .keep
}

private func absence(_ summary: AccessSummary, _ input: DecisionInput) -> Lapse {
    guard let since = input.absentSince else {
        return Lapse(
            rule: .firstAbsence,
            absence: .begin(input.reading.askedAt),
            explanation: "Every store was read to the end and none gives access; one absence does not demote."
        )
    }
    guard since + summary.margin <= input.reading.askedAt else {
        return Lapse(
            rule: .absenceMargin,
            explanation: "No store gives access, but the first such reading is too recent to act on."
        )
    }
    return Lapse(
        rule: .absenceConfirmed,
        demotes: true,
        absence: .clear,
        explanation: "Two full readings, a margin apart, found no purchase or grant that gives access."
    )
}
