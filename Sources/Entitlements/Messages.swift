/// What a person reads for a key, in English.
///
/// Other languages come from the host or the API.
package func message(for key: MessageKey, reference: String) -> String {
    switch key {
    case .restored: "Your subscription is active again."
    case .restoredAssetsPending: "Your subscription is active again. The rest of your items follow in a moment."
    case .alreadySubscriber: "Your subscription is already unlocked."
    case .nothing: "We found no purchases to restore. If you paid, contact support with reference \(reference)."
    case .nothingExpired: "Your last subscription has ended. You can subscribe again at any time."
    case .nothingBillingRetry: "The store could not charge your card. Update your payment method in the store."
    case .nothingRefunded: "Your last purchase was refunded."
    case .nothingPaused: "Your subscription is paused. Resume it in the store."
    case .nothingPendingPayment: "Your payment is still pending. Access starts as soon as the store confirms it."
    case .nothingEnded: "Your subscription has ended."
    case .nothingSandbox: "We found test purchases only."
    case .restoreInAppSignedIn: "Restore purchases in the app while you are signed in."
    case .signInNeeded: "Sign in to the store and try again."
    case .mismatch:
        "This store account's purchase belongs to another account. Contact support with reference \(reference)."
    case .unavailable: "The store does not answer at the moment. Please try again later."
    case .notEligible: "Purchases cannot be restored for this account."
    case .notEligibleDeleting:
        "This account is being deleted. A subscription is billed until you cancel it in the store."
    case .accountGone: "This account does not exist any more."
    case .stillChecking: "We are still checking with the store. Your request goes on."
    }
}
