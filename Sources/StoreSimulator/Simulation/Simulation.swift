internal import Synchronization

/// The stores as one state behind one lock: a request is answered by a pure step that never waits.
final class Simulation: Sendable {
    struct State: Sendable {
        var scenario: Scenario
        var clock: SimulatedClock
        var revenueCat: RevenueCatStore
        var appStore: AppStoreSimulation
        var googlePlay: GooglePlaySimulation
        var onside: OnsideSimulation
        var identity: IdentitySimulation
        var faults: FaultBook
        var tally = RequestTally()
        var draws = SplitMix64(state: 1)
        var requestNumber: UInt64 = 0
        /// How many messages Pub/Sub pushed.
        var pushNumber: Int64 = 0
    }

    private let state: Mutex<State>
    private let inFlight = Atomic<Int>(0)
    private let peakInFlight = Atomic<Int>(0)

    /// Sets a scenario up; `wall` gives Unix milliseconds.
    init(_ scenario: Scenario, wall: @escaping @Sendable () -> Int64 = SimulatedClock.machine) throws {
        state = Mutex(try Self.state(for: scenario, clock: SimulatedClock(wall: wall)))
    }

    /// Reads or changes the state.
    func withState<Result: Sendable, Failure: Error>(
        _ body: (inout State) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try state.withLock { state throws(Failure) in try body(&state) }
    }

    /// Starts over with a scenario; the clock returns to the machine's time.
    func load(_ scenario: Scenario) throws {
        // A million customers take a while to set up, and requests go on meanwhile.
        let clock = SimulatedClock(wall: state.withLock { $0.clock.wall })
        let fresh = try Self.state(for: scenario, clock: clock)
        state.withLock { $0 = fresh }
        peakInFlight.store(inFlight.load(ordering: .relaxed), ordering: .relaxed)
    }

    private static func state(for scenario: Scenario, clock: SimulatedClock) throws -> State {
        do {
            return State(
                scenario: scenario,
                clock: clock,
                revenueCat: try RevenueCatStore(scenario, nowMs: clock.nowMs),
                appStore: try AppStoreSimulation(scenario.appStore, nowMs: clock.nowMs),
                googlePlay: try GooglePlaySimulation(scenario.googlePlay, nowMs: clock.nowMs),
                onside: try OnsideSimulation(scenario.onside, nowMs: clock.nowMs),
                identity: IdentitySimulation(scenario.firebase, scenario.pubSub),
                faults: FaultBook(scenario.faults)
            )
        } catch let conflict as CustomerBook.Conflict {
            throw ScenarioError(
                keyPath: "customers",
                message: "use the id \"\(conflict.id)\" twice (\(conflict.owner)); give each id to one customer"
            )
        }
    }

    /// Answers a request and counts it.
    func answer(_ request: StoreRequest) -> Reply {
        request.isForStore
            ? state.withLock { $0.answer(request) } : ControlEndpoint(simulation: self).answer(request)
    }

    /// Notes that a request arrived; `ended` follows once its answer is sent or its connection gone.
    func began(_ request: StoreRequest) {
        guard request.isForStore else { return }
        let count = inFlight.add(1, ordering: .relaxed).newValue
        peakInFlight.max(count, ordering: .relaxed)
    }

    /// Notes that a request is over.
    func ended(_ request: StoreRequest) {
        guard request.isForStore else { return }
        inFlight.subtract(1, ordering: .relaxed)
    }

    /// Requests being answered now, and the most there ever were since the last reset.
    var concurrency: (now: Int, peak: Int) {
        (inFlight.load(ordering: .relaxed), peakInFlight.load(ordering: .relaxed))
    }

    /// Forgets the counts; from now on requests are kept in their order where that is asked for.
    func resetTally(keepsLog: Bool) {
        state.withLock { $0.tally = RequestTally(keepsLog: keepsLog) }
        peakInFlight.store(inFlight.load(ordering: .relaxed), ordering: .relaxed)
    }
}

/// A small, reproducible source of random numbers (Steele, Lea and Flood 2014).
struct SplitMix64: RandomNumberGenerator, Sendable {
    /// The seed, at first.
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        return Self.mix(state)
    }

    /// Spreads a number over all 64 bits.
    static func mix(_ number: UInt64) -> UInt64 {
        var value = (number ^ (number >> 30)) &* 0xbf58_476d_1ce4_e5b9
        value = (value ^ (value >> 27)) &* 0x94d0_49bb_1331_11eb
        return value ^ (value >> 31)
    }
}
