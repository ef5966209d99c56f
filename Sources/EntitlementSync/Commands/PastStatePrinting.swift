import Entitlements
import Foundation
import Postgres
import Queue

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
struct PrintedState: Encodable {
    private let state: PastState

    init(_ state: PastState) { self.state = state }

    private enum Keys: String, CodingKey {
        case at, type, verdict, purchases, grants, unknown
        case readAt = "read_at"
        case absentSince = "absent_since"
    }

    private struct Verdict: Encodable {
        var at: String
        var kind: String
        var rule: String
        var outcome: String
        var observed: Bool
        var explanation: String
    }

    private struct Grant: Encodable {
        var id: Int64
        var until: String
        var reason: String
    }

    func encode(to encoder: any Encoder) throws {
        var row = encoder.container(keyedBy: Keys.self)
        try row.encode(state.at.machineText, forKey: .at)
        // Null where it is not known.
        try row.encode(state.type?.rawValue, forKey: .type)
        try row.encode(state.readAt?.machineText, forKey: .readAt)
        try row.encode(state.absentSince?.machineText, forKey: .absentSince)
        try row.encode(
            state.verdict.map {
                Verdict(
                    at: $0.at.machineText,
                    kind: $0.kind == .restore ? "restore" : "reconcile",
                    rule: $0.rule,
                    outcome: $0.outcome,
                    observed: $0.isObserved,
                    explanation: $0.explanation
                )
            },
            forKey: .verdict
        )
        try row.encode(state.purchases.map(PrintedPurchase.init), forKey: .purchases)
        try row.encode(
            state.grants.map { Grant(id: $0.id, until: $0.until.machineText, reason: $0.reason) },
            forKey: .grants
        )
        try row.encode(state.unknowns.map(\.sentence), forKey: .unknown)
    }

    /// The section under the timeline.
    var lines: [String] {
        var rows: [(String, String)] = [("type", state.type?.rawValue ?? "not known")]
        if let verdict = state.verdict {
            let observed = verdict.isObserved ? " Observed only: nothing was written." : ""
            rows.append(
                (
                    "verdict",
                    "of \(verdict.at.machineText), rule \(verdict.rule), outcome \(verdict.outcome): \(verdict.explanation)\(observed)"
                )
            )
        }
        if let readAt = state.readAt { rows.append(("last read", readAt.machineText)) }
        if let since = state.absentSince {
            rows.append(("no access", "found by full readings since \(since.machineText)"))
        }
        rows += state.purchases.map { ("purchase", PrintedPurchase($0).sentence) }
        if state.purchases.isEmpty { rows.append(("purchase", "none was known")) }
        rows += state.grants.map { ("grant", "\($0.id), until \($0.until.spokenText): \($0.reason)") }
        rows += state.unknowns.map { ("not known", $0.sentence) }
        return ["How it stood at \(state.at.machineText)"] + rows.map { "  \($0.0.padded(to: 9))  \($0.1)" }
    }
}

private struct PrintedPurchase: Encodable {
    private let held: PastState.Held

    init(_ held: PastState.Held) { self.held = held }

    private enum Keys: String, CodingKey {
        case owner, store, environment, kind, status, standing, source
        case productID = "product_id"
        case givesAccess = "gives_access"
        case periodEndsAt = "period_ends_at"
        case endAnnounced = "end_announced"
        case observedAt = "observed_at"
    }

    func encode(to encoder: any Encoder) throws {
        var row = encoder.container(keyedBy: Keys.self)
        try row.encode(held.owner.rawValue, forKey: .owner)
        try row.encode(held.store, forKey: .store)
        try row.encode(held.environment, forKey: .environment)
        try row.encode(held.kind.rawValue, forKey: .kind)
        try row.encode(held.productID, forKey: .productID)
        try row.encode(held.status, forKey: .status)
        try row.encode(held.accessState.rawValue, forKey: .standing)
        try row.encode(held.givesAccess, forKey: .givesAccess)
        try row.encode(held.periodEndsAt?.machineText, forKey: .periodEndsAt)
        try row.encode(held.endAnnounced, forKey: .endAnnounced)
        try row.encode(held.observedAt.machineText, forKey: .observedAt)
        try row.encode(held.source.rawValue, forKey: .source)
    }

    var sentence: String {
        let owner =
            switch held.owner {
            case .thisUser: "this user's"
            case .anotherUser: "another user's"
            case .noUser: "nobody's"
            }
        let kind = held.kind == .subscription ? "subscription" : "one-time purchase"
        let product = held.productID.map { " \($0)" } ?? ""
        let access = held.givesAccess.map { $0 ? ", gives access" : ", gives no access" } ?? ""
        let end = held.periodEndsAt.map { ", period ends \($0.spokenText)" } ?? ""
        let announced = held.endAnnounced ? ", its end was announced" : ""
        return
            "\(kind)\(product) of the store \(held.store) (\(held.environment)), \(owner): status \(held.status)\(access)\(end)"
            + "\(announced); \(held.source.name) said so at \(held.observedAt.machineText)."
    }
}

extension PastState.Unknown {
    /// A sentence for people.
    fileprivate var sentence: String {
        switch self {
        case .undecided(nil): "Nothing was decided about the user: what the application said then is not on record."
        case .undecided(let next?):
            "Nothing had been decided about the user; the first decision, at \(next.at.machineText), found the type"
                + " \(next.typeBefore?.rawValue ?? "of nobody")."
        case .changedByOthers(let after, let before, let type):
            "The type became \(type.rawValue) between \(after.machineText) and \(before.machineText) by another hand than ours;"
                + " when is not on record."
        case .unreadPurchases(let count):
            "\(count) of the user's purchases were first read for another user: how they stood is not on record here."
        case .cut: "The history is longer than is looked at: its oldest part is left out."
        case .readingsMissing(let count): "What was read for \(count) of the decisions is not on record any more."
        case .sandboxSince: "Since when the user's sandbox purchases count is not on record."
        case .jobsForgotten: "Jobs that ended without a decision are not on record any more."
        }
    }
}
