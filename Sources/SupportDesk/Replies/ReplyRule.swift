import Entitlements

/// What access a user has, as replies tell it apart.
enum ReplyAccess: Sendable, CaseIterable {
    case none
    /// Without a day on which it ends.
    case open
    case dated

    init(_ user: UserStanding) { self = !user.subscriber ? .none : user.until == nil ? .open : .dated }
}

/// What a user without access most likely writes about; the first that holds.
enum ReplyMatter: Sendable, CaseIterable {
    case `case`
    case moved
    case waiting
    case failed
    /// They had a subscription, which is over.
    case over
    /// The stores were read, and nothing was found.
    case nothingFound
    /// The stores were not read.
    case never

    init(_ user: UserStanding) {
        self =
            if user.case != nil {
                .case
            } else if user.moved {
                .moved
            } else if user.waiting || user.until != nil {
                // Our records hold access that the application's do not: that is no answer yet.
                .waiting
            } else if user.failed {
                .failed
            } else if user.ended != nil {
                .over
            } else if user.reference != nil { .nothingFound } else { .never }
    }
}

/// A row of the table by which replies are chosen; each user fits exactly one.
package struct ReplyRule: Sendable {
    private let accounts: [UserStanding.Account]
    private let accesses: [ReplyAccess]
    private let matters: [ReplyMatter]
    /// `nil`: what the state of the case says.
    private let reason: Replies.Reason?

    package static let rules = [
        ReplyRule(accounts: [.eligible], accesses: [.dated], matters: ReplyMatter.allCases, reason: .activeUntil),
        ReplyRule(accounts: [.eligible], accesses: [.open], matters: ReplyMatter.allCases, reason: .active),
        ReplyRule(accounts: [.eligible], accesses: [.none], matters: [.case], reason: nil),
        ReplyRule(accounts: [.eligible], accesses: [.none], matters: [.moved], reason: .ownerMoved),
        ReplyRule(accounts: [.eligible], accesses: [.none], matters: [.waiting], reason: .stillChecking),
        ReplyRule(accounts: [.eligible], accesses: [.none], matters: [.failed], reason: .storeUnavailable),
        ReplyRule(accounts: [.eligible], accesses: [.none], matters: [.over], reason: .ended),
        ReplyRule(accounts: [.eligible], accesses: [.none], matters: [.nothingFound], reason: .nothingFound),
        ReplyRule(accounts: [.eligible], accesses: [.none], matters: [.never], reason: .notAsked),
        // Whatever the records say of access: none of it is theirs to use.
        ReplyRule(
            accounts: [.barred, .gone],
            accesses: ReplyAccess.allCases,
            matters: ReplyMatter.allCases,
            reason: .notEligible
        ),
    ]

    /// Whether a user is meant.
    package func fits(_ user: UserStanding) -> Bool {
        accounts.contains(user.account) && accesses.contains(ReplyAccess(user))
            && matters.contains(ReplyMatter(user))
    }

    /// What is to be said to them.
    package func says(_ user: UserStanding) -> Replies.Reason? {
        if let reason { return reason }
        // A state that a newer version has added is one in which agents examine it.
        guard let item = user.case else { return nil }
        var verdict = item.verdict.flatMap { CaseVerdict(rawValue: $0) }
        // Access until a day that is over.
        if verdict == .grantUntilEnd, user.until == nil { verdict = .refuse }
        return Replies.Reason(state: TicketState(rawValue: item.state) ?? .new, verdict: verdict)
    }
}
