/// A store's event that announced access: what is read in the moments after it may not show yet what it announces.
enum ReadLag {
    /// How long a reading without access is not believed.
    static let settles = Duration.seconds(30)
    /// The same where access would be taken away: no user waits for that.
    static let holds = Duration.seconds(120)
    /// Checks after it was believed all the same.
    static let checks: [Duration] = [.seconds(300), .seconds(1800)]

    /// When to check again.
    ///
    /// - Parameters:
    ///   - now: when the reading began that shows no access.
    ///   - at: when the event came.
    /// - Returns: `nil`: not any more.
    static func nextCheck(after now: Instant, at: Instant) -> Instant? {
        checks.map { at + $0 }.first { now < $0 }
    }
}
