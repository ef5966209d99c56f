/// What was asked of a simulator so far.
package struct RequestReport: Sendable {
    /// All requests to the stores' own paths.
    package var total: Int
    /// Requests being answered now.
    package var inFlight: Int
    /// The most requests that were being answered at once; a request counts from its arrival to its last byte.
    package var peakInFlight: Int
    /// The most requests within any sixty seconds.
    var busiestMinute: Int
    /// Requests by `METHOD /path/{template}`.
    package var byPath: [String: Int]
    /// Answers by HTTP status; 0 counts connections that were closed instead.
    package var byStatus: [Int: Int]
    /// Requests by the customer id in the path, for the first 10,000 different ids.
    var byCustomer: [String: Int]
    /// Requests whose customer was not counted because of that bound.
    var uncountedCustomers: Int
    /// Requests as `METHOD /path` in the order of their arrival, the first 10,000; empty where that was not requested.
    var log: [String]
}

extension Simulation {
    /// Stores a customer in place of the one with the same id.
    ///
    /// - Throws: `CustomerBook.Conflict` when an id or alias belongs to another customer.
    func put(_ customer: CustomerScenario) throws -> CustomerRecord {
        try withState { try $0.revenueCat.book.put(customer, nowMs: $0.clock.nowMs) }
    }

    /// Adds fault rules behind those in force.
    func inject(_ rules: [FaultRule]) {
        withState { state in
            for rule in rules { state.faults.add(rule) }
        }
    }

    /// What was asked so far.
    func requestReport() -> RequestReport {
        let tally = withState { $0.tally }
        let concurrency = concurrency
        return RequestReport(
            total: tally.total,
            inFlight: concurrency.now,
            peakInFlight: concurrency.peak,
            busiestMinute: tally.busiestMinute.requests,
            byPath: tally.paths,
            byStatus: tally.byStatus,
            byCustomer: tally.byCustomer,
            uncountedCustomers: tally.uncountedCustomers,
            log: tally.log ?? []
        )
    }
}

// The control endpoint without HTTP, for tests in the same process.
extension StoreSimulator {
    /// Adds fault rules behind those in force.
    package func inject(_ rules: FaultRule...) {
        simulation.inject(rules)
    }

    /// Moves the simulated time by so many milliseconds; negative is back.
    package func shiftClock(byMilliseconds milliseconds: Int64) {
        simulation.withState { $0.clock.shift(by: milliseconds) }
    }

    /// What was asked so far.
    package func requestReport() -> RequestReport {
        simulation.requestReport()
    }
}
