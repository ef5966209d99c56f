/// Why something was not done to a ticket.
package struct DeskRefusal: Hashable, Sendable {
    /// The database's word.
    package var word: String

    package init(_ word: String) { self.word = word }

    /// Whether it was taken down, and others have to do the same before it is done.
    package var isFirstOfSeveral: Bool { word == "second_needed" }

    /// Whether there is a sentence for it.
    package var isKnown: Bool { Self.sentences[word] != nil }

    /// What the operator reads, with what can be done, and without its full stop; `state`: the ticket's, where it is
    /// known.
    package func sentence(state: String?) -> String {
        if word == "state", let state { return "the ticket is \(state), which does not allow this; read it again" }
        return Self.sentences[word] ?? "it could not be done (\(word)); read the ticket again"
    }

    private static let sentences = [
        "own_case": "no operator decides a case of their own account; another operator has to",
        "held": "another operator works on this ticket; wait until the assignment ends, or ask them to unassign it",
        "not_claimed": "claim the ticket first",
        "state": "the ticket's state does not allow it; read the ticket again",
        "not_visible": "the claimant knows nothing of this case, and can be asked nothing",
        "claimant_gone": "the claimant's account is gone, and can be asked nothing",
        "no_evidence": "the evidence has not been collected yet; a worker does it within seconds",
        "evidence_changed": "the evidence has changed since; read it again",
        "evidence_old": "the evidence is too old; refresh it, and read it again",
        "hindrance": "a fact of the evidence forbids a transfer; see the ticket",
        "needs_senior": "a fact of the evidence leaves this transfer to the senior role; see the ticket",
        "not_confirmed":
            "what was confirmed is not what the transfer moves besides; name each of the others, and nothing else, or refuse",
        "approved_already": "you have approved this already; another operator has to",
        "approved": "people have approved it; only an operator who may approve refuses it now",
        "not_approved": "you have not approved it",
        "no_proof": "nothing that a store has verified shows the payment, or the evidence is too old; see the ticket",
        "temporary_access_given_already": "the claimant was given access for this purchase before; decide the case",
        "second_needed":
            "your agreement is on record; another approver, who neither opened the ticket nor took it first, has to decide the same"
            + " on the same evidence",
        "no_period":
            "the purchase gives no access until a day that is known, or the evidence is too old; see the ticket",
        "unsettled": "the last call may still do its work; read the ticket again ten minutes after it",
        "approvals": "not enough people have approved it",
        "expired": "an approval has expired; it has to be approved again",
        "role_lost": "an approver may not approve any more; it has to be approved again",
        "owner_objected": "the owner has objected; the case has to be examined again",
        "waiting_owner": "the owner may still object; see until when in the ticket",
        "no_window": "no time of the owner's is running that could be skipped; see the ticket",
        "only_approver": "only you have approved it; another operator has to approve it, or skip the owner window",
        "no_token": "there is no account token that came to nothing; see the ticket",
        "gone": "there is nothing any more that it could be done to; load the page again",
        "queued_already": "a job of the user is queued already",
        "too_many_reveals":
            "you have seen as many ids as an hour allows; go on with the masked ones, or wait (reveals_per_hour)",
        "paused": "transfers are paused; see entitlement-sync resume transfers",
        "busy": "another transfer of this purchase or from this owner is on its way; try again when it is done",
    ]
}
