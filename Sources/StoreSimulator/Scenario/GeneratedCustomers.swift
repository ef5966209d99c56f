/// Many customers made from one pattern; they cost memory only once something changes them.
struct GeneratedCustomers: ScenarioObject, Hashable {
    /// Id with one `{n}`, or `{n:8}` for at least eight digits with leading zeros.
    var id = ""
    /// Patterns of further ids.
    var aliases: [String] = []
    /// The first number.
    var from = 1
    /// How many customers.
    var count = 1
    /// The state of all, in place of `mix`.
    var state: LifeState?
    /// Share of each state: `{active: 70, expired: 30}` gives 70 of every 100 consecutive numbers the first state.
    var mix: [String: Int]?
    /// Subscriptions of each customer, instead of or next to the states of `mix`.
    var subscriptions: [SubscriptionScenario] = []
    /// Purchases of each customer.
    var purchases: [PurchaseScenario] = []
    /// Spreads ends evenly: the thousand customers of each thousand end from 0 to this much later.
    var spread = Span(milliseconds: 0)

    /// The share of each state, whatever it was written as.
    var shares: [String: Int] {
        let nothingListed = subscriptions.isEmpty && purchases.isEmpty
        return mix ?? [(state ?? (nothingListed ? .active : LifeState.none)).rawValue: 1]
    }

    static let fields: [ScenarioField<Self>] = [
        .required("id", \.id), .value("aliases", \.aliases), .value("from", \.from, in: 0...1_000_000_000),
        .value("count", \.count, in: 1...1_000_000_000), .value("subscriptions", \.subscriptions),
        .value("purchases", \.purchases), .value("spread", \.spread), .optional("state", \.state),
        .optional("mix", \.mix),
    ]

    func check() throws {
        if state != nil, mix != nil {
            throw FieldFault(message: "stands next to `state`; keep one of the two", at: "mix")
        }
        for (name, share) in shares where LifeState(rawValue: name) == nil || !(0...1_000_000).contains(share) {
            let states = LifeState.allCases.map(\.rawValue).joined(separator: ", ")
            let message = "has \"\(name): \(share)\"; use a share of 0 to 1000000 for one of \(states)"
            throw FieldFault(message: message, at: "mix")
        }
        guard shares.values.reduce(0, +) > 0 else {
            throw FieldFault(message: "gives no state a share; raise one", at: "mix")
        }
        guard IDPattern(id) != nil else {
            throw FieldFault(message: "has no {n}; write it once, such as user-{n}", at: "id")
        }
        for alias in aliases where IDPattern(alias) == nil {
            throw FieldFault(message: "has \"\(alias)\" without {n}; write it once", at: "aliases")
        }
    }
}
