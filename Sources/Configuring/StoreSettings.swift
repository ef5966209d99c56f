package import Foundation

/// Which apps' texts the App Store signs, who signs them, and how it is asked.
package struct AppStoreSettings: Sendable {
    /// Each has a bundle id of its own; empty: no text of the App Store can be matched with an app.
    package var apps: [App] = []
    /// The paths of PEM files with the roots that count; `nil` stands for the root that is shipped.
    package var rootCertificates: [String?]
    /// The same for app receipts.
    package var receiptRootCertificates: [String?]

    /// One app.
    package struct App: Sendable {
        package var bundleID: String
        /// The app's number; `nil`: not set.
        package var appID: Int64?
        /// `nil`: the store itself is not asked about it.
        package var access: Access?
    }

    /// The apps that texts may be about; `nil`: none is named, so any.
    package var bundleIDs: [String]? { apps.isEmpty ? nil : apps.map(\.bundleID) }

    /// Whether the store itself is asked about any app.
    package var isAsked: Bool { apps.contains { $0.access != nil } }

    /// How the App Store Server API is reached and how fast.
    package struct Access: Sendable {
        package var issuerID: String
        package var keyID: String
        /// An In-App Purchase key: PEM of a PKCS#8 P-256 key.
        package var privateKey: Secret
        package var bundleID: String
        /// `nil`: Apple's own.
        package var baseURL: String?
        package var sandboxBaseURL: String?
        /// Requests a minute to the endpoints with the widest limit; 0: unlimited.
        ///
        /// The others get their share.
        package var requestsPerMinute: Int
    }
}

/// How Google Play's API is reached and how fast.
package struct GooglePlaySettings: Sendable {
    /// The key file's JSON text.
    package var serviceAccount: Secret
    package var packageName: String
    /// `nil`: Google's own.
    package var baseURL: String?
    package var oauthBaseURL: String?
    /// Whether sales that were granted are acknowledged.
    package var acknowledges: Bool
    /// Of subscriptions; 0: unlimited.
    package var requestsPerMinute: Int
}

/// How users' custom claims at Firebase are reached.
package struct FirebaseClaimsSettings: Sendable {
    /// The key file's JSON text.
    package var serviceAccount: Secret
    /// `nil`: the project that the key file names.
    package var projectID: String?
    /// `nil`: Google's own.
    package var baseURL: String?
    package var oauthBaseURL: String?
}

/// How Onside's merchant API is reached and how fast.
package struct OnsideSettings: Sendable {
    package var merchantID: String
    package var merchantSecret: Secret
    package var secretIsBase64: Bool
    package var secretKeyID: String
    package var bundleID: String
    /// `nil`: Onside's own.
    package var baseURL: String?
    /// 0: unlimited.
    package var requestsPerMinute: Int
}

/// How the app turns our user ids into the ids that it gives to stores.
package struct AccountSettings: Sendable {
    package var keys: [Secret]
    package var namespace: UUID?
}
