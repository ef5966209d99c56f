/// The faults in force, and how often each was met.
struct FaultBook: Sendable {
    /// A rule and its history.
    struct Entry: Sendable {
        let rule: FaultRule
        /// Matching requests so far.
        var matched = 0
        /// Matching requests that were harmed.
        var used = 0
    }

    /// Every field of the rules that hit one request, the earlier rule winning.
    struct Effect: Sendable {
        var delay: ClosedRange<Int64>?
        var status: Int?
        var errorType: String?
        var retryable: Bool?
        var backoffMs: Int64?
        var processed = false
        var body: FaultRule.BodyFault?
        var size: Int?
        var connection: FaultRule.ConnectionFault?
        var drip: (bytes: Int, everyMs: Int64)?
        var repeatsCursor = false
        var dateSkew: Moment?
    }

    private(set) var entries: [Entry] = []
    /// Rules without a customer, and rules by customer id: a scenario may hold a rule for each of many customers.
    private var general: [Int] = []
    private var byCustomer: [String: [Int]] = [:]

    /// Whether no rule can match anything.
    var isEmpty: Bool { entries.isEmpty }

    /// Whether any rule names a customer.
    var namesCustomers: Bool { !byCustomer.isEmpty }

    init(_ rules: [FaultRule]) {
        for rule in rules { add(rule) }
    }

    /// Adds a rule behind the others.
    mutating func add(_ rule: FaultRule) {
        if let customer = rule.customer {
            byCustomer[customer, default: []].append(entries.count)
        } else {
            general.append(entries.count)
        }
        entries.append(Entry(rule: rule))
    }

    /// What befalls a request; `ids` are all ids of the customer asked for.
    mutating func strike(endpoint: String, method: String, ids: [String]) -> Effect? {
        var candidates = general
        for id in ids { candidates += byCustomer[id] ?? [] }
        var effect: Effect?
        for index in candidates.sorted() {
            let rule = entries[index].rule
            guard rule.endpoint.map({ $0 == endpoint }) ?? true, rule.method.map({ $0 == method }) ?? true else {
                continue
            }
            entries[index].matched += 1
            let position = entries[index].matched - rule.skip - 1
            guard position >= 0, position % rule.every == 0, rule.times.map({ entries[index].used < $0 }) ?? true else {
                continue
            }
            entries[index].used += 1
            effect = (effect ?? Effect()).extended(by: rule)
        }
        return effect
    }
}

extension FaultBook.Effect {
    /// This effect, with the fields it leaves open taken from a rule.
    fileprivate func extended(by rule: FaultRule) -> FaultBook.Effect {
        var effect = self
        if effect.delay == nil, rule.latency != nil || rule.latencyMax != nil {
            let low = rule.latency?.milliseconds ?? 0
            effect.delay = low...max(low, rule.latencyMax?.milliseconds ?? low)
        }
        // The fields that shape an error belong to its status.
        if effect.status == nil, let status = rule.status {
            effect.status = status
            effect.errorType = rule.errorType
            effect.retryable = rule.retryable
            effect.backoffMs = rule.backoff?.milliseconds
            effect.processed = rule.processed
        }
        if effect.body == nil, let body = rule.body {
            effect.body = body
            effect.size = rule.size
        }
        effect.connection = effect.connection ?? rule.connection
        if effect.drip == nil, let bytes = rule.dripBytes {
            effect.drip = (bytes, rule.dripEvery?.milliseconds ?? 50)
        }
        effect.repeatsCursor = effect.repeatsCursor || rule.repeatCursor
        effect.dateSkew = effect.dateSkew ?? rule.dateSkew
        return effect
    }
}
