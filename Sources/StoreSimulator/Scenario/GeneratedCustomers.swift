/// Many customers made from one pattern; they cost memory only once something changes them.
package struct GeneratedCustomers: Sendable, Codable, Hashable {
    /// Id with one `{n}`, or `{n:8}` for at least eight digits with leading zeros.
    package var id: String
    /// Patterns of further ids.
    package var aliases: [String]
    /// The first number.
    package var from: Int
    /// How many customers.
    package var count: Int
    /// Share of each state: `{active: 70, expired: 30}` gives 70 of every 100 consecutive numbers the first state.
    package var mix: [String: Int]
    /// Subscriptions of each customer, instead of or next to the states of `mix`.
    package var subscriptions: [SubscriptionScenario]
    /// Purchases of each customer.
    package var purchases: [PurchaseScenario]
    /// Spreads ends evenly: the thousand customers of each thousand end from 0 to this much later.
    package var spread: Span

    /// Makes a block of `count` customers in one state.
    package init(id: String, from: Int = 1, count: Int, state: LifeState = .active) {
        self.id = id
        aliases = []
        self.from = from
        self.count = count
        mix = [state.rawValue: 1]
        subscriptions = []
        purchases = []
        spread = Span(milliseconds: 0)
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case id, aliases, from, count, state, mix, subscriptions, purchases, spread
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        id = try fields.required(.id)
        aliases = try fields.optional(.aliases) ?? []
        from = try fields.integer(.from, in: 0...1_000_000_000) ?? 1
        count = try fields.integer(.count, in: 1...1_000_000_000) ?? 1
        subscriptions = try fields.optional(.subscriptions) ?? []
        purchases = try fields.optional(.purchases) ?? []
        spread = try fields.optional(.spread) ?? Span(milliseconds: 0)
        let state: LifeState? = try fields.optional(.state)
        let mix: [String: Int]? = try fields.optional(.mix)
        if state != nil, mix != nil { throw fields.fault(.mix, "stands next to `state`; keep one of the two") }
        let nothingListed = subscriptions.isEmpty && purchases.isEmpty
        self.mix = mix ?? [(state ?? (nothingListed ? .active : LifeState.none)).rawValue: 1]
        for (name, share) in self.mix where LifeState(rawValue: name) == nil || !(0...1_000_000).contains(share) {
            throw fields.fault(
                .mix,
                "has \"\(name): \(share)\"; use a share of 0 to 1000000 for one of "
                    + LifeState.allCases.map(\.rawValue).joined(separator: ", ")
            )
        }
        guard self.mix.values.reduce(0, +) > 0 else { throw fields.fault(.mix, "gives nobody a share; raise one") }
        guard IDPattern(id) != nil else { throw fields.fault(.id, "has no {n}; write it once, such as user-{n}") }
        for alias in aliases where IDPattern(alias) == nil {
            throw fields.fault(.aliases, "has \"\(alias)\" without {n}; write it once")
        }
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(id, forKey: .id)
        try container.encode(aliases, forKey: .aliases)
        try container.encode(from, forKey: .from)
        try container.encode(count, forKey: .count)
        try container.encode(mix, forKey: .mix)
        try container.encode(subscriptions, forKey: .subscriptions)
        try container.encode(purchases, forKey: .purchases)
        try container.encode(spread, forKey: .spread)
    }
}
