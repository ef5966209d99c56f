/// What was asked of a simulator so far.
package struct RequestReport: Sendable {
    /// All requests to the stores' own paths.
    package var total: Int
    /// Requests being answered now.
    package var inFlight: Int
    /// The most requests that were being answered at once; a request counts from its arrival to its last byte.
    package var peakInFlight: Int
    /// Requests by `METHOD /path/{template}`.
    package var byPath: [String: Int]
    /// Answers by HTTP status; 0 counts connections that were closed instead.
    package var byStatus: [Int: Int]
}

// The control endpoint without HTTP, for tests in the same process.
extension StoreSimulator {
    /// Adds fault rules behind those in force.
    package func inject(_ rules: FaultRule...) {
        simulation.withState { $0.faults.add(rules) }
    }

    /// Moves the simulated time by so many milliseconds; negative is back.
    package func shiftClock(byMilliseconds milliseconds: Int64) {
        simulation.withState { $0.clock.shift(by: milliseconds) }
    }

    /// What was asked so far.
    package func requestReport() -> RequestReport {
        let (tally, concurrency) = (simulation.withState { $0.tally }, simulation.concurrency)
        return RequestReport(
            total: tally.total,
            inFlight: concurrency.now,
            peakInFlight: concurrency.peak,
            byPath: tally.paths,
            byStatus: tally.byStatus
        )
    }
}
