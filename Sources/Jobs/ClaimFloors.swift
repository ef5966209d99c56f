package import Entitlements

/// Where claims begin to look, lane by lane.
///
/// Jobs that have ended stay in the index for as long as an old snapshot keeps vacuum from removing them, and to step
/// over them costs every claim a little more. So most claims begin where the last one ended. Now and then one begins at
/// the very beginning: a transaction may commit a job that was due long before, and what is released keeps its place.
package struct ClaimFloors: Sendable {
    /// How long a job may at most be overlooked.
    package static let interval = Duration.seconds(1)
    /// A transaction that asks for a restore may take this long without its job being overlooked.
    private static let margin: Int64 = 2_000_000

    private var floors: [JobLane: Instant] = [:]
    private var nextWhole: ContinuousClock.Instant?
    /// Whether the last claim left jobs that are due: a lane gave all that was asked of it.
    package private(set) var mayHaveMore = false

    package init() {}

    /// Where the next claim begins; lanes that are not named begin at the beginning.
    package mutating func next(at now: ContinuousClock.Instant) -> [JobLane: Instant] {
        if let nextWhole, now < nextWhole { return floors }
        nextWhole = now + Self.interval
        floors = [:]
        return floors
    }

    /// Learns from what a claim found.
    ///
    /// - Parameters:
    ///   - jobs: what it found.
    ///   - wishes: what was asked for.
    ///   - limit: for all lanes together.
    package mutating func note(_ jobs: [ClaimedJob], of wishes: [JobQueue.Wish], upTo limit: Int) {
        mayHaveMore = false
        guard let now = jobs.first?.claimedAt else { return }
        for wish in wishes {
            let mine = jobs.filter { $0.lane == wish.lane }
            let isExhausted = mine.count < wish.limit && jobs.count < limit
            if !isExhausted { mayHaveMore = true }
            if isExhausted {
                floors[wish.lane] = Instant(microseconds: now.microseconds - Self.margin)
            } else if let last = mine.map(\.due).max() {
                floors[wish.lane] = last
            }
        }
    }
}
