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
