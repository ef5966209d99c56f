package enum JobKind: Int16, Sendable, CaseIterable {
    case restore = 0
    case reconcile = 1
}

/// How a job ended, as others read it.
package enum Outcome: String, Sendable, CaseIterable {
    // A restore's, in this precedence.
    case notEligible = "not_eligible"
    case restored
    case alreadySubscriber = "already_subscriber"
    case storeAccountMismatch = "store_account_mismatch"
    case storeUnavailable = "store_unavailable"
    case nothingToRestore = "nothing_to_restore"
    // A reconcile's, beside `not_eligible` and `store_unavailable`.
    case promoted, demoted, unchanged, deferred
}

/// What the app says, finer than the outcome.
package enum MessageKey: String, Sendable, CaseIterable {
    case restored
    case restoredAssetsPending = "restored.assets_pending"
    case alreadySubscriber = "already_subscriber"
    case nothing
    case nothingExpired = "nothing.expired"
    case nothingBillingRetry = "nothing.billing_retry"
    case nothingRefunded = "nothing.refunded"
    case nothingPaused = "nothing.paused"
    case nothingPendingPayment = "nothing.pending_payment"
    case nothingEnded = "nothing.ended"
    case nothingEndedBillingRetry = "nothing.ended.billing_retry"
    case nothingEndedPaused = "nothing.ended.paused"
    case nothingSandbox = "nothing.sandbox"
    case nothingOtherStoreAccount = "nothing.other_store_account"
    case restoreInAppSignedIn = "restore_in_app_signed_in"
    case signInNeeded = "sign_in_needed"
    case mismatch
    case unavailable
    case notEligible = "not_eligible"
    case notEligibleDeleting = "not_eligible.deleting"
    case accountGone = "account_gone"
    case stillChecking = "still_checking"
}

package enum Rule: String, Sendable, CaseIterable {
    case accountGone = "account_gone"
    case notEligible = "not_eligible"
    case storeAccess = "store_access"
    case grantAccess = "grant_access"
    case ownerFollowedRevenuecat = "owner_followed_revenuecat"
    case clientLoginDiscarded = "client_login_discarded"
    case clientAppNotRegistered = "client_app_not_registered"
    case receiptInUse = "receipt_already_in_use"
    case proofOfAnothers = "proof_of_anothers"
    case identityCollision = "identity_collision"
    case sourcesDisagree = "sources_disagree"
    case anonymousOwner = "anonymous_owner"
    case noAccess = "no_access"
    case unknownStatus = "unknown_status"
    case unreadableItem = "unreadable_item"
    case unexplained
    case softWindow = "soft_window"
    case firstAbsence = "first_absence"
    case absenceMargin = "absence_margin"
    case absenceConfirmed = "absence_confirmed"
    case movedAway = "moved_away"
    case storeEnded = "store_ended"
    case storeNotAsked = "store_not_asked"
    /// A purchase goes on at the store without the entitlement that it carried before.
    case entitlementDetached = "entitlement_detached"
    case promoteOnly = "promote_only"
    case demotionsPaused = "demotions_paused"
    case brake
    /// One of a run's demotions, which are written together or not at all.
    case proposed

    /// Whether the rule holds a demotion for the mode, a pause, the brake or a run: another rule may decide later though the stores' facts
    /// stay the same.
    package var holdsDemotion: Bool {
        switch self {
        case .promoteOnly, .demotionsPaused, .brake, .proposed: true
        default: false
        }
    }
}

/// What happens to the user's type and assets.
package enum Action: String, Sendable, CaseIterable {
    case none
    /// Access is there: the type becomes or stays `subscriber`, and lapse-frozen assets come back.
    case grant
    /// Access is gone: the type becomes `free`, assets freeze.
    case demote

    /// The type that it gives the user.
    var type: UserType? {
        switch self {
        case .none: nil
        case .grant: .subscriber
        case .demote: .free
        }
    }
}

/// What becomes of the note that a full read found no access and no word.
package enum AbsenceNote: Hashable, Sendable {
    case keep
    case clear
    case begin(Instant)
}

/// A ticket that the verdict opens or touches.
package struct TicketRequest: Hashable, Sendable {
    package enum Kind: String, Sendable, CaseIterable {
        case ownerMismatch = "owner_mismatch"
        case paidNoAccess = "paid_no_access"
        case needsProof = "needs_proof"
        /// An event named its owner, who submitted nothing, a short while before the claimant submitted it.
        case firstSeenElsewhere = "first_seen_elsewhere"
        case identityCollision = "identity_collision"
        case sourcesDisagree = "sources_disagree"
        case externalTransfer = "external_transfer"
        case onsideUnattributed = "onside_unattributed"
    }

    package var kind: Kind
    package var purchase: Int64?
    package var ownerKey: Int64?
    package var ownerID: String?
    package var store: String?
    package var originalID: String?
    /// When the store takes the sale back, so that the case has to be decided before.
    package var deadline: Instant?
    /// Money was taken a moment ago.
    package var isUrgent = false
    /// The claimant has shown a proof.
    package var isSubmitted = true

    package init(
        kind: Kind,
        purchase: Int64? = nil,
        ownerKey: Int64? = nil,
        ownerID: String? = nil,
        store: String? = nil,
        originalID: String? = nil,
        deadline: Instant? = nil,
        isUrgent: Bool = false,
        isSubmitted: Bool = true
    ) {
        self.kind = kind
        self.purchase = purchase
        self.ownerKey = ownerKey
        self.ownerID = ownerID
        self.store = store
        self.originalID = originalID
        self.deadline = deadline
        self.isUrgent = isUrgent
        self.isSubmitted = isSubmitted
    }

    package var isVisible: Bool {
        switch kind {
        case .ownerMismatch, .paidNoAccess, .firstSeenElsewhere, .identityCollision, .sourcesDisagree: true
        // A claimant who only reported an id must not learn that there is such an order.
        case .onsideUnattributed: isSubmitted
        case .needsProof, .externalTransfer: false
        }
    }

    /// 0 comes first.
    package var priority: Int16 {
        if isUrgent { return 0 }
        switch kind {
        case .paidNoAccess, .firstSeenElsewhere, .identityCollision: return 0
        case .ownerMismatch, .sourcesDisagree, .onsideUnattributed: return 1
        case .needsProof, .externalTransfer: return 2
        }
    }
}

/// What was decided for one job, and by which rule.
package struct Verdict: Hashable, Sendable {
    package var rule: Rule
    package var action = Action.none
    package var outcome: Outcome
    package var messageKey: MessageKey?
    package var absence = AbsenceNote.keep
    package var tickets: [TicketRequest] = []
    /// A reconcile of the user follows.
    package var enqueuesReconcile = false
    /// The end was announced before it came: the brake does not count it.
    package var wasAnnounced = false
    /// Entitlements that were detached from products of purchases that go on at the store.
    package var detached: Set<String> = []
    /// What gives the user access, where the action is `grant`.
    package var entitlements: [HeldEntitlement] = []
    package var explanation: String
}

/// What a job comes to: a verdict, or another try.
package enum Resolution: Hashable, Sendable {
    case verdict(Verdict)
    case retry(ReadFailure)
}
