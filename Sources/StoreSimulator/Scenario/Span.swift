/// A length of time as a scenario writes it: `50ms`, `2s`, `1d12h`, or whole milliseconds.
package struct Span: Sendable, Hashable, Codable {
    /// Length in milliseconds, never negative.
    package var milliseconds: Int64

    /// Makes a span of so many milliseconds.
    package init(milliseconds: Int64) {
        self.milliseconds = milliseconds
    }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let milliseconds = try? container.decode(Int64.self), milliseconds >= 0 {
            self.milliseconds = milliseconds
            return
        }
        guard let text = try? container.decode(String.self), let milliseconds = TimeText.milliseconds(text[...]) else {
            throw DecodingError.dataCorruptedError(
                in: container,
                debugDescription: "is no length of time; write 50ms, 2s, 1d12h, or whole milliseconds"
            )
        }
        self.milliseconds = milliseconds
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(milliseconds)
    }
}

/// The spelling of lengths of time.
enum TimeText {
    static let day: Int64 = 86_400_000

    private static let units: [Substring: Int64] = [
        "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": day, "w": 7 * day, "y": 365 * day,
    ]

    /// Milliseconds of an unsigned text such as `1d12h`; nil when it is malformed or longer than about a million years.
    static func milliseconds(_ text: Substring) -> Int64? {
        var rest = text
        var total: Int64 = 0
        guard !rest.isEmpty else { return nil }
        while !rest.isEmpty {
            let digits = rest.prefix { $0.isASCII && $0.isNumber }
            let unit = rest.dropFirst(digits.count).prefix { $0.isLetter }
            guard let count = Int64(digits), count <= 1_000_000_000_000, let factor = units[unit] else { return nil }
            let (part, overflow) = count.multipliedReportingOverflow(by: factor)
            guard !overflow, part <= 1_000_000 * 365 * day else { return nil }
            total += part
            guard total <= 1_000_000 * 365 * day else { return nil }
            rest = rest.dropFirst(digits.count + unit.count)
        }
        return total
    }
}
