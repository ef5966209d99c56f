/// What a scenario says of Google Play.
package struct GooglePlayScenario: Sendable, Codable {
    /// Makes an empty store.
    package init() {}
}
