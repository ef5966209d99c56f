import Postgres

/// The stores' events that come in, and the messages that go out.
struct MessageChecks {
    let pool: PostgresPool

    /// How long an event may wait before it is examined, in seconds.
    private static let longestWait = 300.0

    /// Events that are not examined, and those whose users are unknown.
    func inbox() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT (SELECT count(*) FROM entitlement_sync.inbox AS i
                     WHERE i.state IN ('received', 'waiting') AND i.due <= now()),
                   (SELECT coalesce(extract(epoch FROM now() - min(i.due)), 0)::double precision
                      FROM entitlement_sync.inbox AS i WHERE i.state IN ('received', 'waiting')),
                   (SELECT count(*) FROM entitlement_sync.inbox AS i WHERE i.state = 'waiting'),
                   (SELECT count(*) FROM entitlement_sync.inbox AS i
                     WHERE i.source = ANY ('{revenuecat,app_store,google_play}') AND i.state = 'parked'
                       AND i.received_at > now() - interval '1 day')
            """
        )
        guard let row = rows.first else { return nil }
        let (due, age, unknown, parked) = try row.decode(Int64.self, Double.self, Int64.self, Int64.self)
        let isLate = due > 0 && age > Self.longestWait
        return Check(
            name: "inbox",
            ok: !isLate,
            detail: (isLate
                ? "\(due) events wait, the oldest for \(Int(age)) s" : "events are examined as they come")
                + "; \(unknown) wait for a user to sign up, \(parked) of the last day were about no known user",
            fix: "Start a worker, or see its log: it examines the events."
        )
    }

    /// Events that name a user of ours with other letter case; no user is guessed.
    func letterCase() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT count(DISTINCT i.id), coalesce(min(i.event_id), '')
              FROM entitlement_sync.inbox AS i
             CROSS JOIN LATERAL jsonb_array_elements_text(i.about -> 'users') AS n(name)
              JOIN entitlement_sync.user_sync AS u ON lower(u.user_id) = lower(n.name) AND u.user_id <> n.name
             WHERE i.about IS NOT NULL AND i.state IN ('waiting', 'parked') AND i.received_at > now() - interval '7 days'
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.user_sync AS e WHERE e.user_id = n.name)
            """
        )
        guard let (count, event) = try rows.first?.decode(Int64.self, String.self) else { return nil }
        return Check(
            "letter_case",
            zero: count,
            fine: "no event names a user in another spelling",
            wrong: "events of seven days name an id that differs from a user's by letter case alone, such as event"
                + " \(event.prefix(64))",
            fix:
                "RevenueCat tells ids apart by letter case: let the application log in with the id as the host has it."
        )
    }

    /// When each store's last event came.
    func events() async throws -> [Check] {
        try await pool.query(
            """
            SELECT s.source, (SELECT extract(epoch FROM now() - max(i.received_at))::double precision
                                FROM entitlement_sync.inbox AS i
                               WHERE i.source = s.source AND NOT i.is_backfilled)
              FROM unnest('{revenuecat,app_store,google_play}'::text[]) AS s(source)
            """
        ).compactMap { row in
            let (source, age) = try row.decode(String.self, Double?.self)
            guard let age else { return nil }
            return Check("events.\(source)", fine: "the last event came \(Self.span(age)) ago")
        }
    }

    /// Messages that others have not taken.
    func outbox() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT count(*) FILTER (WHERE o.is_dead), count(*) FILTER (WHERE NOT o.is_dead),
                   coalesce(extract(epoch FROM now() - min(o.created_at) FILTER (WHERE NOT o.is_dead)), 0)::double precision,
                   coalesce(max(o.last_error) FILTER (WHERE NOT o.is_dead), '')
              FROM entitlement_sync.outbox AS o
            """
        )
        guard let row = rows.first else { return nil }
        let (dead, waiting, age, error) = try row.decode(Int64.self, Int64.self, Double.self, String.self)
        let isLate = waiting > 0 && age > 3600
        return Check(
            name: "outbox",
            ok: dead == 0 && !isLate,
            detail: dead == 0 && waiting == 0
                ? "nothing waits to be delivered"
                : "\(waiting) messages wait, the oldest for \(Self.span(age))\(error.isEmpty ? "" : " (\(error))"); \(dead)"
                    + " were given up",
            fix:
                "Mend the receiver at OUTBOX_URL; what was given up is sent again once outbox.is_dead is set to false."
        )
    }

    /// Custom claims at Firebase that are not written.
    func claims() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT count(*) FILTER (WHERE NOT c.is_check AND c.due < 'infinity'), count(*) FILTER (WHERE c.is_check AND c.due < 'infinity'),
                   count(*) FILTER (WHERE c.due = 'infinity'),
                   coalesce(extract(epoch FROM now() - min(c.due) FILTER (WHERE NOT c.is_check AND c.due < 'infinity')), 0)::double precision,
                   coalesce(max(c.last_error) FILTER (WHERE c.due < 'infinity' AND c.last_error <> 'no_account'), '')
              FROM entitlement_sync.firebase_claims AS c
            """
        )
        guard let row = rows.first else { return nil }
        let (changed, checked, parked, age, error) = try row.decode(
            Int64.self,
            Int64.self,
            Int64.self,
            Double.self,
            String.self
        )
        let late = age > 3600 ? ", the oldest due for \(Self.span(age))" : ""
        return Check(
            name: "firebase_claims",
            ok: parked == 0 && error.isEmpty && late.isEmpty,
            detail: changed + checked + parked == 0
                ? "no custom claims wait"
                : "the custom claims of \(changed) users wait to be written\(late), and of \(checked) to be compared"
                    + "\(error.isEmpty ? "" : " (\(error))"); \(parked) were given up until the next change or check",
            fix:
                "See firebase_claims.last_error, and that a worker or run with FIREBASE_SERVICE_ACCOUNT is alive and not paused."
        )
    }

    private static func span(_ seconds: Double) -> String {
        switch seconds {
        case ..<120: "\(Int(seconds)) s"
        case ..<7200: "\(Int(seconds / 60)) min"
        case ..<172_800: "\(Int(seconds / 3600)) h"
        default: "\(Int(seconds / 86_400)) days"
        }
    }
}
