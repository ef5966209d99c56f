package enum CaseVerdict: String, Sendable, CaseIterable, Codable {
    case transfer
    /// The claimant signs in with the account that holds the purchase.
    case guideToLogin = "guide_to_login"
    /// Access until the paid period ends, by a grant; the purchase stays where it is.
    case grantUntilEnd = "grant_until_end"
    case refuse
    /// The store gives the money back.
    case storeRefund = "store_refund"
}

/// What the machine would do with a case, and why; people decide.
///
/// A grant and a store's refund are never suggested: they are what people think of when a transfer is none.
package struct Suggestion: Hashable, Sendable {
    /// `nil`: people have to find out more first.
    package var verdict: CaseVerdict?
    package var reason: Reason

    package enum Reason: String, Sendable, CaseIterable, Codable {
        case nothingToTransfer = "nothing_to_transfer"
        case notTransferable = "not_transferable"
        case claimantIneligible = "claimant_ineligible"
        case purchaseUnknown = "purchase_unknown"
        case unseen
        case heldElsewhere = "held_elsewhere"
        case movesForeign = "moves_foreign"
        case keyMissing = "key_missing"
        case movedLately = "moved_lately"
        case proofFailed = "proof_failed"
        case ownerReleased = "owner_consented"
        case ownerErased = "previous_owner_erased"
        case ownerObjected = "owner_objected"
        case tokenNamesOwner = "token_names_owner"
        case tokenNamesThird = "token_names_third"
        case tokenNamesClaimant = "token_names_claimant"
        case ownerBanned = "owner_banned"
        case sourcesDisagree = "sources_disagree"
        case newPayment = "new_payment"
        case possession
        case noProof = "no_proof"
    }
}

package struct SuggestionRule: Sendable {
    /// Any of these.
    package var facts: Set<TransferFact>
    /// All of these besides.
    package var given: Set<TransferFact>
    package var verdict: CaseVerdict?
    package var reason: Suggestion.Reason

    init(
        _ facts: Set<TransferFact>,
        given: Set<TransferFact> = [],
        _ verdict: CaseVerdict?,
        _ reason: Suggestion.Reason
    ) {
        self.facts = facts
        self.given = given
        self.verdict = verdict
        self.reason = reason
    }

    func holds(_ known: Set<TransferFact>) -> Bool {
        !facts.isDisjoint(with: known) && given.isSubset(of: known)
    }
}

/// The first row that holds is the suggestion: what forbids stands before what speaks for a transfer.
package let suggestionRules: [SuggestionRule] = [
    SuggestionRule([.lapsed, .ownedByClaimant], .refuse, .nothingToTransfer),
    SuggestionRule([.claimantIneligible], .refuse, .claimantIneligible),
    SuggestionRule([.purchaseUnknown], nil, .purchaseUnknown),
    SuggestionRule([.familyShared, .refunded, .chargedBack, .sandbox, .promotional], .refuse, .notTransferable),
    SuggestionRule([.heldElsewhere], nil, .heldElsewhere),
    SuggestionRule([.unseen], nil, .unseen),
    SuggestionRule([.movesForeign], nil, .movesForeign),
    SuggestionRule([.keyMissing], nil, .keyMissing),
    SuggestionRule([.ownerBanned], nil, .ownerBanned),
    SuggestionRule([.ownerObjected], .refuse, .ownerObjected),
    SuggestionRule([.movedLately], nil, .movedLately),
    // Whatever is proven, another user may have proven as much.
    SuggestionRule([.sourcesDisagree], nil, .sourcesDisagree),
    // Who holds the purchase gives it away: nothing is stronger.
    SuggestionRule([.ownerReleased], .transfer, .ownerReleased),
    SuggestionRule([.tokenNamesThird], nil, .tokenNamesThird),
    // No user can sign in to an account that is gone.
    SuggestionRule([.ownerErased], given: [.proofVerified], .transfer, .ownerErased),
    SuggestionRule([.ownerErased], given: [.proofFailed], .refuse, .proofFailed),
    SuggestionRule([.ownerErased], nil, .noProof),
    SuggestionRule([.tokenNamesOwner], .guideToLogin, .tokenNamesOwner),
    SuggestionRule([.tokenNamesClaimant], given: [.proofVerified], .transfer, .tokenNamesClaimant),
    // Money that was just taken from the claimant, or a purchase of a user who shares the store's account.
    SuggestionRule([.boughtAfterClaimantJoined], given: [.proofVerified], nil, .newPayment),
    // A claimant who can submit it may have bought it with another account of their own.
    SuggestionRule([.proofVerified], .guideToLogin, .possession),
    // Beside a proof that holds, one that does not only raises the risk.
    SuggestionRule([.proofFailed], .refuse, .proofFailed),
]

/// What the machine would do with a case: what the first row says; without any, that there is no proof.
package func suggest(_ facts: Set<TransferFact>) -> Suggestion {
    let rule = suggestionRules.first { $0.holds(facts) }
    return Suggestion(verdict: rule?.verdict, reason: rule?.reason ?? .noProof)
}

/// What support may ask a claimant; the rows of the table `desk_question`, to which a team may add.
package enum DeskQuestion: String, Sendable, CaseIterable {
    case proofOfPurchase = "proof_of_purchase"
    case orderNumber = "order_number"
    case whichStore = "which_store"
    /// Whether there is another account in the app.
    case otherAccount = "other_account"
    /// To sign in with that account and restore there.
    case signInThere = "sign_in_there"
}
