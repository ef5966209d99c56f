/// What became of telling the App Store whose a transferred purchase is, where people read it.
package enum TokenWords {
    /// In a sentence or two, with what can be done.
    package static func sentence(_ token: DeskTicket.Token) -> String {
        let reason = token.reason.map { reasons[$0] ?? TicketWords.plain($0).lowercased() }
        switch token.state {
        case "set": return "The App Store names the claimant from the current period on."
        case "due":
            guard let reason else { return "A worker notifies the App Store of the owner." }
            return
                "A worker notifies the App Store of the owner; \(token.tries) \(tries(token)) came to nothing (\(reason))."
        case "skipped": return "The App Store was not given the account token: \(reason ?? "nothing to tell"). \(echo)"
        case "refused":
            return "The App Store does not take the claimant's account token: \(reason ?? "refused"). \(echo)"
        case "given_up":
            return "The App Store gave no answer to the claimant's account token in \(token.tries) \(tries(token)) "
                + "(\(reason ?? "unknown")). Check its key and its status page, and try again. \(echo)"
        default: return TicketWords.plain(token.state)
        }
    }

    /// Whether it came to nothing, so that it may be tried again.
    package static func mayTryAgain(_ token: DeskTicket.Token) -> Bool {
        ["skipped", "refused", "given_up"].contains(token.state)
    }

    private static func tries(_ token: DeskTicket.Token) -> String { token.tries == 1 ? "try" : "tries" }

    private static let echo = "It goes on naming the account that it named; our records stand above that."

    private static let reasons = [
        "app_store_off": "there is no key for it (APP_STORE_PRIVATE_KEY)",
        "token_unknown": "it is unknown which token the claimant's app would give (see ACCOUNT_ID_NAMESPACE)",
        "claimant_gone": "the claimant's account is gone",
        "moved_on": "the purchase is another user's by now",
        "purchase_unknown": "none of its ids for the purchase is known",
        "family_shared": "it is shared within a family",
        "not_original": "it knows the purchase by another first transaction",
        "unknown": "it does not know the purchase",
        "rejected": "it refuses the request",
        "unauthorized": "our key is refused",
        "throttled": "too many requests",
        "unavailable": "it does not answer as it should",
        "timeout": "no answer in time",
        "malformed": "what answered is not the App Store",
        "breaker_open": "it is being left alone after failures",
        "budget_exhausted": "no request was left for it",
    ]
}
