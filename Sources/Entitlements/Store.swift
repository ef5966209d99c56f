/// The stores that are asked.
package enum Store: String, Sendable, CaseIterable, Codable {
    case revenueCat = "revenuecat"
    case appStore = "app_store"
    case googlePlay = "google_play"
    case onside

    /// As people know it.
    package var name: String {
        switch self {
        case .revenueCat: "RevenueCat"
        case .appStore: "The App Store"
        case .googlePlay: "Google Play"
        case .onside: "Onside"
        }
    }
}
