package import Entitlements

/// What leads to wrong records, and what the application can do about it.
package struct CauseWords: Sendable, Hashable {
    /// What happened, in a few words.
    package var title: String
    /// What to change in the application, or elsewhere; `nil`: nothing.
    package var fix: String?

    /// The words for a decision that changed a user's type; `nil` for a rule that changes none.
    package static func decision(_ rule: Rule, promoted: Bool) -> CauseWords? {
        switch rule {
        case .storeAccess:
            promoted
                ? CauseWords(
                    title: "Paid, and the record said free",
                    fix:
                        "Ask for GET /v1/entitlement at launch and after each purchase; call restore when it suggests it."
                ) : nil
        case .grantAccess: CauseWords(title: "Access by a grant", fix: nil)
        case .ownerFollowedRevenuecat:
            CauseWords(
                title: "RevenueCat moved the purchase to another user",
                fix: "Log in to RevenueCat before a purchase can be made, and check its transfer behavior."
            )
        case .storeEnded:
            CauseWords(
                title: "The store ended it, and the record said subscriber",
                fix: "Point the stores' webhooks here."
            )
        case .absenceConfirmed:
            CauseWords(
                title: "No store shows it any more",
                fix: "Check that every store is configured, and whether test purchases are in the records."
            )
        case .movedAway: CauseWords(title: "Moved to another account, by support or at RevenueCat", fix: nil)
        case .notEligible: CauseWords(title: "The account is banned or being deleted", fix: nil)
        case .accountGone, .clientLoginDiscarded, .clientAppNotRegistered, .receiptInUse, .proofOfAnothers,
            .identityCollision, .sourcesDisagree, .anonymousOwner, .noAccess, .unknownStatus, .unreadableItem,
            .unexplained, .softWindow, .firstAbsence, .absenceMargin, .storeNotAsked, .entitlementDetached,
            .promoteOnly,
            .demotionsPaused, .brake,
            .proposed:
            nil
        }
    }

    /// What to do about tickets of a kind; `nil` for an unknown one.
    package static func ticket(_ kind: String) -> CauseWords? { tickets[kind] }

    private static let tickets = [
        "owner_mismatch": CauseWords(
            title: "Restored with another account than the one that bought",
            fix: "Show before a purchase which account it is for; set the account token of each store."
        ),
        "paid_no_access": CauseWords(
            title: "Paid, and no store shows it for the account",
            fix: "Log in to RevenueCat before the purchase; retry unfinished transactions at launch."
        ),
        "needs_proof": CauseWords(
            title: "An order was reported that no proof supports",
            fix: "Have the app send the store's signed transaction or purchase token with a restore."
        ),
        "first_seen_elsewhere": CauseWords(
            title: "First seen with another account",
            fix: "Set appAccountToken and obfuscatedExternalAccountId at the purchase."
        ),
        "identity_collision": CauseWords(
            title: "One purchase with identifiers of two owners",
            fix: "Never share RevenueCat app user ids between accounts; do not log in with a device's id."
        ),
        "sources_disagree": CauseWords(
            title: "The stores do not agree whose it is",
            fix: "Set account tokens at the purchase, and keep RevenueCat's transfer behavior at “keep with original”."
        ),
        "external_transfer": CauseWords(
            title: "Moved at RevenueCat, outside of this desk",
            fix: "Set RevenueCat's restore behavior to “keep with original”, and transfer here."
        ),
        "onside_unattributed": CauseWords(
            title: "Bought at Onside without an account",
            fix: "Set the account token when an Onside purchase is begun."
        ),
    ]
}
