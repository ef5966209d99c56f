import Entitlements
import FoundationEssentials
import Jobs
import Postgres

/// What others must hear of one change.
struct OutboxMessage {
    var userKey: Int64
    var topic: OutboxTopic
    /// JSON; names no user.
    var data: String
}

/// What others can hear of.
package enum OutboxTopic: String, Sendable, CaseIterable {
    case restoreFinished = "restore.finished"
    case typeChanged = "user.type_changed"
    case assetsUnfrozen = "assets.unfrozen"
    case assetsFrozen = "assets.frozen"
    case ticketOpened = "ticket.opened"
    case ticketDecided = "ticket.decided"
    case ticketOwnerAsked = "ticket.owner_asked"
    case ticketQuestion = "ticket.question"
}

/// Writes what others must hear, in the transaction of what it tells of.
enum OutboxWrites {
    /// Writes messages; those of a user are delivered in this order.
    static func insert(_ messages: [OutboxMessage]) -> [PostgresRequest<Void>] {
        guard !messages.isEmpty else { return [] }
        let query: PostgresQuery = """
            INSERT INTO entitlement_sync.outbox (user_key, topic, data)
            SELECT n.user_key, n.topic, n.data::jsonb
              FROM unnest(\(messages.map(\.userKey)), \(messages.map(\.topic.rawValue)), \(messages.map(\.data)))
                   WITH ORDINALITY AS n(user_key, topic, data, place)
             ORDER BY n.place
            """
        return [PostgresRequest(query)]
    }

    /// What verdicts and ends come to for others.
    static func messages(_ effects: [Effect], _ ends: [JobEnd]) -> [OutboxMessage] {
        var messages: [OutboxMessage] = []
        for effect in effects {
            if let type = effect.newType, let before = effect.user?.type {
                messages.append(
                    OutboxMessage(
                        userKey: effect.job.userKey,
                        topic: .typeChanged,
                        data: json([
                            ("from", before.rawValue), ("to", type.rawValue), ("rule", effect.verdict.rule.rawValue),
                        ])
                    )
                )
            }
            if effect.assetsChanged > 0 || effect.assetsPending {
                messages.append(
                    assets(
                        effect.job.userKey,
                        effect.verdict.action == .demote ? .freeze : .unfreeze,
                        count: effect.assetsChanged,
                        more: effect.assetsPending
                    )
                )
            }
        }
        for end in ends where end.kind == .restore {
            messages.append(
                OutboxMessage(
                    userKey: end.userKey,
                    topic: .restoreFinished,
                    data: json([
                        ("job", end.id.uuidString.lowercased()), ("state", end.state.rawValue),
                        ("outcome", end.outcome?.rawValue), ("message_key", end.messageKey?.rawValue),
                    ])
                )
            )
        }
        return messages
    }

    /// Assets that a batch has changed.
    static func assets(_ userKey: Int64, _ direction: AssetDirection, count: Int, more: Bool) -> OutboxMessage {
        OutboxMessage(
            userKey: userKey,
            topic: direction == .freeze ? .assetsFrozen : .assetsUnfrozen,
            data: #"{"count":\#(count),"more":\#(more)}"#
        )
    }

    /// Our own words alone, which hold nothing that JSON would have to escape.
    private static func json(_ members: [(String, String?)]) -> String {
        "{"
            + members.map { name, word in #""\#(name)":\#(word.map { #""\#($0)""# } ?? "null")"# }.joined(
                separator: ","
            )
            + "}"
    }
}
