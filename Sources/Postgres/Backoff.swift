/// Growing waits between attempts.
struct Backoff: Sendable {
    var base: Duration
    var cap: Duration

    /// Between half of the doubled base and all of it, never above the cap; `spread` (0..<1) says where, so that many
    /// clients do not come back at once.
    func delay(afterFailures failures: Int, spread: Double) -> Duration {
        let doublings = min(max(failures - 1, 0), 20)
        let full = min(base * (1 << doublings), cap)
        return full * (0.5 + spread / 2)
    }
}
