/// One customer of a scenario, or the body of `PUT /control/customers/{id}`.
///
/// `{id: user-1, state: active}` is enough: `state` stands for one subscription or purchase in that state.
package struct CustomerScenario: Sendable, Codable, Hashable {
    /// The primary id; may stay empty where the place already names it (a control path, `default_customer`).
    package var id: String
    /// Further ids of the same customer; reads by any of them answer alike.
    package var aliases: [String]
    /// Shorthand for one subscription or purchase in this state, next to those listed.
    package var state: LifeState?
    /// Subscriptions, in the order the store lists them.
    package var subscriptions: [SubscriptionScenario]
    /// One-time purchases, in the order the store lists them.
    package var purchases: [PurchaseScenario]
    /// When the store first saw the customer; 100 days ago by default.
    package var firstSeen: Moment?
    /// When the store last saw the customer, or null; an hour ago by default.
    package var lastSeen: Override<Moment>
    /// Country of the last visit, ISO alpha-2, or null.
    package var country: Override<String>
    /// Attributes by name, such as `$email`.
    package var attributes: [String: String]

    /// Makes a customer.
    package init(
        id: String = "",
        aliases: [String] = [],
        state: LifeState? = nil,
        subscriptions: [SubscriptionScenario] = [],
        purchases: [PurchaseScenario] = []
    ) {
        self.id = id
        self.aliases = aliases
        self.state = state
        self.subscriptions = subscriptions
        self.purchases = purchases
        lastSeen = .usual
        country = .usual
        attributes = [:]
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case id, aliases, state, subscriptions, purchases, country, attributes
        case firstSeen = "first_seen"
        case lastSeen = "last_seen"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(
            id: try fields.optional(.id) ?? "",
            aliases: try fields.optional(.aliases) ?? [],
            state: try fields.optional(.state),
            subscriptions: try fields.optional(.subscriptions) ?? [],
            purchases: try fields.optional(.purchases) ?? []
        )
        firstSeen = try fields.optional(.firstSeen)
        lastSeen = try fields.override(.lastSeen)
        country = try fields.override(.country)
        attributes = try fields.optional(.attributes) ?? [:]
        guard id.unicodeScalars.count <= 1500 else { throw fields.fault(.id, "is longer than 1500 characters") }
        guard !aliases.contains("") else { throw fields.fault(.aliases, "contains an empty id; remove it") }
    }
}
