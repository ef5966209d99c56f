package import Entitlements
import Foundation

/// What a store's message comes to: a hint to read a user again, and no statement about access.
package struct StoreEvent: Sendable, Hashable {
    /// A purchase that the message is about, by one of the store's ids.
    package struct Purchase: Sendable, Hashable, Codable {
        package var store: String
        /// The ledger's word; `nil` where the message does not say.
        package var environment: String?
        package var value: String
        /// The store's own name of the app that it was sold in; `nil`: the message does not say, or there is only one.
        package var app: String?

        package init(store: String, environment: String? = nil, value: String, app: String? = nil) {
            self.store = store
            self.environment = environment
            self.value = value
            self.app = app
        }

        /// The purchases that ids of a store lead to.
        static func of(
            _ store: Store,
            environment: String? = nil,
            app: String? = nil,
            _ values: [String]
        ) -> [Purchase] {
            values.map { Purchase(store: store.rawValue, environment: environment, value: $0, app: app) }
        }
    }

    package var source: Store
    /// The sender's own: a message that is sent again has the same.
    package var id: String
    /// The sender's word for what happened, with its finer word behind a dot where it has one.
    package var kind: String
    /// When it happened, or was noted, by the sender's clock.
    package var occurredAt: Instant?
    /// It speaks of access that begins or goes on: what is read within minutes may not show it yet.
    package var announcesAccess = false
    /// Ids that may be our users'.
    package var users: [String] = []
    package var purchases: [Purchase] = []
    /// Customers of RevenueCat's without a name of ours, who may sign in later; only where nothing else names a user.
    package var anonymous: [String] = []
    /// It names as a customer what broken apps send in place of an id.
    package var isBlocked = false
    /// When the money was taken back as fraud, as a store's list says; the beginning of 1970 where it says no time.
    package var chargedBackAt: Instant?

    /// Which users it may be about beside those that it names, as the inbox keeps it: a JSON object; `nil`: none.
    package var about: String? {
        guard !purchases.isEmpty || !anonymous.isEmpty || isBlocked else { return nil }
        let about = About(
            purchases: purchases,
            anonymous: anonymous.isEmpty ? nil : anonymous,
            blocked: isBlocked ? true : nil,
            chargedBack: chargedBackAt.map { $0.microseconds / 1000 }
        )
        // Texts and numbers alone: there is nothing that can't be written.
        return (try? JSONEncoder().encode(about)).map { String(decoding: $0, as: UTF8.self) }
    }

    private struct About: Encodable {
        var purchases: [Purchase]
        /// Only where there are any.
        var anonymous: [String]?
        /// Only where it is so.
        var blocked: Bool?
        /// Milliseconds since 1970; only where it is so.
        var chargedBack: Int64?

        private enum CodingKeys: String, CodingKey {
            case purchases, anonymous, blocked
            case chargedBack = "charged_back"
        }
    }

    /// The longest id that is kept, in bytes.
    static let longestID = 255

    /// Whether a text can be an id.
    static func isID(_ text: String) -> Bool { (1...longestID).contains(text.utf8.count) }
}

/// A message that can't be understood, although it comes from its store.
package struct MalformedEvent: Error, Hashable, Sendable {
    /// As a clause for people.
    package var reason: String
}
