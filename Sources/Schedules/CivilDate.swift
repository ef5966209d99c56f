/// A day of the Gregorian calendar, counted without Foundation's calendars.
struct CivilDate {
    /// The days of each month in a leap year.
    static let longestMonths = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

    let year: Int
    let month: Int
    let day: Int

    init(year: Int, month: Int, day: Int) {
        self.year = year
        self.month = month
        self.day = day
    }

    /// Makes the date of a day that is counted from 1970-01-01.
    init(days: Int) {
        // Years that begin in March end with their leap day, and 400 of them have 146097 days.
        let (era, dayOfEra) = floorDivide(days + 719_468, by: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let march = (5 * dayOfYear + 2) / 153
        day = dayOfYear - (153 * march + 2) / 5 + 1
        month = march < 10 ? march + 3 : march - 9
        year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    }

    /// Counts the days from 1970-01-01 to a date.
    static func days(year: Int, month: Int, day: Int) -> Int {
        let (era, yearOfEra) = floorDivide(month <= 2 ? year - 1 : year, by: 400)
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }

    /// Tells how many days a month has.
    static func length(year: Int, month: Int) -> Int {
        let isLeap = year.isMultiple(of: 4) && (!year.isMultiple(of: 100) || year.isMultiple(of: 400))
        return month == 2 && !isLeap ? 28 : longestMonths[month - 1]
    }

    /// Tells the weekday of a day since 1970-01-01, with Sunday as 0.
    static func weekday(_ days: Int) -> Int { floorDivide(days + 4, by: 7).remainder }
}

/// Divides so that the remainder is never negative.
func floorDivide(_ number: Int, by divisor: Int) -> (quotient: Int, remainder: Int) {
    let (quotient, remainder) = number.quotientAndRemainder(dividingBy: divisor)
    return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
}
