// What the facts of a case mean: what hinders a transfer, how many approvals it needs, and what is suggested (Suggestion.swift). Which
// approvals count, and when they end, is decided in sql/functions/desk/approvals.sql alone.

/// What is known of a purchase and its people when a transfer is thought of.
package enum TransferFact: String, Sendable, CaseIterable, Codable {
    case purchaseUnknown = "purchase_unknown"
    /// No store shows the purchase at the moment, and none has said that it is over; or a store whose word counts did not answer.
    case unseen
    /// RevenueCat holds it for a customer who is neither the claimant nor the owner, or who stands for both.
    case heldElsewhere = "held_elsewhere"
    /// The same call would move something that our records give to a third user.
    case movesForeign = "moves_foreign"
    /// RevenueCat would have to move it, and there is no key for that.
    case keyMissing = "key_missing"
    /// The store gives no access any more.
    case lapsed
    case ownedByClaimant = "owned_by_claimant"
    case familyShared = "family_shared"
    case refunded
    /// Money paid for it, or for what moves along with it, was taken back as fraud or by a chargeback.
    case chargedBack = "charged_back"
    case sandbox
    /// Given by RevenueCat or a store, not bought.
    case promotional
    /// The claimant is banned or being deleted, or there is no such user any more.
    case claimantIneligible = "claimant_ineligible"
    /// Moved by an executed transfer less than the cooling period ago.
    case movedLately = "moved_lately"
    /// The owner is banned: the transfer may evade that.
    case ownerBanned = "owner_banned"
    /// The owner's account was erased, or never was one of ours.
    case ownerErased = "owner_erased"
    case ownerObjected = "owner_objected"
    /// The owner released it to this account.
    case ownerReleased = "owner_consented"
    /// A proof that the store verified was shown by the claimant.
    case proofVerified = "proof_verified"
    /// Something the claimant offered as a proof was found false.
    case proofFailed = "proof_failed"
    case tokenNamesClaimant = "token_names_claimant"
    /// The account token on the purchase names the account that holds it.
    case tokenNamesOwner = "token_names_owner"
    /// The account token names neither the claimant nor the owner.
    case tokenNamesThird = "token_names_third"
    /// Bought for the first time after the claimant's account was made.
    case boughtAfterClaimantJoined = "bought_after_claimant_joined"
    case sourcesDisagree = "sources_disagree"

    package var hindrance: TransferHindrance {
        switch self {
        case .lapsed, .ownedByClaimant: .closes
        case .purchaseUnknown, .unseen, .heldElsewhere, .movesForeign, .keyMissing, .familyShared, .refunded,
            .chargedBack, .sandbox, .promotional, .claimantIneligible:
            .forbids
        case .movedLately, .ownerBanned, .ownerObjected: .needsSenior
        case .ownerErased, .ownerReleased, .proofVerified, .proofFailed, .tokenNamesClaimant, .tokenNamesOwner,
            .tokenNamesThird, .boughtAfterClaimantJoined, .sourcesDisagree:
            .none
        }
    }
}

/// What a fact means for a transfer; the graver the later.
package enum TransferHindrance: String, Sendable, CaseIterable, Codable, Comparable {
    case none
    /// Only the senior role may go on.
    case needsSenior = "needs_senior"
    /// No transfer, whatever the operator's role.
    case forbids
    /// There is nothing to transfer: the ticket closes by itself.
    case closes

    package static func < (left: Self, right: Self) -> Bool {
        (allCases.firstIndex(of: left) ?? 0) < (allCases.firstIndex(of: right) ?? 0)
    }
}

package func hindrance(_ facts: Set<TransferFact>) -> TransferHindrance { facts.map(\.hindrance).max() ?? .none }

package struct ApprovalPolicy: Hashable, Sendable {
    package var ordinary: Int
    /// Where the owner's account was erased, so that no user loses anything.
    package var ownerErased: Int
    /// Where something speaks against the claimant.
    package var risky: Int

    package init(ordinary: Int = 2, ownerErased: Int = 2, risky: Int = 2) {
        self.ordinary = ordinary
        self.ownerErased = ownerErased
        self.risky = risky
    }

    /// How many distinct approvers a case needs: what is riskier never needs fewer.
    package func needed(_ facts: Set<TransferFact>) -> Int {
        let erased = facts.contains(.ownerErased)
        let usual = erased ? ownerErased : ordinary
        // A token that names an account which is gone speaks for no user who could lose anything.
        let risks = erased ? Self.risks.subtracting([.tokenNamesOwner]) : Self.risks
        return facts.isDisjoint(with: risks) ? max(usual, 1) : max(usual, risky, 1)
    }

    /// What speaks against a claimant.
    package static let risks: Set<TransferFact> = [
        .proofFailed, .tokenNamesOwner, .tokenNamesThird, .movedLately, .ownerBanned, .ownerObjected, .sourcesDisagree,
    ]
}
