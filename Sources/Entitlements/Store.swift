package enum Store: String, Sendable, CaseIterable, Codable {
    case revenueCat = "revenuecat"
    case appStore = "app_store"
    case googlePlay = "google_play"
    case onside

    package var name: String {
        switch self {
        case .revenueCat: "RevenueCat"
        case .appStore: "The App Store"
        case .googlePlay: "Google Play"
        case .onside: "Onside"
        }
    }
}

/// The alarm of a store that refuses our credentials.
package enum CredentialAlarm {
    package static func advice(on store: Store) -> String {
        switch store {
        case .revenueCat: "RevenueCat refuses our key: check REVENUECAT_API_KEY and its permissions."
        case .appStore:
            "The App Store refuses our tokens: check APP_STORE_ISSUER_ID, APP_STORE_KEY_ID, APP_STORE_PRIVATE_KEY (an In-App"
                + " Purchase key) and APP_STORE_BUNDLE_ID, the machine's clock, and that the app was released."
        case .googlePlay:
            "Google refuses our service account: check GOOGLE_PLAY_SERVICE_ACCOUNT, its rights in the Play Console (new ones"
                + " take up to two days), GOOGLE_PLAY_PACKAGE_NAME, and the machine's clock."
        case .onside:
            "Onside refuses our tokens: check the machine's clock first (they live 30 s), then ONSIDE_MERCHANT_ID,"
                + " ONSIDE_MERCHANT_SECRET and ONSIDE_SECRET_KEY_ID."
        }
    }

    package static func name(of store: Store) -> String {
        store == .revenueCat ? "credentials" : "credentials.\(store.rawValue)"
    }
}
