/// Requests to Google Play that share a limit.
///
/// - SeeAlso: https://developers.google.com/android-publisher/quotas
package enum GooglePlayBudget: String, Sendable, CaseIterable {
    /// Reads and acknowledgements of subscriptions.
    case subscriptions
    /// Reads and acknowledgements of one-time purchases.
    case oneTime = "one_time"
    case orders
    /// The list of voided purchases.
    case voided
    /// The endpoint that gives out access tokens.
    case token

    /// Requests a minute that we allow ourselves; 0: as many as needed.
    ///
    /// Google allows 3,000 in each of the first three, and 30 voided lists in any 30 seconds; renewals come in bunches,
    /// and what we leave unused is theirs.
    package var perMinute: Int {
        switch self {
        case .subscriptions, .oneTime, .orders: 2_400
        case .voided: 50
        case .token: 0
        }
    }
}
