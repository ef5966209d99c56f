/// When something is due, as crontab(5) of Debian's cron writes it: minute, hour, day of month, month, day of week.
///
/// - A field is a list of numbers, ranges (`1-5`) and `*`; steps follow a range or a star (`1-30/7`, `*/5`). A step
///   that follows one number (`5/15`) is in no manual, and is refused.
/// - Months and days have names of three letters, in any case. Sunday is 0 and 7, and ends a range as well as it
///   begins one (`fri-sun`).
/// - Where both day fields are restricted, either is enough; a field that begins with `*` (as `*/2` does) restricts
///   nothing in this sense, and then both have to agree.
/// - `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly` and `@annually` stand for expressions. There
///   is no `@reboot`, as it names no time.
package struct CronExpression: Hashable, Sendable, CustomStringConvertible {
    /// The most characters that an expression may have.
    package static let longest = 200

    let minutes: CronValues
    let hours: CronValues
    let days: CronValues
    let months: CronValues
    let weekdays: CronValues

    /// Why a text is no expression, and what to write.
    package struct Fault: Error, Hashable, Sendable, CustomStringConvertible {
        /// The field that is wrong; `nil` where it is the expression as a whole.
        package let field: CronField?
        package let reason: String

        init(_ reason: String, field: CronField? = nil) {
            self.field = field
            self.reason = reason
        }

        package var description: String { field.map { "\($0.rawValue): \(reason)" } ?? reason }
    }

    private static let names = [
        "@hourly": "0 * * * *",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@weekly": "0 0 * * 0",
        "@monthly": "0 0 1 * *",
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
    ]

    /// Reads an expression.
    ///
    /// - Parameter text: five fields with blanks or tabs between them, or one of the names that begin with `@`.
    /// - Throws: `Fault` where the text is no expression, or one that would never be due.
    package init(_ text: String) throws(Fault) {
        guard text.unicodeScalars.count <= Self.longest else {
            throw Fault("the expression has more than \(Self.longest) characters; write ranges and steps, not lists")
        }
        if let odd = text.unicodeScalars.first(where: { $0 != "\t" && !(" "..."~").contains($0) }) {
            let code = String(odd.value, radix: 16, uppercase: true)
            throw Fault("the character U+\(code) is in no expression; write digits, names and * , - / alone")
        }
        let fields = try Self.expand(text.lowercased()).split { $0 == " " || $0 == "\t" }
        guard fields.count == 5 else {
            let count = fields.count == 1 ? "1 field" : "\(fields.count) fields"
            throw Fault("\(count) instead of five; write minute, hour, day of month, month, day of week")
        }
        minutes = try CronField.minute.values(of: fields[0])
        hours = try CronField.hour.values(of: fields[1])
        days = try CronField.dayOfMonth.values(of: fields[2])
        months = try CronField.month.values(of: fields[3])
        weekdays = try CronField.dayOfWeek.values(of: fields[4])
        guard canBeDue else {
            throw Fault(
                "\(days.text(in: 1...31)) never comes in month \(months.text(in: 1...12)); write a day that it has",
                field: .dayOfMonth
            )
        }
    }

    private static func expand(_ text: String) throws(Fault) -> String {
        let words = text.split { $0 == " " || $0 == "\t" }
        guard let first = words.first else {
            throw Fault("the expression is empty; write five fields such as 0 3 * * *, or a name such as @daily")
        }
        guard first.hasPrefix("@") else { return text }
        guard words.count == 1, let expanded = names[String(first)] else {
            let known = names.keys.sorted().joined(separator: ", ")
            throw Fault("\(words.joined(separator: " ")) is not a name; write five fields, or one of \(known)")
        }
        return expanded
    }

    /// One day of a month that is due is enough; every 29 February falls on every weekday in time.
    private var canBeDue: Bool {
        if !days.isStarred, !weekdays.isStarred { return true }
        return (1...12).contains { month in
            months.contains(month) && days.first(from: 1).map { $0 <= CivilDate.longestMonths[month - 1] } == true
        }
    }

    /// The fields in numbers, written in the one way that all equal expressions share.
    package var description: String {
        [
            minutes.text(in: 0...59), hours.text(in: 0...23), days.text(in: 1...31), months.text(in: 1...12),
            weekdays.text(in: 0...6),
        ].joined(separator: " ")
    }
}
