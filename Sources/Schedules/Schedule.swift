package import FoundationEssentials

/// When something is due by the clock of a time zone.
///
/// Clock changes are treated as cron(8) of Debian does:
/// - Where the hour is written as numbers, each time that the clock passes is due once: in an hour that is repeated at
///   its first occurrence; in an hour that is skipped at the first instant after it, however many times of the
///   schedule were skipped.
/// - Where the hour begins with `*`, every minute that the clock shows and the expression matches is due: in both passes
///   of a repeated hour, and never for what was skipped.
///
/// Two things are simpler than in Debian's cron: a `*` in the minutes makes no difference (`*/15 2 * * *` has its hour
/// in numbers), and no change of a zone's clock is too long for these rules (cron's limit of three hours is for clocks
/// that are set by hand). Where a zone skips a whole day, a schedule with its hour in numbers that has times on that
/// day is due at the start of the next.
package struct Schedule: Hashable, Sendable, CustomStringConvertible {
    /// The instants that are considered: the years 1 to 9999, with a day to spare before them for `Date.distantPast`.
    private static let seconds = -62_140_000_000...253_402_300_799

    package let expression: CronExpression
    package let zone: TimeZoneName

    package init(_ expression: CronExpression, in zone: TimeZoneName = .utc) {
        self.expression = expression
        self.zone = zone
    }

    package var description: String { "\(expression) \(zone)" }

    /// The first slot after an instant; `nil` where it is outside the years 1 to 9999.
    package func next(after instant: Date) -> Date? {
        guard let second = Self.second(of: instant) else { return nil }
        return Self.date(of: expression.hours.isStarred ? shown(.later, from: second) : passed(.later, from: second))
    }

    /// The latest slot at or before an instant; `nil` where it is outside the years 1 to 9999.
    package func last(upTo instant: Date) -> Date? {
        guard let second = Self.second(of: instant) else { return nil }
        return Self.date(
            of: expression.hours.isStarred ? shown(.earlier, from: second) : passed(.earlier, from: second)
        )
    }

    /// The one slot that makes up for all that were missed: the latest after `instant` and up to `end`, if any.
    package func missed(since instant: Date, upTo end: Date) -> Date? {
        last(upTo: end).flatMap { $0 > instant ? $0 : nil }
    }

    private func passed(_ way: SearchDirection, from second: Int) -> Int? {
        let minute = floorDivide(zone.latestTime(upTo: second), by: 60).quotient + (way == .later ? 1 : 0)
        return expression.minute(way, from: minute).map { zone.instant(reaching: $0 * 60) }
    }

    private func shown(_ way: SearchDirection, from second: Int) -> Int? {
        let isLater = way == .later
        var place = isLater ? second + 1 : second
        while Self.seconds.contains(place) {
            let offset = zone.offset(at: place)
            let minute = floorDivide(place + offset + (isLater ? 59 : 0), by: 60).quotient
            guard let found = expression.minute(way, from: minute).map({ $0 * 60 - offset }) else { return nil }
            // Far from a slot the clock can be changed without showing one, but for what it repeats at once.
            let isNear = abs(found - place) <= 2 * TimeZoneName.longestChange
            let edge = isNear ? found : place + way.step * TimeZoneName.longestChange
            if isLater, let change = zone.change(after: place, upTo: edge) {
                place = change
            } else if !isLater, let change = zone.lastChange(after: edge, upTo: place) {
                place = change - 1
            } else if isNear {
                return found
            } else {
                place = found - way.step * TimeZoneName.longestChange
            }
        }
        return nil
    }

    private static func second(of instant: Date) -> Int? {
        let second = instant.timeIntervalSince1970.rounded(.down)
        guard second >= Double(seconds.lowerBound), second <= Double(seconds.upperBound) else { return nil }
        return Int(second)
    }

    private static func date(of second: Int?) -> Date? {
        guard let second, seconds.contains(second) else { return nil }
        return Date(timeIntervalSince1970: Double(second))
    }
}
