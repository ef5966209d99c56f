/// The search for minutes of a clock that never changes; they are counted from 1970-01-01T00:00 of that clock.
extension CronExpression {
    /// Finds the first minute that matches, from a given one on.
    ///
    /// - Parameter minute: where the search begins.
    /// - Returns: the minute; `nil` only if the calendar had none in 400 years, after which it repeats itself.
    func firstMinute(from minute: Int) -> Int? {
        let (day, rest) = floorDivide(minute, by: 1440)
        if matches(day: day), let found = firstMinuteOfDay(from: rest) { return day * 1440 + found }
        guard let next = firstDay(from: day + 1), let found = firstMinuteOfDay(from: 0) else { return nil }
        return next * 1440 + found
    }

    /// Finds the last minute that matches, up to a given one.
    ///
    /// - Parameter minute: where the search begins.
    /// - Returns: the minute; `nil` only if the calendar had none in 400 years.
    func lastMinute(upTo minute: Int) -> Int? {
        let (day, rest) = floorDivide(minute, by: 1440)
        if matches(day: day), let found = lastMinuteOfDay(upTo: rest) { return day * 1440 + found }
        guard let previous = lastDay(upTo: day - 1), let found = lastMinuteOfDay(upTo: 1439) else { return nil }
        return previous * 1440 + found
    }

    private func firstMinuteOfDay(from minute: Int) -> Int? {
        let (hour, rest) = (minute / 60, minute % 60)
        if hours.contains(hour), let found = minutes.first(from: rest) { return hour * 60 + found }
        guard let next = hours.first(from: hour + 1), let found = minutes.first(from: 0) else { return nil }
        return next * 60 + found
    }

    private func lastMinuteOfDay(upTo minute: Int) -> Int? {
        let (hour, rest) = (minute / 60, minute % 60)
        if hours.contains(hour), let found = minutes.last(upTo: rest) { return hour * 60 + found }
        guard let previous = hours.last(upTo: hour - 1), let found = minutes.last(upTo: 59) else { return nil }
        return previous * 60 + found
    }

    private func firstDay(from day: Int) -> Int? {
        var date = CivilDate(days: day)
        for _ in 0...4800 {
            if months.contains(date.month), let found = due(in: date).first(from: date.day) {
                return CivilDate.days(year: date.year, month: date.month, day: found)
            }
            date = date.month == 12 ? CivilDate(date.year + 1, 1, 1) : CivilDate(date.year, date.month + 1, 1)
        }
        return nil
    }

    private func lastDay(upTo day: Int) -> Int? {
        var date = CivilDate(days: day)
        for _ in 0...4800 {
            if months.contains(date.month), let found = due(in: date).last(upTo: date.day) {
                return CivilDate.days(year: date.year, month: date.month, day: found)
            }
            date = date.month == 1 ? CivilDate(date.year - 1, 12, 31) : CivilDate(date.year, date.month - 1, 31)
        }
        return nil
    }

    private func matches(day: Int) -> Bool {
        let date = CivilDate(days: day)
        return months.contains(date.month) && due(in: date).contains(date.day)
    }

    /// Finds the days of a month that are due, whichever month it is.
    private func due(in date: CivilDate) -> CronValues {
        let start = CivilDate.days(year: date.year, month: date.month, day: 1)
        let due = days.joined(
            with: weekdays.repeated(from: CivilDate.weekday(start)),
            isUnion: !days.isStarred && !weekdays.isStarred
        )
        return due.cut(after: CivilDate.length(year: date.year, month: date.month))
    }
}
