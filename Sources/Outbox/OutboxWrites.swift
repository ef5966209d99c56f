package import Entitlements
import FoundationEssentials
package import Postgres
import Queue
import TextFormats

/// A message about one change, as it is written.
package struct OutboxMessage: Sendable {
    var userKey: Int64
    var topic: OutboxTopic
    /// JSON; does not contain the user's id.
    var data: String
}

/// The types of messages.
package enum OutboxTopic: String, Sendable, CaseIterable {
    case restoreFinished = "restore.finished"
    case typeChanged = "user.type_changed"
    case entitlementsChanged = "entitlements.changed"
    case assetsUnfrozen = "assets.unfrozen"
    case assetsFrozen = "assets.frozen"
    case ticketOpened = "ticket.opened"
    case ticketDecided = "ticket.decided"
    case ticketOwnerAsked = "ticket.owner_asked"
    case ticketQuestion = "ticket.question"
}

/// Writes messages in the transaction of the change that they are about.
package enum OutboxWrites {
    /// The statements that write messages; those of a user are delivered in this order.
    package static func insert(_ messages: [OutboxMessage]) -> [PostgresRequest<Void>] {
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
}

extension OutboxMessage {
    /// A user's type has changed.
    package static func typeChanged(of userKey: Int64, from before: UserType, to type: UserType, by rule: Rule) -> Self
    {
        Self(
            userKey: userKey,
            topic: .typeChanged,
            data: json([("from", before.rawValue), ("to", type.rawValue), ("rule", rule.rawValue)])
        )
    }

    /// What gives a user access has changed.
    package static func entitlementsChanged(of userKey: Int64, _ change: EntitlementChange) -> Self {
        let (before, after) = (EntitlementJSON.published(change.before), EntitlementJSON.published(change.after))
        return Self(
            userKey: userKey,
            topic: .entitlementsChanged,
            data: #"{"before":\#(before),"after":\#(after)}"#
        )
    }

    /// A batch of a user's assets has changed; `more`: more batches follow.
    package static func assetsChanged(of userKey: Int64, topic: OutboxTopic, count: Int, more: Bool) -> Self {
        Self(userKey: userKey, topic: topic, data: #"{"count":\#(count),"more":\#(more)}"#)
    }

    /// A restore has ended.
    package static func restoreFinished(_ end: JobEnd) -> Self {
        Self(
            userKey: end.userKey,
            topic: .restoreFinished,
            data: json([
                ("job", end.id.uuidString.lowercased()), ("state", end.state.rawValue),
                ("outcome", end.outcome?.rawValue), ("message_key", end.messageKey?.rawValue),
            ])
        )
    }

    /// Our own words alone, which hold nothing that JSON would have to escape.
    private static func json(_ members: [(String, String?)]) -> String {
        let members = members.map { name, word in #""\#(name)":\#(word.map { #""\#($0)""# } ?? "null")"# }
        return "{\(members.joined(separator: ","))}"
    }
}
