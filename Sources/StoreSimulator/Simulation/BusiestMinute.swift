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
