package import Entitlements

/// Times as RFC 3339 writes them, such as `2026-03-01T08:00:00.123Z`.
package enum RFC3339 {
    /// Reads a time with `Z` or an offset such as `+05:30`, and none to nine digits of a fraction.
    ///
    /// What is finer than a microsecond is cut off. `nil` for anything else: lower-case letters, a space between date
    /// and time, a day that no month has, and for times outside the years that an `Instant` is made for.
    ///
    /// - SeeAlso: https://www.rfc-editor.org/rfc/rfc3339#section-5.6
    package static func instant(_ text: String) -> Instant? {
        guard let time = read(text), let instant = Instant(milliseconds: time.seconds * 1000) else { return nil }
        return Instant(microseconds: instant.microseconds + time.microseconds)
    }

    /// Writes a time in UTC, with as many digits of the second as it has; `inSeconds`: without a fraction, which is cut off.
    package static func text(_ instant: Instant, inSeconds: Bool = false) -> String {
        let (second, fraction) = parts(instant.microseconds, 1_000_000)
        let (day, time) = parts(second, 86_400)
        let (year, month, dayOfMonth) = HTTPDate.civil(day)
        var text = "\(padded(year, 4))-\(padded(month, 2))-\(padded(dayOfMonth, 2))"
        text += "T\(padded(time / 3600, 2)):\(padded(time / 60 % 60, 2)):\(padded(time % 60, 2))"
        if !inSeconds, fraction > 0 { text += ".\(padded(fraction, 6))" }
        return text + "Z"
    }

    /// The quotient, rounded down, and what is left.
    private static func parts(_ value: Int64, _ size: Int64) -> (Int64, Int64) {
        let rest = (value % size + size) % size
        return ((value - rest) / size, rest)
    }

    private static func padded(_ number: Int64, _ digits: Int) -> String {
        let text = String(number)
        return text.utf8.count < digits ? String(repeating: "0", count: digits - text.utf8.count) + text : text
    }

    /// Reads a time of 1970 or later as receipts have it: far ahead for what has no end, and from Xcode with an offset
    /// without colon.
    package static func receiptInstant(_ text: String) -> Instant? {
        guard let time = read(text, needsColon: false), time.seconds >= 0 else { return nil }
        return Instant(microseconds: time.seconds * 1_000_000 + time.microseconds)
    }

    private static func read(_ text: String, needsColon: Bool = true) -> (seconds: Int64, microseconds: Int64)? {
        var scanner = Scanner(bytes: Array(text.utf8))
        guard let year = scanner.number(4), scanner.skip("-"), let month = scanner.number(2), scanner.skip("-"),
            let day = scanner.number(2), scanner.skip("T"), let hour = scanner.number(2), scanner.skip(":"),
            let minute = scanner.number(2), scanner.skip(":"), let second = scanner.number(2),
            let fraction = scanner.microseconds(), let offset = scanner.offsetSeconds(needsColon), scanner.isAtEnd,
            // 60 is a leap second.
            (1...12).contains(month), hour < 24, minute < 60, second <= 60,
            day >= 1, day <= lengthOfMonth(Int(month), year: year)
        else { return nil }
        let days = HTTPDate.days(year: year, month: Int(month), day: day)
        return (days * 86_400 + hour * 3_600 + minute * 60 + second - offset, fraction)
    }

    private static func lengthOfMonth(_ month: Int, year: Int64) -> Int64 {
        switch month {
        case 4, 6, 9, 11: 30
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        default: 31
        }
    }

    private struct Scanner {
        let bytes: [UInt8]
        var position = 0

        var isAtEnd: Bool { position == bytes.count }
        private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

        mutating func skip(_ character: Unicode.Scalar) -> Bool {
            guard next == UInt8(ascii: character) else { return false }
            position += 1
            return true
        }

        private mutating func digit() -> Int64? {
            guard let byte = next, byte.isDigit else { return nil }
            position += 1
            return Int64(byte - 0x30)
        }

        mutating func number(_ digits: Int) -> Int64? {
            var value: Int64 = 0
            for _ in 0..<digits {
                guard let digit = digit() else { return nil }
                value = value * 10 + digit
            }
            return value
        }

        /// The fraction of the second; 0 where there is none, `nil` for a bare dot and for more than nine digits.
        mutating func microseconds() -> Int64? {
            guard skip(".") else { return 0 }
            var value: Int64 = 0
            var count = 0
            while let digit = digit() {
                count += 1
                if count <= 6 { value = value * 10 + digit }
            }
            guard (1...9).contains(count) else { return nil }
            for _ in count..<max(count, 6) { value *= 10 }
            return value
        }

        mutating func offsetSeconds(_ needsColon: Bool) -> Int64? {
            if skip("Z") { return 0 }
            let isWest = next == UInt8(ascii: "-")
            guard isWest || next == UInt8(ascii: "+") else { return nil }
            position += 1
            guard let hours = number(2), skip(":") || !needsColon, let minutes = number(2), hours < 24, minutes < 60
            else { return nil }
            return (hours * 3_600 + minutes * 60) * (isWest ? -1 : 1)
        }
    }
}

extension JSONReader {
    /// Reads a time of RFC 3339, or `null`.
    package mutating func readOptionalTime() throws(JSONFault) -> Instant? {
        guard let text = try readOptionalString() else { return nil }
        guard let instant = RFC3339.instant(text) else { throw .outOfRange }
        return instant
    }

    /// Reads a time of RFC 3339, or `null`; `nil` as well for anything else.
    package mutating func readSoundTime() throws(JSONFault) -> Instant? {
        try readIfSound { reader throws(JSONFault) in try reader.readOptionalTime() }
    }

    /// Consumes a value of any kind.
    ///
    /// - Returns: whether it is there: anything but `null`, as empty objects stand for a yes.
    package mutating func readPresence() throws(JSONFault) -> Bool {
        guard try !readNull() else { return false }
        try passOver()
        return true
    }
}
