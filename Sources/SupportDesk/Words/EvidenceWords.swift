package import Entitlements
import Foundation

/// What the evidence says, where people read it.
package enum EvidenceWords {
    /// Which way a fact points.
    package enum Weight: String, Sendable, CaseIterable {
        /// Speaks against a transfer, or forbids it.
        case against
        /// Speaks for it.
        case `for`
        /// Has to be known.
        case known
    }

    /// A fact as a sentence, and which way it points.
    package static func fact(_ fact: TransferFact) -> (words: String, weight: Weight) {
        switch fact {
        case .purchaseUnknown: ("It is not known yet which purchase it is.", .against)
        case .unseen: ("No store shows the purchase at the moment, or a store that has to answer did not.", .against)
        case .heldElsewhere:
            (
                "RevenueCat holds it for a customer who is neither the claimant nor the owner, or both of them at once.",
                .against
            )
        case .movesForeign: ("The same call would move something of a third user.", .against)
        case .keyMissing:
            ("RevenueCat would have to move it, and no key for that is set (REVENUECAT_TRANSFER_API_KEY).", .against)
        case .lapsed: ("The store gives no access any more: there is nothing to transfer.", .against)
        case .ownedByClaimant: ("The claimant owns it already.", .known)
        case .familyShared: ("It is shared within a family, not bought: it can't be transferred.", .against)
        case .refunded: ("It was refunded or revoked.", .against)
        case .chargedBack:
            ("Money paid for it, or for what would move along, was taken back as fraud or by a chargeback.", .against)
        case .sandbox: ("It is a sandbox purchase.", .against)
        case .promotional: ("It was given, not bought.", .against)
        case .claimantIneligible: ("The claimant's account is banned, being deleted, or gone.", .against)
        case .movedLately: ("It was moved by a transfer a short while ago.", .against)
        case .ownerBanned: ("The owner is banned: the claimant may be evading that.", .against)
        case .ownerErased: ("The owner's account was erased, or never was one of ours.", .known)
        case .ownerObjected: ("The owner objected.", .against)
        case .ownerReleased: ("The owner gave consent to the claimant.", .for)
        case .proofVerified: ("The claimant submitted a proof that the store verified.", .for)
        case .proofFailed: ("Something that the claimant offered as a proof was found false.", .against)
        case .tokenNamesClaimant: ("The account token on the purchase names the claimant.", .for)
        case .tokenNamesOwner: ("The account token on the purchase names the owner.", .against)
        case .tokenNamesThird: ("The account token on the purchase names a third account.", .against)
        case .boughtAfterClaimantJoined: ("It was bought after the claimant's account was made.", .known)
        case .sourcesDisagree: ("The stores do not agree whose it is.", .against)
        }
    }

    /// The sentences of the facts that forbid a transfer; with none of them, it is a chargeback that came after the evidence.
    static func forbidding(_ facts: [String]) -> String {
        let known = facts.compactMap(TransferFact.init).filter { $0.hindrance >= .forbids }
        return (known.isEmpty ? [.chargedBack] : known).map { fact($0).words }.joined(separator: " ")
    }

    /// Why the machine suggests what it suggests, as a sentence.
    package static func reason(_ reason: Suggestion.Reason) -> String {
        switch reason {
        case .nothingToTransfer: "There is nothing to transfer."
        case .notTransferable: "Purchases of this kind can't be transferred."
        case .claimantIneligible: "The claimant's account may not receive a purchase."
        case .purchaseUnknown: "The purchase has to be found first."
        case .unseen: "The stores have to show the purchase first."
        case .heldElsewhere: "RevenueCat's records have to be sorted out first."
        case .movesForeign: "A third user would lose something."
        case .keyMissing: "RevenueCat can't be asked to move it from here."
        case .movedLately: "It was moved a short while ago; a senior decides."
        case .proofFailed: "A proof was found false."
        case .ownerReleased: "The owner gave it away; nothing is stronger."
        case .ownerErased: "The account that holds it can no longer sign in, and the claimant has proof."
        case .ownerObjected: "The owner objected."
        case .tokenNamesOwner: "The purchase was made for the account that holds it."
        case .tokenNamesThird: "The purchase was made for a third account."
        case .tokenNamesClaimant: "The purchase was made for the claimant, who has proof."
        case .ownerBanned: "The owner is banned; a senior decides."
        case .sourcesDisagree: "The stores do not agree; find out why first."
        case .newPayment: "Money was taken lately; find out whose."
        case .possession: "The claimant holds the store's account: perhaps another account of theirs is the owner."
        case .noProof: "Nothing proves yet that it is the claimant's."
        }
    }

    /// What a source answered, as a sentence.
    package static func source(_ source: CaseSource) -> String {
        let name = source.store.name
        switch source.result {
        case .found: return "\(name) shows the purchase."
        case .unknown: return "\(name) answered, and does not know the purchase."
        case .notConfigured: return "\(name) is not configured."
        case .unavailable:
            let since =
                source.since.map { " since \(Date(timeIntervalSince1970: Double($0) / 1_000_000).formatted(.iso8601))" }
                ?? ""
            let error = source.error.map { " (\($0))" } ?? ""
            return "\(name) has not answered\(since)\(error). It is asked again; no transfer begins until it answers."
        }
    }

    /// What a hindrance means, as a sentence; `nil`: nothing hinders.
    package static func hindrance(_ hindrance: TransferHindrance) -> String? {
        switch hindrance {
        case .none: nil
        case .needsSenior: "Only a senior may approve a transfer here."
        case .forbids: "A transfer is not possible as things are."
        case .closes: "There is nothing to transfer; the ticket closes by itself."
        }
    }
}
