import Foundation
import TestSupport
import Testing

/// What becomes of crowds when nothing happens to anybody; each found out once, by whoever asks first.
actor Undisturbed {
    private static let shared = Undisturbed()
    private var runs: [Int: Task<Record, any Error>] = [:]

    /// The records that a crowd leaves.
    ///
    /// How slow the store is makes no difference to them.
    static func record(of crowd: Crowd) async throws -> Record { try await shared.run(crowd).value }

    private func run(_ crowd: Crowd) -> Task<Record, any Error> {
        let run =
            runs[crowd.percent]
            ?? Task {
                let simulator = try await Simulator(scenario: Crowd(percent: crowd.percent).scenario)
                let record = Slot<Record>()
                try await Site.with(store: simulator.url, settings: FaultRuns.settings) { site in
                    try await site.execute(crowd.load)
                    let started = ContinuousClock.now
                    try await Crew(2, of: site, seed: 0).finish(within: .seconds(600))
                    report("\(crowd.size) restores undisturbed: \(seconds(ContinuousClock.now - started)) s")
                    try await Record.expectSettled(site)
                    record.value = try await Record(of: site)
                }
                return try #require(record.value)
            }
        runs[crowd.percent] = run
        return run
    }
}

/// What fault runs share.
enum FaultRuns {
    /// A short lease, so that what dead workers held is free soon; enough tries to outlast any fault of the store.
    static let settings = [
        "JOB_LEASE_SECONDS": "2", "JOB_MAX_ATTEMPTS": "10", "JOB_BACKOFF_CAP_MS": "200",
        // Whom the brake holds back depends on who comes first.
        "DEMOTION_BRAKE_MINIMUM": "1000000",
        // Of tens of thousands a few would have their slow look meanwhile, wherever in a month it falls.
        "BACKGROUND_CHECK_DAYS": "0",
    ]
}

/// Says a number that people want to know, beside the results of the tests.
func report(_ text: String) { FileHandle.standardError.write(Data("    \(text)\n".utf8)) }

/// Seconds with one digit after the point.
func seconds(_ duration: Duration) -> String { String(format: "%.1f", duration / .seconds(1)) }

/// Lets few in at a time: what many processes do at once on a few cores is a fault of its own.
actor Turnstile {
    /// For all fault runs together.
    static let shared = Turnstile(10)

    private let places: Int
    private var free: Int
    private var waiting: [(places: Int, turn: CheckedContinuation<Void, Never>)] = []

    init(_ places: Int) {
        self.places = places
        free = places
    }

    /// Runs a body once a place is free, in the order of asking; `alone` waits until nobody else is inside.
    func pass<Value: Sendable>(
        alone: Bool = false,
        _ body: @Sendable () async throws -> Value
    ) async rethrows -> Value {
        let wanted = alone ? places : 1
        await withCheckedContinuation { turn in
            waiting.append((wanted, turn))
            letIn()
        }
        defer {
            free += wanted
            letIn()
        }
        return try await body()
    }

    private func letIn() {
        while let next = waiting.first, next.places <= free {
            free -= next.places
            waiting.removeFirst().turn.resume()
        }
    }
}
