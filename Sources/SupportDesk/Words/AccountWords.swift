import Foundation

/// What is on record of the store accounts and the sign-in of a case, where people read it.
package enum AccountWords {
    /// A sentence for each fact that is known, with its weight: a store account strengthens a case, and decides none.
    package static func facts(_ facts: DeskTicket.AccountFacts) -> [(words: String, weight: EvidenceWords.Weight)] {
        var lines: [(String, EvidenceWords.Weight)] = []
        switch facts.relation {
        case "same":
            lines.append(("The claimant uses the store account that the purchase was bought with.", .for))
        case "family":
            lines.append(
                (
                    "The claimant and the purchase have different store accounts, and the store shares the product within a"
                        + " family: they may be members of one family, who have an account each.", .known
                )
            )
        case "other":
            lines.append(
                ("The claimant uses another store account than the purchase was bought with.", .known)
            )
        default: break
        }
        if let users = facts.purchaseUsers {
            lines.append(
                ("\(known(users)) to have the store account that the purchase was bought with.", .known)
            )
        }
        if let users = facts.claimantUsers, facts.relation != "same" {
            lines.append(("\(known(users)) to have the store account of the claimant.", .known))
        }
        let since = facts.signedInAt.map { " since \($0.prefix(16).replacing("T", with: " ")) UTC" } ?? ""
        if let provider = facts.provider {
            lines.append(("The claimant requested the restore signed in by \(provider)\(since).", .known))
        } else if !since.isEmpty {
            lines.append(("The claimant requested the restore signed in\(since).", .known))
        }
        return lines
    }

    private static func known(_ users: Int) -> String {
        switch users {
        case 1: "1 of our users is known"
        case 100...: "100 of our users or more are known"
        default: "\(users) of our users are known"
        }
    }
}
