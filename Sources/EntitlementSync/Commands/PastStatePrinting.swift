import Postgres
import Entitlements
import Foundation
import Queue
import Reports

extension Instant {
    /// To the millisecond, for machines.
    var machineText: String {
        timestamp.date.formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }

    /// To the minute, for people.
    var spokenText: String {
        let text = timestamp.date.formatted(.iso8601)
        return "\(text.prefix(10)) \(text.dropFirst(11).prefix(5)) UTC"
    }
}

/// How a user stood, as it is printed.
extension PastState {
    var json: JSONObject {
        [
            "at": at.machineText,
            // Null where it is not known.
            "type": type?.rawValue,
            "read_at": readAt?.machineText,
            "absent_since": absentSince?.machineText,
            "verdict": verdict.map {
                [
                    "at": $0.at.machineText, "kind": $0.kind == .restore ? "restore" : "reconcile",
                    "rule": $0.rule, "outcome": $0.outcome, "observed": $0.isObserved,
                    "explanation": $0.explanation,
                ] as JSONObject
            },
            "purchases": purchases.map(\.json),
            "grants": grants.map {
                ["id": $0.id, "source": $0.source, "until": $0.until.machineText, "reason": $0.reason] as JSONObject
            },
            "unknown": unknowns.map(\.sentence),
        ]
    }

    /// The section under the timeline.
    var lines: [String] {
        var rows: [(String, String)] = [("type", type?.rawValue ?? "not known")]
        if let verdict {
            let observed = verdict.isObserved ? " Observed only: nothing was written." : ""
            let decided = "of \(verdict.at.machineText), rule \(verdict.rule), outcome \(verdict.outcome)"
            rows.append(("verdict", "\(decided): \(verdict.explanation)\(observed)"))
        }
        if let readAt { rows.append(("last read", readAt.machineText)) }
        if let absentSince { rows.append(("no access", "found by full readings since \(absentSince.machineText)")) }
        rows += purchases.map { ("purchase", $0.sentence) }
        if purchases.isEmpty { rows.append(("purchase", "none was known")) }
        rows += grants.map { grant in
            let source = grant.source == "grant" ? "" : "from \(grant.source), "
            return ("grant", "\(grant.id), \(source)until \(grant.until.spokenText): \(grant.reason)")
        }
        rows += unknowns.map { ("not known", $0.sentence) }
        return ["How it stood at \(at.machineText)"] + rows.map { "  \($0.0.padded(to: 9))  \($0.1)" }
    }
}

extension PastState.Held {
    fileprivate var json: JSONObject {
        [
            "owner": owner.rawValue, "store": purchase.store, "environment": purchase.environment,
            "kind": purchase.kind.rawValue, "product_id": productID, "status": purchase.status.raw,
            "standing": purchase.accessState.rawValue, "gives_access": purchase.givesAccess,
            "period_ends_at": purchase.periodEndsAt?.machineText, "end_announced": purchase.endAnnounced,
            "observed_at": purchase.observedAt.machineText, "source": purchase.source.rawValue,
        ]
    }

    fileprivate var sentence: String {
        let owner =
            switch self.owner {
            case .thisUser: "this user's"
            case .anotherUser: "another user's"
            case .noUser: "no user's"
            }
        let kind = purchase.kind == .subscription ? "subscription" : "one-time purchase"
        let product = productID.map { " \($0)" } ?? ""
        let access = purchase.givesAccess.map { $0 ? ", gives access" : ", gives no access" } ?? ""
        let end = purchase.periodEndsAt.map { ", period ends \($0.spokenText)" } ?? ""
        let announced = purchase.endAnnounced ? ", its end was announced" : ""
        return
            "\(kind)\(product) of the store \(purchase.store) (\(purchase.environment)), \(owner): status"
            + " \(purchase.status.raw)\(access)\(end)"
            + "\(announced); \(purchase.source.name) said so at \(purchase.observedAt.machineText)."
    }
}

extension PastState.Unknown {
    /// A sentence for people.
    fileprivate var sentence: String {
        switch self {
        case .undecided(nil): "Nothing was decided about the user: what the application said then is not on record."
        case .undecided(let next?):
            "Nothing had been decided about the user; the first decision, at \(next.at.machineText), found"
                + " \(next.typeBefore.map { "the type \($0.rawValue)" } ?? "no type")."
        case .changedByOthers(let after, let before, let type):
            "The type became \(type.rawValue) between \(after.machineText) and \(before.machineText) by another hand than ours;"
                + " when is not on record."
        case .unreadPurchases(let count):
            "\(count) of the user's purchases were first read for another user: how they stood is not on record here."
        case .cut: "The history is longer than is read: its oldest part is left out."
        case .readingsMissing(let count): "What was read for \(count) of the decisions is not on record any more."
        case .sandboxSince: "Since when the user's sandbox purchases count is not on record."
        case .jobsForgotten: "Jobs that ended without a decision are not on record any more."
        }
    }
}
