/// From the start of one transaction to the next.
///
/// One that takes more than twice as long as the quickest of late met a busy machine or server. Then the next ones begin
/// later and do more at a time: each costs the same again, however little it does.
struct Pace {
    /// How many transactions the quickest is the quickest of, at least.
    private static let memory = 500
    /// How much later for the time beyond.
    private static let weight = 5

    private let interval: Duration
    private var quickest: Duration?
    private var quickestBefore: Duration?
    private var count = 0

    /// Makes one that begins with `interval`; twice that is the longest.
    init(interval: Duration) { self.interval = interval }

    /// Learns how long a transaction took, and says when after its start the next one begins.
    mutating func next(after took: Duration) -> Duration {
        quickest = min(took, quickest ?? took)
        count += 1
        if count == Self.memory { (quickestBefore, quickest, count) = (quickest, nil, 0) }
        let usual = min(quickest ?? took, quickestBefore ?? took)
        return min(interval + max(took - usual * 2, .zero) * Self.weight, interval * 2)
    }
}
