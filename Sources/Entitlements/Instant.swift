/// A point in time with microsecond resolution, as PostgreSQL's `timestamptz` keeps it.
package struct Instant: Hashable, Comparable, Sendable {
    /// Microseconds since 1970-01-01T00:00:00Z.
    package var microseconds: Int64

    package init(microseconds: Int64) { self.microseconds = microseconds }

    /// Makes an instant of a store's milliseconds since 1970; `nil` outside the years 1970 to 2200.
    package init?(milliseconds: Int64) {
        guard (0...7_258_118_400_000).contains(milliseconds) else { return nil }
        self.microseconds = milliseconds * 1000
    }

    package static func < (left: Instant, right: Instant) -> Bool { left.microseconds < right.microseconds }

    package static func + (left: Instant, right: Duration) -> Instant {
        let (seconds, attoseconds) = right.components
        return Instant(microseconds: left.microseconds + seconds * 1_000_000 + attoseconds / 1_000_000_000_000)
    }

    package static func - (left: Instant, right: Duration) -> Instant { left + (.zero - right) }

    package static func - (left: Instant, right: Instant) -> Duration {
        .microseconds(left.microseconds - right.microseconds)
    }
}
