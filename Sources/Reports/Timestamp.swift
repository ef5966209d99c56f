import FoundationEssentials

/// Instants as reports write them: ISO 8601 in UTC.
enum Timestamp {
    /// The years 1583 to 9999, in milliseconds: earlier ones have another calendar, later ones five digits.
    private static let known: ClosedRange<Double> = -12_212_553_600_000...253_402_300_799_999

    /// An instant to the millisecond, for machines; what lies beyond the years 1583 to 9999 is written as their ends.
    static func machine(_ date: Date) -> String {
        let (seconds, milliseconds) = parts(date)
        let rest = String(1000 + milliseconds).dropFirst()
        return "\(text(seconds).dropLast()).\(rest)Z"
    }

    /// An instant to the second, for people: `2026-11-23 05:33:07 UTC`.
    static func shown(_ date: Date) -> String {
        let text = text(parts(date).seconds)
        return "\(text.prefix(10)) \(text.dropFirst(11).dropLast()) UTC"
    }

    private static func parts(_ date: Date) -> (seconds: Int64, milliseconds: Int64) {
        let exact = (date.timeIntervalSince1970 * 1000).rounded()
        let milliseconds = Int64(exact.isNaN ? 0 : min(max(exact, known.lowerBound), known.upperBound))
        let (seconds, rest) = milliseconds.quotientAndRemainder(dividingBy: 1000)
        return rest < 0 ? (seconds - 1, rest + 1000) : (seconds, rest)
    }

    private static func text(_ seconds: Int64) -> String {
        Date(timeIntervalSince1970: Double(seconds)).formatted(.iso8601)
    }
}
