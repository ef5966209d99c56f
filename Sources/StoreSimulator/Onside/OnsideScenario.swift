/// What a scenario says of Onside.
package struct OnsideScenario: Sendable, Codable {
    /// Makes an empty store.
    package init() {}
}
