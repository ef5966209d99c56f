/// Growing waits between attempts.
struct Backoff: Sendable {
    var base: Duration
    var cap: Duration

    /// The wait after a number of failures in a row: between half of the doubled base and all of it, never above the cap.
    ///
    /// `spread` (0..<1) says where in that half, so that many clients do not come back at once.
    func delay(afterFailures failures: Int, spread: Double) -> Duration {
        let doublings = min(max(failures - 1, 0), 20)
        let full = min(base * (1 << doublings), cap)
        return full * (0.5 + spread / 2)
    }
}
