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

    private(set) var entries: [Entry] = []
    /// Rules without a customer, and rules by customer id: a scenario may hold a rule for each of many customers.
    private var general: [Int] = []
    private var byCustomer: [String: [Int]] = [:]

    /// Whether no rule can match anything.
    var isEmpty: Bool { entries.isEmpty }

    /// Whether any rule names a customer.
    var namesCustomers: Bool { !byCustomer.isEmpty }

    init(_ rules: [FaultRule]) {
        add(rules)
    }

    /// Adds rules behind the others.
    mutating func add(_ rules: [FaultRule]) {
        for rule in rules {
            if let customer = rule.customer {
                byCustomer[customer, default: []].append(entries.count)
            } else {
                general.append(entries.count)
            }
            entries.append(Entry(rule: rule))
        }
    }

    /// Every field of the rules that hit a request, the earlier rule winning; `ids` are all of the customer asked for.
    mutating func strike(endpoint: String, method: String, ids: [String]) -> FaultRule? {
        var candidates = general
        for id in ids { candidates += byCustomer[id] ?? [] }
        var effect: FaultRule?
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
            effect = effect?.extended(by: rule) ?? rule
        }
        return effect
    }
}

extension FaultRule {
    /// Milliseconds to wait before the answer.
    var delay: ClosedRange<Int64>? {
        guard latency != nil || latencyMax != nil else { return nil }
        let low = latency?.milliseconds ?? 0
        return low...max(low, latencyMax?.milliseconds ?? low)
    }

    var backoffMs: Int64? { backoff?.milliseconds }

    /// This rule, with the faults it leaves open taken from another.
    fileprivate func extended(by rule: FaultRule) -> FaultRule {
        var effect = self
        if delay == nil { (effect.latency, effect.latencyMax) = (rule.latency, rule.latencyMax) }
        // The fields that shape an error belong to its status.
        if status == nil {
            (effect.status, effect.errorType, effect.retryable) = (rule.status, rule.errorType, rule.retryable)
            (effect.backoff, effect.processed) = (rule.backoff, rule.processed)
        }
        if body == nil { (effect.body, effect.size) = (rule.body, rule.size) }
        effect.connection = connection ?? rule.connection
        if dripBytes == nil { (effect.dripBytes, effect.dripEvery) = (rule.dripBytes, rule.dripEvery) }
        effect.repeatCursor = repeatCursor || rule.repeatCursor
        effect.dateSkew = dateSkew ?? rule.dateSkew
        return effect
    }
}
