/// The dates of HTTP headers.
package enum HTTPDate {
    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

    /// Reads an IMF-fixdate such as `Sun, 06 Nov 1994 08:49:37 GMT`, the one form that servers may send.
    ///
    /// - Returns: seconds since 1970; `nil` for anything else. The day's name is not compared with the date.
    /// - SeeAlso: https://www.rfc-editor.org/rfc/rfc9110#name-date-time-formats
    package static func seconds(_ text: String) -> Int64? {
        let parts = text.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 6, parts[0].utf8.count == 4, parts[0].hasSuffix(","), parts[5] == "GMT",
            let day = number(parts[1], digits: 2), let month = months.firstIndex(of: String(parts[2])),
            let year = number(parts[3], digits: 4)
        else { return nil }
        let time = parts[4].split(separator: ":", omittingEmptySubsequences: false)
        guard time.count == 3, let hour = number(time[0], digits: 2), let minute = number(time[1], digits: 2),
            let second = number(time[2], digits: 2)
        else { return nil }
        // 60 is a leap second.
        guard (1...31).contains(day), hour < 24, minute < 60, second <= 60 else { return nil }
        return days(year: year, month: month + 1, day: day) * 86_400 + hour * 3_600 + minute * 60 + second
    }

    private static func number(_ text: Substring, digits: Int) -> Int64? {
        guard text.utf8.count == digits, text.utf8.allSatisfy(\.isDigit) else { return nil }
        return Int64(text)
    }

    /// Days since 1970-01-01 in the Gregorian calendar, counting years from March so that leap days come last.
    package static func days(year: Int64, month: Int, day: Int64) -> Int64 {
        let shifted = month > 2 ? year : year - 1
        let monthFromMarch = Int64(month > 2 ? month - 3 : month + 9)
        let dayOfYear = (153 * monthFromMarch + 2) / 5 + day - 1
        return shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + dayOfYear - 719_468
    }

    /// The date of a day that is counted from 1970-01-01; from the year 0 on.
    package static func civil(_ days: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let day = days + 719_468
        let era = day / 146_097
        let dayOfEra = day - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let monthFromMarch = (5 * dayOfYear + 2) / 153
        let month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
        let year = era * 400 + yearOfEra + (month <= 2 ? 1 : 0)
        return (year, month, dayOfYear - (153 * monthFromMarch + 2) / 5 + 1)
    }
}
