import Glibc
import Logging

/// How a line of the log is written.
package enum LogFormat: String, Sendable, CaseIterable {
    /// `2026-11-21T02:03:04.567Z info message key=value`, for people.
    case text
    /// One JSON object, for machines.
    case json
}

/// One line of the log, as bytes.
///
/// Lines stay within what a pipe takes at once: so lines of several processes never mix, and none blocks after a poll
/// found room. What does not fit is left out, field by field, and the line says so.
struct LogLine {
    /// The longest line in bytes, its line end included: `PIPE_BUF` on Linux.
    static let limit = 4096
    /// The longest message or value in bytes, as written.
    static let valueLimit = 1024
    /// The longest key in bytes.
    static let keyLimit = 64

    /// Names that a JSON line uses itself; metadata under such a key gets an underscore behind it.
    private static let reserved: Set<String> = ["time", "level", "message", "logger", "truncated"]

    private let format: LogFormat
    private var bytes: [UInt8] = []
    private var isTruncated = false

    /// Starts a line; `label`, the logger's name, is written in JSON alone.
    init(format: LogFormat, time: timespec, level: Logger.Level, message: String, label: String) {
        self.format = format
        bytes.reserveCapacity(512)
        switch format {
        case .text:
            append(timestamp(time))
            append(" \(level.rawValue) ")
            appendText(message, mayHoldSpaces: true)
        case .json:
            append("{\"time\":\"")
            append(timestamp(time))
            append("\",\"level\":\"\(level.rawValue)\",\"message\":\"")
            bytes += Escape.json(message, limit: Self.valueLimit).bytes
            append("\",\"logger\":\"")
            bytes += Escape.json(label, limit: Self.keyLimit).bytes
            append("\"")
        }
    }

    mutating func add(_ key: String, _ value: String) {
        let before = bytes.count
        let name = Self.name(key)
        switch format {
        case .text:
            append(" \(name)=")
            appendText(value, mayHoldSpaces: false)
        case .json:
            append(Self.reserved.contains(name) ? ",\"\(name)_\":\"" : ",\"\(name)\":\"")
            bytes += Escape.json(value, limit: Self.valueLimit).bytes
            append("\"")
        }
        if bytes.count + truncationMark.utf8.count + 2 > Self.limit {
            bytes.removeSubrange(before...)
            isTruncated = true
        }
    }

    consuming func finished() -> [UInt8] {
        if isTruncated { append(truncationMark) }
        append(format == .json ? "}\n" : "\n")
        return bytes
    }

    private var truncationMark: String { format == .json ? ",\"truncated\":true" : " truncated=true" }

    private mutating func append(_ text: String) { bytes.append(contentsOf: text.utf8) }

    /// Writes text bare where that is unambiguous, else quoted as JSON does.
    private mutating func appendText(_ text: String, mayHoldSpaces: Bool) {
        let escaped = Escape.json(text, limit: Self.valueLimit - 2)
        let isBare =
            escaped.isVerbatim && !escaped.bytes.isEmpty
            && escaped.bytes.allSatisfy { $0 != 0x3D && ($0 != 0x20 || mayHoldSpaces) }
        if !isBare { bytes.append(0x22) }
        bytes += escaped.bytes
        if !isBare { bytes.append(0x22) }
    }

    /// A key of letters, digits, `.`, `-` and `_`; anything else becomes `_`.
    private static func name(_ key: String) -> String {
        let known = key.utf8.prefix(keyLimit).map { byte in
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F: byte
            default: UInt8(ascii: "_")
            }
        }
        return known.isEmpty ? "_" : String(decoding: known, as: UTF8.self)
    }

    /// UTC with milliseconds, as RFC 3339 has it.
    private func timestamp(_ time: timespec) -> String {
        var seconds = time.tv_sec
        var parts = tm()
        gmtime_r(&seconds, &parts)
        func padded(_ number: Int, _ width: Int) -> String {
            let digits = String(number)
            return String(repeating: "0", count: max(0, width - digits.count)) + digits
        }
        let date = "\(padded(Int(parts.tm_year) + 1900, 4))-\(padded(Int(parts.tm_mon) + 1, 2))-"
        let day = "\(padded(Int(parts.tm_mday), 2))T\(padded(Int(parts.tm_hour), 2)):\(padded(Int(parts.tm_min), 2)):"
        return date + day + "\(padded(Int(parts.tm_sec), 2)).\(padded(time.tv_nsec / 1_000_000, 3))Z"
    }
}
