/// Counts of what the simulated stores were asked.
struct RequestTally: Sendable {
    private(set) var total = 0
    /// Requests by `METHOD /path/{template}`.
    private(set) var byPath: [String: Int] = [:]
    private var byEndpoint: [RevenueCatEndpoint: Int] = [:]
    /// Answers by status; 0 counts connections that were closed instead.
    private(set) var byStatus: [Int: Int] = [:]
    /// Requests by the customer id in the path.
    private(set) var byCustomer: [String: Int] = [:]
    /// Requests whose customer was not counted, because there were too many different ones.
    private(set) var uncountedCustomers = 0

    private(set) var busiestMinute = BusiestMinute()

    /// Requests as `METHOD /path`, in the order of their arrival, where that was requested.
    private(set) var log: [String]?

    /// How many requests are kept in their order.
    private static let logLimit = 10_000
    /// How many customers are counted one by one; a bench with millions must not fill the memory.
    private static let customerLimit = 10_000

    init(keepsLog: Bool = false) { log = keepsLog ? [] : nil }

    /// Notes a request in its order, and when it came.
    mutating func note(_ request: StoreRequest, nowMs: Int64) {
        busiestMinute.count(nowMs: nowMs)
        guard let count = log?.count, count < Self.logLimit else { return }
        log?.append("\(request.method) \(request.path)")
    }

    /// Counts a request that reached an endpoint.
    mutating func count(_ endpoint: RevenueCatEndpoint, customer: String?) {
        total += 1
        byEndpoint[endpoint, default: 0] += 1
        guard let customer else { return }
        if byCustomer.count < Self.customerLimit || byCustomer[customer] != nil {
            byCustomer[customer, default: 0] += 1
        } else {
            uncountedCustomers += 1
        }
    }

    /// Counts a request by its path's template; those that reach no endpoint of RevenueCat's have `unknown`.
    mutating func count(_ template: String) {
        total += 1
        byPath[template, default: 0] += 1
    }

    /// Counts an answer.
    mutating func count(_ reply: Reply) {
        let isAnswered = reply.delivery != .drop && reply.delivery != .reset
        byStatus[isAnswered ? reply.status : 0, default: 0] += 1
    }

    /// Requests by path template, those of known endpoints included.
    var paths: [String: Int] {
        byEndpoint.reduce(into: byPath) { paths, entry in paths[entry.key.template] = entry.value }
    }
}

/// The most requests within any sixty seconds, to the second.
struct BusiestMinute: Sendable {
    private(set) var requests = 0
    private var seconds = [Int](repeating: 0, count: 60)
    private var sum = 0
    private var last: Int64?

    /// Counts a request.
    ///
    /// - Parameter nowMs: by the simulator's clock; where that was set back, the count begins again.
    mutating func count(nowMs: Int64) {
        let second = nowMs / 1000
        if let last, second >= last, second - last < 60 {
            for passed in 1...60 where Int64(passed) <= second - last {
                let slot = Int((last + Int64(passed)) % 60)
                sum -= seconds[slot]
                seconds[slot] = 0
            }
        } else {
            seconds = [Int](repeating: 0, count: 60)
            sum = 0
        }
        last = second
        seconds[Int(second % 60)] += 1
        sum += 1
        requests = max(requests, sum)
    }
}
