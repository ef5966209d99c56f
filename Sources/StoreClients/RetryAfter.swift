import TextFormats

/// A store's wish to be left alone for a while.
enum RetryAfter {
    /// More milliseconds since 1970 than seconds ever will be: the App Store names the moment so.
    private static let leastEpochMs: Int64 = 100_000_000_000

    /// Reads a `Retry-After`: seconds, a date, or milliseconds since 1970.
    ///
    /// - Parameters:
    ///   - text: the header.
    ///   - now: seconds since 1970 on the clock of the header's writer.
    /// - Returns: the wait, uncapped; `nil` for anything else.
    static func wait(_ text: String, now: Int64) -> Duration? {
        guard !text.isEmpty, text.utf8.count <= 18, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return HTTPDate.seconds(text).map { .seconds(max(0, $0 - now)) }
        }
        guard let number = Int64(text) else { return nil }
        return number < leastEpochMs ? .seconds(number) : .milliseconds(max(0, number - now * 1000))
    }
}
