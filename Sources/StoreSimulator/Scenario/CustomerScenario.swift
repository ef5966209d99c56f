/// One customer of a scenario, or the body of `PUT /control/customers/{id}`.
///
/// `{id: user-1, state: active}` is enough: `state` stands for one subscription or purchase in that state.
struct CustomerScenario: ScenarioObject, Hashable {
    /// The primary id; may stay empty where the place already names it (a control path, `default_customer`).
    var id = ""
    /// Further ids of the same customer; reads by any of them answer alike.
    var aliases: [String] = []
    /// Shorthand for one subscription or purchase in this state, next to those listed.
    var state: LifeState?
    /// Subscriptions, in the order the store lists them.
    var subscriptions: [SubscriptionScenario] = []
    /// One-time purchases, in the order the store lists them.
    var purchases: [PurchaseScenario] = []
    /// When the store first saw the customer; 100 days ago by default.
    var firstSeen: Moment?
    /// When the store last saw the customer, or null; an hour ago by default.
    var lastSeen = Override<Moment>.usual
    /// Country of the last visit, ISO alpha-2, or null.
    var country = Override<String>.usual
    /// Attributes by name, such as `$email`.
    var attributes: [String: String] = [:]

    static let fields: [ScenarioField<Self>] = [
        .value("id", \.id), .value("aliases", \.aliases), .optional("state", \.state),
        .value("subscriptions", \.subscriptions), .value("purchases", \.purchases),
        .optional("first_seen", \.firstSeen), .override("last_seen", \.lastSeen), .override("country", \.country),
        .value("attributes", \.attributes),
    ]

    func check() throws {
        guard id.unicodeScalars.count <= 1500 else {
            throw FieldFault(message: "is longer than 1500 characters", at: "id")
        }
        guard !aliases.contains("") else { throw FieldFault(message: "contains an empty id; remove it", at: "aliases") }
    }
}
