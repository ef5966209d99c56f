package import Postgres

/// What happened to a user, in plain sentences, oldest first.
package struct Timeline: Sendable {
    package struct Event: Sendable, Codable {
        package var at: String
        package var kind: String
        package var text: String
    }

    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Reads the timeline.
    ///
    /// `until`: leaves out what came later; an ISO 8601 instant that PostgreSQL reads.
    /// Returns `nil` for a user of whom neither the host nor we know anything.
    package func events(of userID: String, until: String?) async throws -> [Event]? {
        let host = try await pool.query(
            "SELECT u.type, u.status FROM entitlement_sync_host.read_users(\([userID])) AS u"
        )
        let rows = try await pool.query(
            """
            WITH me AS MATERIALIZED (
                SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = \(userID)
            ), events AS (
                SELECT o.asked_at AS at, o.id AS place, 'observation' AS kind,
                       CASE WHEN o.store IS NULL THEN
                                CASE o.coverage WHEN 'full' THEN 'Every store was read to the end and holds no purchase.'
                                                ELSE 'The stores could not be read to the end.' END
                            ELSE format('%s shows a %s of the store %s (%s%s): status %s%s%s%s.',
                                        CASE o.source WHEN 'revenuecat' THEN 'RevenueCat' WHEN 'app_store' THEN 'The App Store'
                                                      WHEN 'google_play' THEN 'Google Play' WHEN 'onside' THEN 'Onside'
                                                      ELSE o.source END,
                                        CASE o.kind WHEN 'subscription' THEN 'subscription' ELSE 'one-time purchase' END,
                                        o.store, o.environment,
                                        CASE o.ownership WHEN 'family_shared' THEN ', family shared' ELSE '' END, o.status,
                                        CASE o.gives_access WHEN true THEN ', gives access' WHEN false THEN ', gives no access'
                                                            ELSE '' END,
                                        coalesce(', period ends ' || to_char(o.period_ends_at AT TIME ZONE 'UTC',
                                                                             'YYYY-MM-DD HH24:MI') || ' UTC', ''),
                                        CASE WHEN o.attribution IN ('new', 'own') THEN ''
                                             ELSE ', attribution ' || o.attribution END) END AS text
                  FROM entitlement_sync.observation AS o JOIN me USING (user_key)
                UNION ALL
                SELECT d.at, d.id, 'decision',
                       format('Rule %s, outcome %s: %s%s%s%s', d.rule, d.outcome, d.explanation,
                              CASE WHEN d.type_before IS DISTINCT FROM d.type_after
                                   THEN format(' Type %s became %s.', d.type_before, d.type_after) ELSE '' END,
                              CASE WHEN d.assets_changed = 1 THEN ' 1 asset changed.'
                                   WHEN d.assets_changed > 1 THEN format(' %s assets changed.', d.assets_changed) ELSE '' END,
                              CASE WHEN d.observed THEN ' Observed only: nothing was written.' ELSE '' END)
                  FROM entitlement_sync.decision AS d JOIN me USING (user_key)
                UNION ALL
                SELECT b.at, b.id, 'assets',
                       CASE WHEN b.failed IS NULL THEN format('%s more %s changed.', b.changed, CASE b.changed WHEN 1 THEN 'asset' ELSE 'assets' END)
                            ELSE format('An asset was refused by the host''s database (%s).', b.failed) END
                  FROM entitlement_sync.asset_batch AS b
                  JOIN entitlement_sync.decision AS d ON d.id = b.decision_id JOIN me USING (user_key)
                UNION ALL
                SELECT g.created_at, g.id, 'grant',
                       format('Access was granted until %s UTC: %s',
                              to_char(g.until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), g.reason)
                  FROM entitlement_sync."grant" AS g JOIN me USING (user_key)
                UNION ALL
                SELECT g.revoked_at, g.id, 'grant', format('Grant %s was revoked.', g.id)
                  FROM entitlement_sync."grant" AS g JOIN me USING (user_key) WHERE g.revoked_at IS NOT NULL
                UNION ALL
                SELECT e.at, e.id, 'ticket',
                       format('Ticket %s (%s) %s.', entitlement_sync.reference_of('T', t.uid), t.kind,
                              CASE e.kind
                                  WHEN 'approved' THEN 'was approved by somebody'
                                  WHEN 'access_lent' THEN 'gives access while it is open'
                                  WHEN 'approval_withdrawn' THEN 'lost an approval'
                                  WHEN 'approvals_voided' THEN 'lost its approvals'
                                  WHEN 'lease_ended' THEN 'is nobody''s any more'
                                  WHEN 'note' THEN 'was remarked on'
                                  WHEN 'owner_asked' THEN 'leaves the owner time to object'
                                  WHEN 'owner_read' THEN 'had its owner read again'
                                  WHEN 'revealed' THEN 'was shown with the users'' ids'
                                  WHEN 'transfer_begun' THEN 'is being carried out'
                                  WHEN 'transfer_resolved' THEN 'had its transfer ended by hand'
                                  WHEN 'transfer_stopped' THEN 'was not carried out'
                                  WHEN 'transferred' THEN 'is done: the purchase is this user''s'
                                  WHEN 'window_ended' THEN 'may be carried out: the owner''s time is over'
                                  ELSE 'was ' || e.kind END)
                  FROM entitlement_sync.ticket AS t JOIN me ON me.user_key = t.claimant_key
                  JOIN entitlement_sync.ticket_event AS e ON e.ticket_id = t.id
                UNION ALL
                SELECT i.received_at, i.id, 'event',
                       format('%s said %s%s; that is a reason to look, and no more.',
                              CASE i.source WHEN 'revenuecat' THEN 'RevenueCat' WHEN 'app_store' THEN 'The App Store'
                                            WHEN 'google_play' THEN 'Google Play' ELSE i.source END, i.kind,
                              coalesce(', of ' || to_char(i.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC', ''))
                  FROM entitlement_sync.inbox AS i JOIN me ON i.user_keys @> ARRAY[me.user_key]
                UNION ALL
                SELECT h.finished_at, 0, 'job',
                       format('Job %s ended %s%s%s.', entitlement_sync.reference_of('R', h.id), h.state,
                              coalesce(' with ' || h.outcome, ''), coalesce(' (' || h.last_error || ')', ''))
                  FROM entitlement_sync.job_history AS h JOIN me USING (user_key)
            )
            SELECT to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), e.kind, e.text
              FROM events AS e
             WHERE \(until)::text IS NULL OR e.at <= \(until)::text::timestamptz
             ORDER BY e.at, e.kind = 'job', e.kind, e.place
            """
        )
        var events: [Event] = []
        for row in rows {
            let (at, kind, text) = try row.decode(String.self, String.self, String.self)
            events.append(Event(at: at, kind: kind, text: text))
        }
        if let row = host.first, until == nil {
            let (type, status) = try row.decode(String.self, String.self)
            let now = try await pool.query(
                "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
            )
            let at = try now.first?.decode(String.self, at: 0) ?? ""
            events.append(
                Event(at: at, kind: "now", text: "The user's type is \(type), the account's status \(status).")
            )
        }
        return host.isEmpty && events.isEmpty ? nil : events
    }
}
