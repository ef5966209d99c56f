/// One of the five fields of a cron expression.
package enum CronField: String, Sendable, CaseIterable {
    case minute
    case hour
    case dayOfMonth = "day of month"
    case month
    case dayOfWeek = "day of week"

    /// The numbers that may be written.
    var range: ClosedRange<Int> {
        switch self {
        case .minute: 0...59
        case .hour: 0...23
        case .dayOfMonth: 1...31
        case .month: 1...12
        case .dayOfWeek: 0...7
        }
    }

    /// The names that may be written for numbers, from the field's first number on.
    private var names: [String] {
        switch self {
        case .minute, .hour, .dayOfMonth: []
        case .month: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
        case .dayOfWeek: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
        }
    }

    /// Reads a field: a list of `*`, numbers and ranges, the stars and ranges with steps if need be.
    ///
    /// - Parameter text: the field as it was written, in lower case.
    /// - Returns: the numbers that it names, with Sunday as 0.
    /// - Throws: `CronExpression.Fault` where crontab(5) knows no such field.
    func values(of text: Substring) throws(CronExpression.Fault) -> CronValues {
        var values = CronValues(isStarred: text.first == "*")
        for item in text.split(separator: ",", omittingEmptySubsequences: false) {
            guard !item.isEmpty else {
                throw fault("\(text) has a comma without a value on each side; write a list such as 1,2")
            }
            try values.insert(numbers(of: item))
        }
        if self == .dayOfWeek, values.contains(7) { values.moveSunday() }
        return values
    }

    private func numbers(of item: Substring) throws(CronExpression.Fault) -> StrideThrough<Int> {
        let parts = item.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count <= 2 else { throw fault("\(item) has more than one step; write one, such as */5") }
        let bounds = try self.bounds(of: parts[0])
        guard let written = parts.dropFirst().first else {
            return stride(from: bounds.lowerBound, through: bounds.upperBound, by: 1)
        }
        guard parts[0].contains(where: { $0 == "*" || $0 == "-" }) else {
            throw fault("\(item) has a step without a range; write \(parts[0])-\(range.upperBound)/\(written)")
        }
        guard isNumber(written) else { throw fault("the step \"\(written)\" is not a number; write it as in */2") }
        guard let step = Int(written), step > 0, step <= range.upperBound else {
            throw fault("the step \(written) is not in 1-\(range.upperBound)")
        }
        return stride(from: bounds.lowerBound, through: bounds.upperBound, by: step)
    }

    private func bounds(of text: Substring) throws(CronExpression.Fault) -> ClosedRange<Int> {
        if text == "*" { return range }
        let ends = text.split(separator: "-", omittingEmptySubsequences: false)
        guard ends.count <= 2 else { throw fault("\(text) is more than one range; write a range such as 1-5") }
        var first = try number(of: ends[0])
        guard ends.count == 2 else { return first...first }
        var last = try number(of: ends[1])
        // Sunday begins a week as well as it ends one: fri-sun, 7-2.
        if self == .dayOfWeek, last == 0, first > 0 { last = 7 }
        if self == .dayOfWeek, first == 7, last < 7 { first = 0 }
        guard first <= last else {
            let end = self == .dayOfWeek ? 6 : range.upperBound
            throw fault("\(text) runs backwards; write \(first)-\(end),\(range.lowerBound)-\(last)")
        }
        return first...last
    }

    private func number(of text: Substring) throws(CronExpression.Fault) -> Int {
        if let index = names.firstIndex(where: { $0 == text }) { return range.lowerBound + index }
        let written = text.isEmpty ? "an empty place" : String(text)
        let limits = "\(range.lowerBound)-\(range.upperBound)"
        guard isNumber(text) else {
            guard let name = names.first else { throw fault("\(written) is not a number in \(limits)") }
            throw fault("\(written) is neither a number in \(limits) nor a name of three letters such as \(name)")
        }
        guard let number = Int(text), range.contains(number) else { throw fault("\(written) is not in \(limits)") }
        return number
    }

    private func isNumber(_ text: Substring) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
    }

    private func fault(_ reason: String) -> CronExpression.Fault { CronExpression.Fault(reason, field: self) }
}
