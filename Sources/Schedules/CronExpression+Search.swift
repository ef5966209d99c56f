/// The search for minutes of a clock that never changes; they are counted from 1970-01-01T00:00 of that clock.
extension CronExpression {
    /// The first minute that matches from a given one on, or the last one up to it.
    ///
    /// - Returns: `nil` only if the calendar had none in 400 years, after which it repeats itself.
    func minute(_ way: SearchDirection, from minute: Int) -> Int? {
        let (day, rest) = floorDivide(minute, by: 1440)
        if matches(day: day), let found = minuteOfDay(way, from: rest) { return day * 1440 + found }
        guard let next = self.day(way, from: day + way.step),
            let found = minuteOfDay(way, from: way == .later ? 0 : 1439)
        else { return nil }
        return next * 1440 + found
    }

    private func minuteOfDay(_ way: SearchDirection, from minute: Int) -> Int? {
        let (hour, rest) = (minute / 60, minute % 60)
        if hours.contains(hour), let found = minutes.nearest(way, from: rest) { return hour * 60 + found }
        guard let next = hours.nearest(way, from: hour + way.step),
            let found = minutes.nearest(way, from: way == .later ? 0 : 59)
        else { return nil }
        return next * 60 + found
    }

    private func day(_ way: SearchDirection, from day: Int) -> Int? {
        var date = CivilDate(days: day)
        for _ in 0...4800 {
            if months.contains(date.month), let found = due(in: date).nearest(way, from: date.day) {
                return CivilDate.days(year: date.year, month: date.month, day: found)
            }
            let (years, month) = floorDivide(date.month - 1 + way.step, by: 12)
            date = CivilDate(year: date.year + years, month: month + 1, day: way == .later ? 1 : 31)
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

/// Which way a search goes.
enum SearchDirection {
    case later, earlier

    var step: Int { self == .later ? 1 : -1 }
}
