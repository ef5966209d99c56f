/// One of the App Store's two sets of data; an id of one is unknown in the other.
package enum AppStoreEnvironment: String, Sendable, CaseIterable {
    case production = "Production"
    /// Also TestFlight and the review of apps.
    case sandbox = "Sandbox"

    /// The word our own records have for it.
    package var ledgerName: String { rawValue.lowercased() }

    /// - Parameter ledgerName: our records' word; `nil`, and any other, is neither.
    package init?(ledgerName: String?) {
        guard let found = Self.allCases.first(where: { $0.ledgerName == ledgerName }) else { return nil }
        self = found
    }

    /// How far back the list of its notifications goes, less an hour for clocks that differ, and for long lists.
    package var notificationReach: Duration {
        .seconds((self == .production ? 180 : 30) * 86_400 - 3600)
    }
}

/// Requests that share a limit.
///
/// - SeeAlso: https://developer.apple.com/documentation/appstoreserverapi/identifying-rate-limits
package enum AppStoreBudget: String, Sendable, CaseIterable {
    case statuses, transaction, history, lookup, refunds, token, notifications, test

    /// Requests a second that production allows, counted over an hour; the sandbox allows a tenth.
    package var perSecond: Int {
        switch self {
        case .statuses, .transaction, .history, .notifications: 50
        case .lookup, .refunds: 10
        case .token: 20
        case .test: 1
        }
    }
}
