import Foundation

/// Instants and spans as people read them; always in UTC, which pages say.
enum Moments {
    /// `2026-11-23 05:33 UTC`, with the instant for machines.
    static func shown(_ date: Date) -> [String: Any] {
        let text = date.formatted(.iso8601)
        return ["machine": text, "text": text.prefix(16).replacing("T", with: " ") + " UTC"]
    }

    /// The same, of what the database writes; `nil` for nothing.
    static func shown(_ text: String?) -> [String: Any]? {
        guard let text, text.count >= 16 else { return nil }
        let minutes = String(text.prefix(16).replacing("T", with: " "))
        return ["machine": String(text.prefix(19)) + "Z", "text": minutes + " UTC"]
    }

    /// Whether what the database wrote is still to come, to the second.
    static func isAhead(_ text: String?) -> Bool {
        guard let text, text.count >= 19 else { return false }
        return text.prefix(19) > Date().formatted(.iso8601).prefix(19)
    }

    /// `2 h`, `3 d`: the largest unit that says enough.
    private static func span(_ seconds: TimeInterval) -> String {
        let seconds = abs(seconds)
        return switch seconds {
        case ..<3_600: "\(Int(seconds / 60)) min"
        case ..<172_800: "\(Int(seconds / 3_600)) h"
        default: "\(Int(seconds / 86_400)) d"
        }
    }

    /// `due in 2 h`, `3 d late`.
    static func due(_ date: Date?) -> [String: Any]? {
        guard let date else { return nil }
        let left = date.timeIntervalSinceNow
        let text = left < 0 ? "\(span(left)) late" : "due in \(span(left))"
        return ["text": text, "late": left < 0, "at": shown(date)]
    }
}
