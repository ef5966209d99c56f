import Entitlements
import Foundation
import Postgres
import StoreClients
@testable import StoreEvents
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// What the API does with what comes to its endpoints.
extension World {
    var inbox: Inbox { Inbox(pool: pool) }
    var app: AppRequests { AppRequests(pool: pool) }

    /// Keeps events of one sender, as the API does.
    ///
    /// - Returns: how many are new.
    @discardableResult
    func accept(_ events: [StoreEvent]) async throws -> Int64 {
        let source = try #require(events.first).source
        let kept = try events.map { try Inbox.Event($0) }
        return try await inbox.accept(kept, from: source)
    }

    /// Delivers a webhook of RevenueCat's; an id and a time are added where the event's members leave them out.
    ///
    /// - Returns: how many events are new.
    @discardableResult
    func deliver(_ members: String) async throws -> Int64 {
        try await inbox.accept([try revenueCatEvent(members)], from: .revenueCat)
    }

    /// A webhook of RevenueCat's, understood as the API understands it.
    func revenueCatEvent(_ members: String) throws -> Inbox.Event {
        let body = Array(try simulator.revenueCatWebhook(members).body.utf8)
        return try Inbox.Event(try RevenueCatEvent.read(body), body: body)
    }

    /// Lets events that wait be due, in place of waiting with them.
    func makeEventsDue() async throws {
        try await pool.query("UPDATE entitlement_sync.inbox SET due = now() WHERE state IN ('received', 'waiting')")
    }

    /// Lets delayed jobs be due, in place of waiting with them.
    func makeJobsDue() async throws {
        try await pool.query(
            """
            UPDATE entitlement_sync.queue AS q
               SET due = now(), restore_due = CASE WHEN q.restore_id IS NOT NULL THEN now() END,
                   reconcile_due = CASE WHEN q.reconcile_id IS NOT NULL THEN now() END
             WHERE q.owner IS NULL
            """
        )
    }

    /// Where an event stands, as others see it; nil when there is none.
    func state(ofEvent id: String) async throws -> String? {
        let rows = try await pool.query("SELECT l.state FROM entitlement_sync.inbox_log AS l WHERE l.event_id = \(id)")
        return try rows.first?.decode(String.self)
    }

    /// Makes a user of the host known to our records, and returns their key.
    @discardableResult
    func meet(_ user: String) async throws -> Int64 {
        try await number("SELECT entitlement_sync.user_key_of(\(user))")
    }

    /// How many jobs wait or run.
    func queued() async throws -> Int64 { try await number("SELECT count(*) FROM entitlement_sync.queue") }

    /// Asks for a restore, as a user's app does.
    func ask(_ wish: RestoreWish) async throws -> UUID { try await app.restore(wish).id }

    /// A restore as its user's app sees it.
    func answer(_ job: UUID) async throws -> RestoreAnswer { try #require(try await app.answers([job]).first) }
}

extension Inbox.Event {
    /// An event as the API keeps it.
    init(_ event: StoreEvent, body: [UInt8] = Array("{}".utf8)) throws {
        self.init(
            id: event.id,
            kind: event.kind,
            occurredAt: event.occurredAt,
            announcesAccess: event.announcesAccess,
            users: event.users,
            about: event.about,
            body: body
        )
    }
}

extension StoreEvent {
    /// An event of RevenueCat's about users; it promises nothing unless it says so.
    static func about(_ users: String..., id: String, announcesAccess: Bool = false) -> StoreEvent {
        StoreEvent(
            source: .revenueCat,
            id: id,
            kind: announcesAccess ? "RENEWAL" : "PRODUCT_CHANGE",
            announcesAccess: announcesAccess,
            users: users
        )
    }
}
