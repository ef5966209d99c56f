import FoundationEssentials
import Glibc

/// Some days of a zone's clock around a change of it, minute by minute.
struct ClockWindow {
    /// What a clock shows in a minute.
    struct Shown {
        var minute, hour, day, month, weekday: UInt64
    }

    /// The first minute since 1970.
    let start: Int
    /// What the clock shows in each minute, as minutes from 1970 of the clock.
    private let times: [Int]
    /// All that the clock could show in these days, from `first` on.
    private let shown: [Shown]
    private let first: Int

    var end: Int { start + times.count - 1 }

    init(_ zone: TimeZone, around change: Int, days: Int = 1) {
        start = change / 60 - days * 1440
        let minutes = start..<(start + 2 * days * 1440)
        times = minutes.map { $0 + zone.secondsFromGMT(for: Date(timeIntervalSince1970: Double($0 * 60))) / 60 }
        let lowest = times.min() ?? 0
        first = lowest
        shown = (lowest...(times.max() ?? 0)).map { minute in
            var seconds = time_t(minute * 60)
            var fields = tm()
            gmtime_r(&seconds, &fields)
            return Shown(
                minute: UInt64(fields.tm_min),
                hour: UInt64(fields.tm_hour),
                day: UInt64(fields.tm_mday),
                month: UInt64(fields.tm_mon) + 1,
                weekday: UInt64(fields.tm_wday)
            )
        }
    }

    /// Steps through the minutes by the rules of the schedule's documentation.
    ///
    /// - Parameter expression: what is due.
    /// - Returns: the minutes since 1970 that are slots.
    func slots(of expression: DrawnExpression) -> [Int] {
        let due = shown.map { matches($0, expression) }
        let isStarred = expression.hour.isStarred
        var slots: [Int] = []
        var highest = times[0] - 1
        var index = 0
        // A plain loop: builds for tests are slow with any other.
        while index < times.count {
            let time = times[index]
            if isStarred {
                if due[time - first] { slots.append(start + index) }
            } else {
                var isDue = false
                // More than one minute where the clock was set forward, and none where it was set back.
                while highest < time {
                    highest += 1
                    isDue = isDue || due[highest - first]
                }
                if isDue { slots.append(start + index) }
            }
            index += 1
        }
        return slots
    }

    private func matches(_ shown: Shown, _ expression: DrawnExpression) -> Bool {
        guard expression.minute.numbers >> shown.minute & 1 == 1, expression.hour.numbers >> shown.hour & 1 == 1,
            expression.month.numbers >> shown.month & 1 == 1
        else { return false }
        let isDay = expression.day.numbers >> shown.day & 1 == 1
        let isWeekday = expression.weekday.numbers >> shown.weekday & 1 == 1
        if expression.day.isStarred || expression.weekday.isStarred { return isDay && isWeekday }
        return isDay || isWeekday
    }

    /// Finds the hours within which a zone's clock changes, by looking at each of them.
    ///
    /// - Parameters:
    ///   - zone: the zone.
    ///   - years: the years to look at, roughly.
    /// - Returns: the first second of each hour after a change.
    static func changes(of zone: TimeZone, in years: ClosedRange<Int>) -> [Int] {
        let hours = ((years.lowerBound - 1970) * 8766)...((years.upperBound - 1969) * 8766)
        var last = zone.secondsFromGMT(for: Date(timeIntervalSince1970: Double(hours.lowerBound * 3600)))
        return hours.compactMap { hour in
            let offset = zone.secondsFromGMT(for: Date(timeIntervalSince1970: Double(hour * 3600)))
            defer { last = offset }
            return offset == last ? nil : hour * 3600
        }
    }
}
