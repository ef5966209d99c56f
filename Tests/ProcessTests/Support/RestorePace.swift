import Foundation
import HTTPTypes
import Testing

/// Restores at an even pace, as users' apps ask for them.
enum RestorePace {
    /// Asks for restores, each of which has to end.
    ///
    /// - Parameters:
    ///   - callers: who asks, in turns.
    ///   - path: where.
    ///   - rate: restores a second.
    ///   - seconds: for how long.
    /// - Returns: the time that ninety-nine in a hundred take at most.
    /// - Throws: when one is not accepted.
    static func measure(
        _ callers: [Caller],
        at path: String = "/v1/restores",
        _ rate: Double,
        for seconds: Int
    ) async throws -> Duration {
        let count = Int(Double(seconds) * rate)
        let times = try await withThrowingTaskGroup(of: Duration.self) { group in
            let began = ContinuousClock.now
            for number in 0..<count {
                group.addTask {
                    try await Task.sleep(until: began + .seconds(Double(number) / rate), clock: .continuous)
                    let caller = callers[number % callers.count]
                    let tapped = ContinuousClock.now
                    let accepted = try await caller.ask(.post, path, body: "{}")
                    let location = try #require(accepted["Location"], "\(accepted)")
                    let seen: SeenRestore = try await caller.ask(.get, location + "?wait=25").decode()
                    #expect(seen.hasEnded)
                    return .now - tapped
                }
            }
            var times: [Duration] = []
            for try await time in group { times.append(time) }
            return times.sorted()
        }
        return times[min(times.count - 1, times.count * 99 / 100)]
    }
}
