/// App user ids that RevenueCat refuses, because they are what broken code sends in place of an id: many people would be
/// one customer.
///
/// - SeeAlso: https://www.revenuecat.com/docs/customers/user-ids
package enum BlockedIDs {
    private static let all: Set<String> = [
        "no_user", "null", "none", "nil", "(null)", "NaN", "\\x00", "", "unidentified", "undefined", "unknown",
        "anonymous", "guest", "-1", "0", "[]", "{}", "[object Object]",
    ]

    /// Whether an id is blocked; ids differ by letter case, as everywhere at RevenueCat.
    package static func contains(_ id: String) -> Bool { all.contains(id) }
}
