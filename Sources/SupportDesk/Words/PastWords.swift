package import Entitlements
import Foundation

/// What is on record around a case, where people read it.
package enum PastWords {
    /// One line of what happened before, as a sentence without its tickets.
    package static func said(_ past: CasePast) -> String {
        let side = past.about == .claimant ? "The claimant" : "The owner"
        let times = past.count == 1 ? "once" : "\(past.count) times"
        let words =
            switch past.what {
            case .claimed where past.about == .purchase: "Claimed \(times) before: \(outcome(past))"
            case .claimed: "\(side) claimed a purchase \(times) before: \(outcome(past))"
            case .owned: "\(side) was the owner in a case \(times) before: \(outcome(past))"
            case .received: "\(side) was given a purchase \(times) by a transfer\(ending(past))"
            case .given: "\(side) lost a purchase \(times) to a transfer\(ending(past))"
            case .moved: "Moved \(times) by a transfer\(ending(past))"
            }
        return "\(words), last on \(day(past.lastAt))."
    }

    /// How a purchase's times lie to those at which both accounts were made, in microseconds since 1970; a sentence for
    /// each that is known.
    package static func said(_ times: CaseTimes, claimant: Int64?, owner: Int64?) -> [String] {
        var lines: [String] = []
        if let bought = times.boughtAt ?? times.firstSeenAt {
            let verb = times.boughtAt == nil ? "First seen" : "Bought"
            let sides = [("claimant's", claimant), ("owner's", owner)].compactMap { side, made in
                made.map { "\(span(bought, $0)) the \(side) account was made" }
            }
            lines.append("\(verb) on \(day(bought))" + (sides.isEmpty ? "." : ", \(sides.joined(separator: " and "))."))
        }
        if let since = times.ownerSince { lines.append("The owner's by our records since \(day(since)).") }
        if let claimed = times.claimedAt, let seen = times.firstSeenAt {
            lines.append(
                "An event named it as the owner's at \(minute(seen)); the claimant showed it at \(minute(claimed))."
            )
        }
        if let moved = times.movedAt { lines.append("Moved by support on \(day(moved)).") }
        if let refund = times.refundSeenAt { lines.append("A refund of it was last seen on \(day(refund)).") }
        if let taken = times.chargedBackAt {
            lines.append("Money paid for it was taken back as fraud on \(day(taken)).")
        }
        return lines
    }

    /// What is frozen of both sides; `nil`: not counted.
    package static func said(_ frozen: FrozenAssets) -> String? {
        let sides = [("claimant", frozen.claimant), ("owner", frozen.owner)].compactMap { side, count in
            count.map { "\($0) of the \(side)'s" }
        }
        return sides.isEmpty
            ? nil : "Assets frozen for a lapse when this was collected: \(sides.joined(separator: ", "))."
    }

    private static func outcome(_ past: CasePast) -> String {
        (CaseVerdict(rawValue: past.outcome).map { TicketWords.verdict($0.rawValue) } ?? TicketWords.state(past.outcome))
            .lowercased()
    }

    private static func ending(_ past: CasePast) -> String { past.outcome == "done" ? "" : " that was stopped" }

    private static func span(_ event: Int64, _ made: Int64) -> String {
        let days = abs(event - made) / 86_400_000_000
        return "\(days) \(days == 1 ? "day" : "days") \(event < made ? "before" : "after")"
    }

    private static func minute(_ microseconds: Int64) -> String {
        let text = Date(timeIntervalSince1970: Double(microseconds) / 1_000_000).formatted(.iso8601)
        return "\(text.prefix(10)) \(text.dropFirst(11).prefix(5)) UTC"
    }

    private static func day(_ microseconds: Int64) -> String {
        String(Date(timeIntervalSince1970: Double(microseconds) / 1_000_000).formatted(.iso8601).prefix(10))
    }
}
