/// Request budgets: fixed windows of time.
struct RateWindows: Sendable {
    /// What a request found.
    struct Reading: Sendable {
        /// Requests in this window, this one included.
        var usage: Int
        var limit: Int
        /// Milliseconds until the window ends.
        var remainingMs: Int64
        var isExceeded: Bool { usage > limit }
    }

    private struct Window {
        var number: Int64
        var usage = 0
    }

    private var windows: [String: Window] = [:]
    /// How long a window is.
    private let lengthMs: Int64

    init(lengthMs: Int64) {
        self.lengthMs = lengthMs
    }

    /// Counts a request against a budget of `limit` requests in a window, above 0.
    mutating func count(_ budget: String, limit: Int, nowMs: Int64) -> Reading {
        let number = nowMs / lengthMs
        var window = windows[budget] ?? Window(number: number)
        if window.number != number { window = Window(number: number) }
        window.usage += 1
        // A client that invents a new key for each request must not fill the memory.
        if windows.count > 10_000 { windows.removeAll() }
        windows[budget] = window
        return Reading(usage: window.usage, limit: limit, remainingMs: (number + 1) * lengthMs - nowMs)
    }
}
