import FoundationEssentials

/// The zone's clock: seconds since 1970 on the one hand, what the clock shows on the other, as seconds from
/// 1970-01-01T00:00 of the clock.
extension TimeZoneName {
    /// Longer than any clock was ever set forward or back at once.
    static let longestChange = 2 * 86_400

    /// Tells how far the clock is ahead of UTC.
    ///
    /// - Parameter second: an instant.
    /// - Returns: the offset in seconds.
    func offset(at second: Int) -> Int { zone.secondsFromGMT(for: Date(timeIntervalSince1970: Double(second))) }

    /// Finds the first change of the clock after an instant.
    ///
    /// - Parameters:
    ///   - second: the instant.
    ///   - end: the last instant at which a change is of interest.
    /// - Returns: the first second after the change; the offset may be the same as before.
    func change(after second: Int, upTo end: Int) -> Int? {
        let next = zone.nextDaylightSavingTimeTransition(after: Date(timeIntervalSince1970: Double(second)))
        guard let next, next.timeIntervalSince1970 <= Double(end) else { return nil }
        let found = Int(next.timeIntervalSince1970)
        return found > second ? found : nil
    }

    /// Finds the last change of the clock after an instant and up to another.
    func lastChange(after second: Int, upTo end: Int) -> Int? {
        var last: Int?
        while let next = change(after: last ?? second, upTo: end) { last = next }
        return last
    }

    /// Tells the latest time that the clock has ever shown, which is not what it shows in a repeated hour.
    ///
    /// - Parameter second: the last instant that counts.
    /// - Returns: the time.
    func latestTime(upTo second: Int) -> Int {
        var latest = second + offset(at: second)
        var start = second - Self.longestChange
        while let change = change(after: start, upTo: second) {
            latest = max(latest, change - 1 + offset(at: change - 1))
            start = change
        }
        return latest
    }

    /// Finds the first instant at which the clock shows a time, or a later one where the time is skipped.
    ///
    /// - Parameter time: the time.
    /// - Returns: the instant.
    func instant(reaching time: Int) -> Int {
        var start = time - Self.longestChange
        let end = time + Self.longestChange
        while true {
            let found = max(start, time - offset(at: start))
            guard let change = change(after: start, upTo: end), change <= found else { return found }
            start = change
        }
    }
}
