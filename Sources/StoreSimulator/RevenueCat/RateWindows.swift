/// Request budgets: fixed windows of one minute, one for each key and domain.
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
        var minute: Int64
        var usage: Int
    }

    private var windows: [String: Window] = [:]

    /// Counts a request against a budget (key and domain) of `limit` requests a minute, above 0.
    mutating func count(_ budget: String, limit: Int, nowMs: Int64) -> Reading {
        let minute = nowMs / 60_000
        var window = windows[budget] ?? Window(minute: minute, usage: 0)
        if window.minute != minute { window = Window(minute: minute, usage: 0) }
        window.usage += 1
        // A client that invents a new key for each request must not fill the memory.
        if windows.count > 10_000 { windows.removeAll() }
        windows[budget] = window
        return Reading(usage: window.usage, limit: limit, remainingMs: (minute + 1) * 60_000 - nowMs)
    }
}
