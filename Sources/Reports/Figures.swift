import FoundationEssentials

/// Numbers as people read them; the same for every language of the machine.
enum Figures {
    /// `1,234,567`.
    static func grouped(_ number: Int64) -> String {
        let digits = Array(String(number.magnitude).utf8)
        var text = number < 0 ? "-" : ""
        for (index, digit) in digits.enumerated() {
            if index > 0, (digits.count - index).isMultiple(of: 3) { text += "," }
            text.unicodeScalars.append(Unicode.Scalar(digit))
        }
        return text
    }

    /// `1 demotion`, `8,000 demotions`.
    static func count(_ number: Int64, _ noun: String) -> String {
        "\(grouped(number)) \(noun)\(number == 1 ? "" : "s")"
    }

    /// `1,234.57`: with so many decimal places, and no noughts at the end.
    static func decimal(_ number: Double, places: Int = 2) -> String {
        guard number.isFinite else { return "–" }
        let unit = (0..<places).reduce(Int64(1)) { sum, _ in sum * 10 }
        let scaled = (abs(number) * Double(unit)).rounded()
        guard scaled < 1e18 else { return "\(number)" }
        let (whole, rest) = Int64(scaled).quotientAndRemainder(dividingBy: unit)
        var decimals = String(unit + rest).dropFirst()
        while decimals.last == "0" { decimals.removeLast() }
        return (number < 0 && scaled > 0 ? "-" : "") + grouped(whole) + (decimals.isEmpty ? "" : "." + decimals)
    }

    /// `93,784 s (26.1 h)`.
    static func seconds(_ number: Double) -> String {
        let exact = decimal(number) + " s"
        return switch number {
        case 172_800..<1e12: "\(exact) (\(decimal(number / 86_400, places: 1)) d)"
        case 7_200..<172_800: "\(exact) (\(decimal(number / 3_600, places: 1)) h)"
        case 120..<7_200: "\(exact) (\(decimal(number / 60, places: 1)) min)"
        default: exact
        }
    }

    /// How much of a hundred a part is, where the whole stands for a width: `62.5`.
    static func share(_ part: Int64, of whole: Int64) -> Double {
        guard part > 0, whole > 0 else { return 0 }
        return min(100, Double(part) / Double(whole) * 100)
    }
}

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
