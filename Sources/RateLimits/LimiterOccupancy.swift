/// How many background requests wait for a store's tokens.
///
/// A restore of a user whose background job waits here would wait with it: as many background jobs wait for tokens as keep the limit
/// busy, and the others stay in the queue.
package struct LimiterOccupancy: Sendable, Hashable {
    /// How many may wait: what the limit serves within a quarter of a second, and two.
    package var most: Int
    package var waiting: Int

    /// - Parameters:
    ///   - perMinute: the limit.
    ///   - waiting: how many wait.
    ///   - isStarved: restores take all there is: who waits now does so for long, and one of them is enough to notice the end.
    package init(perMinute: Int, waiting: Int, isStarved: Bool = false) {
        most = isStarved ? 1 : 2 + Int((RateBudget.sustained(perMinute: perMinute) / 240).rounded(.up))
        self.waiting = waiting
    }

    /// How many may come where some of those who wait are not counted.
    ///
    /// - Parameter yielding: how many readings that others need not wait for are on their way, wherever they are: of them no
    ///   more are let to the gate than fill half of the places.
    /// - Returns: how many; below 1: none.
    package func room(besides yielding: Int) -> Int { most - max(0, waiting - min(yielding, (most + 1) / 2)) }
}
