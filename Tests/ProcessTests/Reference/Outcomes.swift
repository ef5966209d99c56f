import Entitlements

/// What a word of an answer means, why it came, and what to do about it.
struct Meaning {
    var meaning: String
    var fix: String

    init(_ meaning: String, _ fix: String = "nothing") {
        (self.meaning, self.fix) = (meaning, fix)
    }
}

extension Outcome {
    var reference: Meaning {
        switch self {
        case .notEligible:
            Meaning("the account is banned, is being deleted, or is gone", "change the account's status if it is wrong")
        case .restored: Meaning("the user became a subscriber, or frozen assets came back")
        case .alreadySubscriber:
            Meaning("the user stays a subscriber: by access, or because a demotion would be a guess; see the rule")
        case .storeAccountMismatch:
            Meaning(
                "by a proof, a store or the SDK the purchase is another account's; a ticket is open (not in observe mode)",
                "decide the ticket"
            )
        case .storeUnavailable:
            Meaning(
                "a store's answer could not be had or used; also where the device's store account is the reason",
                "see the rule, the message key and `last_error`; retry a job that is dead"
            )
        case .nothingToRestore: Meaning("every store answered, and no purchase gives access", "see the message key")
        case .promoted: Meaning("the user became a subscriber")
        case .demoted: Meaning("the user became free; assets are frozen")
        case .unchanged: Meaning("the records were true already")
        case .deferred:
            Meaning("the type stands although no access is proven; the rule says why", "see the rule")
        }
    }
}

extension MessageKey {
    var reference: Meaning {
        switch self {
        case .restored: Meaning("access is back")
        case .restoredAssetsPending: Meaning("access is back; more assets follow within minutes")
        case .alreadySubscriber:
            Meaning("the user is a subscriber")
        case .nothing: Meaning("no purchase was found", "the user may write to support with the reference")
        case .nothingExpired: Meaning("a subscription was found, and its period is over", "subscribe again")
        case .nothingBillingRetry: Meaning("the last payment failed", "update the payment method in the store")
        case .nothingRefunded: Meaning("the purchase was refunded")
        case .nothingPaused: Meaning("the subscription is paused", "resume it in the store")
        case .nothingPendingPayment: Meaning("the payment is not complete", "pay, then restore again")
        case .nothingEnded: Meaning("a subscriber's access is over; a reconcile follows", "subscribe again")
        case .nothingEndedBillingRetry:
            Meaning("as nothing.ended, because a payment failed", "update the payment method in the store")
        case .nothingOtherStoreAccount:
            Meaning(
                "no purchase of the user is on record under the store account of the device",
                "sign in to the store account that paid and restore again, or contact support with this reference"
            )
        case .nothingEndedPaused: Meaning("as nothing.ended, because of a pause", "resume it in the store")
        case .nothingSandbox:
            Meaning("only sandbox purchases were found", "`sandbox allow`, if the user is a tester")
        case .restoreInAppSignedIn:
            Meaning("the purchase is an anonymous customer's of RevenueCat", "restore in the app, signed in")
        case .signInNeeded: Meaning("the device is not signed in to the store", "sign in there, then restore again")
        case .mismatch:
            Meaning("by a proof, a store or the SDK the purchase is another account's", "support decides the ticket")
        case .unavailable:
            Meaning(
                "a store's answer could not be had or used; nothing is lost",
                "try again later; where it stays, see the rule and `last_error`"
            )
        case .notEligible: Meaning("the account may not have access")
        case .notEligibleDeleting: Meaning("the account is being deleted")
        case .accountGone: Meaning("the account was deleted")
        case .stillChecking: Meaning("the job goes on; also while everything is paused", "wait, ask again")
        }
    }
}

extension Rule {
    var reference: Meaning {
        switch self {
        case .accountGone: Meaning("the host has no such user any more")
        case .notEligible: Meaning("the account's status allows no access", "change the status if it is wrong")
        case .storeAccess: Meaning("a store says that a purchase gives access")
        case .grantAccess: Meaning("a grant gives access: by the team's own people, or paid elsewhere")
        case .ownerFollowedRevenuecat: Meaning("RevenueCat names this user as the customer; the purchase moved here")
        case .clientLoginDiscarded: Meaning("the user dismissed the store's sign-in", "sign in to the store")
        case .clientAppNotRegistered:
            Meaning("the SDK says that the app is not registered at the store", "correct the app's build; alarm")
        case .receiptInUse:
            Meaning("the SDK says that the receipt is another user's; which one may be unknown", "decide the ticket")
        case .proofOfAnothers: Meaning("a verified proof is of another user's purchase", "decide the ticket")
        case .identityCollision:
            Meaning(
                "the ids of one purchase lead to several owners, or to another user than the store names",
                "decide the ticket"
            )
        case .sourcesDisagree:
            Meaning("a store names another owner than another store, our records or a transfer", "decide the ticket")
        case .anonymousOwner: Meaning("an anonymous customer of RevenueCat owns it", "restore in the app, signed in")
        case .noAccess: Meaning("every store was read, and none gives access")
        case .unknownStatus: Meaning("a store's status is unknown and gives no access", "update the program")
        case .unreadableItem: Meaning("an item of a store's answer can't be read", "update the program")
        case .unexplained:
            Meaning(
                "a subscriber without any purchase or grant on record, or whose type the host set after our last decision",
                "`adopt` a baseline, or end it in the host"
            )
        case .softWindow: Meaning("the period is just over; a renewal may still come")
        case .firstAbsence:
            Meaning("a purchase is missing, or its end not stated, for the first time; one absence demotes no user")
        case .absenceMargin: Meaning("the second absence came too soon after the first")
        case .absenceConfirmed: Meaning("a purchase was missing twice, far enough apart")
        case .movedAway: Meaning("the purchase belongs to another user now")
        case .storeEnded: Meaning("the store says that every purchase is over")
        case .storeNotAsked:
            Meaning("a store that knew the user is not configured, so absence proves nothing", "configure that store")
        case .entitlementDetached:
            Meaning(
                "the purchase goes on without its entitlement",
                "attach the product to the entitlement in RevenueCat"
            )
        case .promoteOnly: Meaning("MODE=promote_only demotes no user", "set MODE=full when ready")
        case .demotionsPaused: Meaning("demotions are paused", "`resume demotions`")
        case .brake: Meaning("the limit of demotions a day is used up", "read the runs; see operate/alarms.md")
        case .proposed: Meaning("a demotion of a run, which are written together or not at all", "`runs show`")
        }
    }
}

extension ReadFailure.Code {
    var reference: Meaning {
        switch self {
        case .unknownToStore:
            Meaning("the store does not know a purchase that has to exist", "check the store's credentials and app id")
        case .throttled: Meaning("the store's rate limit is reached", "lower the limit that is configured")
        case .unavailable:
            Meaning(
                "the store does not answer, or answers with an error",
                "`queue retry --error unavailable` once it is well"
            )
        case .timeout: Meaning("the store took too long")
        case .malformed:
            Meaning(
                "the store's answer can't be decoded, as a proxy's page",
                "check the base URL and proxies; report it if it stays"
            )
        case .locked: Meaning("the store is changing the customer")
        case .unauthorized: Meaning("the store refuses the credentials; alarm", "replace the key")
        case .rejected: Meaning("the store refuses the request", "read the alarm; check the configuration")
        case .unmapped:
            Meaning("an item would give access, and `product` has no row for it", "add the row; jobs follow at once")
        case .breakerOpen: Meaning("the circuit breaker of the store is open")
        case .budgetExhausted: Meaning("the shared rate limit has no token left")
        case .interrupted: Meaning("the worker stopped while it read")
        case .recordsUnavailable:
            Meaning("the database did not answer, or the host's users could not be asked for")
        case .overtaken: Meaning("the records changed while the store was read")
        case .incomplete: Meaning("what was read first sufficed no more; the rest is read")
        case .readLag: Meaning("an event said access, and the store's API does not show it yet")
        case .unusableID: Meaning("no store can be asked about this user id", "correct the id in the app")
        case .storeOff: Meaning("a proof of a store that is not configured", "configure that store")
        case .ownerPending: Meaning("the owner of an account id is being searched for")
        case .ownerUnresolved: Meaning("that search took too long", "retry; see operate/alarms.md")
        case .unclearTrust:
            Meaning(
                "the certificates of a proof were not valid when it was signed; alarm",
                "check APP_STORE_ROOT_CERTIFICATES and RECEIPT_ROOT_CERTIFICATES; retry"
            )
        case .refused: Meaning("the database refuses the job's data; alarm", "report it with the log line")
        case .adapterRefused: Meaning("the host adapter gave a value that is not allowed; alarm", "correct the adapter")
        case .crashed: Meaning("every process that ran the job died", "read the logs, report it")
        }
    }
}

extension ReadFailure.Treatment {
    /// What becomes of the job.
    var reference: String {
        switch self {
        case .retry: "again after a pause; an attempt"
        case .wait: "again after a pause; no attempt"
        case .again: "again at once; no attempt"
        case .park: "dead at once"
        }
    }
}
