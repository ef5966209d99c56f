/// What a scenario says of the App Store.
package struct AppStoreScenario: Sendable, Codable {
    /// Makes an empty store.
    package init() {}
}
