-- What was only observed has not happened: it stands apart where decisions are counted, and reads as what would be.

CREATE OR REPLACE FUNCTION user_events(which bigint) RETURNS TABLE (at timestamptz, place bigint, kind text, words text)
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp SET timezone = 'UTC' AS $$
    WITH me AS MATERIALIZED (
        SELECT which AS user_key
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
                                     ELSE ', attribution ' || o.attribution END) END AS words
          FROM observation AS o JOIN me USING (user_key)
        UNION ALL
        SELECT d.at, d.id, 'decision',
               format('Rule %s, outcome %s: %s%s%s%s', d.rule, d.outcome,
                      CASE WHEN d.observed THEN replace(d.explanation, 'the user became a subscriber', 'the user would become a subscriber')
                           ELSE d.explanation END,
                      CASE WHEN d.type_before IS DISTINCT FROM d.type_after
                           THEN format(CASE WHEN d.observed THEN ' Type %s would become %s.' ELSE ' Type %s became %s.' END,
                                       d.type_before, d.type_after) ELSE '' END,
                      CASE WHEN d.assets_changed > 0
                           THEN format(' %s %s %s.', d.assets_changed, CASE d.assets_changed WHEN 1 THEN 'asset' ELSE 'assets' END,
                                       CASE WHEN d.observed THEN 'would change' ELSE 'changed' END) ELSE '' END,
                      CASE WHEN d.observed THEN ' Observed only: nothing was written.' ELSE '' END)
          FROM decision AS d JOIN me USING (user_key)
        UNION ALL
        SELECT b.at, b.id, 'assets',
               CASE WHEN b.failed IS NULL THEN format('%s more %s changed.', b.changed, CASE b.changed WHEN 1 THEN 'asset' ELSE 'assets' END)
                    ELSE format('An asset was refused by the host''s database (%s).', b.failed) END
          FROM asset_batch AS b
          JOIN decision AS d ON d.id = b.decision_id JOIN me USING (user_key)
        UNION ALL
        SELECT g.created_at, g.id, 'grant',
               format('Access was granted until %s UTC: %s',
                      to_char(g.until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), g.reason)
          FROM "grant" AS g JOIN me USING (user_key)
        UNION ALL
        SELECT g.revoked_at, g.id, 'grant', format('Grant %s was revoked.', g.id)
          FROM "grant" AS g JOIN me USING (user_key) WHERE g.revoked_at IS NOT NULL
        UNION ALL
        SELECT e.at, e.id, 'ticket',
               format('Ticket %s (%s) %s.', reference_of('T', t.uid), t.kind,
                      CASE e.kind
                          WHEN 'approved' THEN 'was approved by somebody'
                          WHEN 'access_lent' THEN 'gives access while it is open'
                          WHEN 'approval_withdrawn' THEN 'lost an approval'
                          WHEN 'approvals_voided' THEN 'lost its approvals'
                          WHEN 'claimant_asked' THEN 'has a question for the claimant'
                          WHEN 'claimant_replied' THEN 'was answered by the claimant'
                          WHEN 'expired' THEN 'was closed: no answer came in time'
                          WHEN 'lease_ended' THEN 'is nobody''s any more'
                          WHEN 'note' THEN 'was remarked on'
                          WHEN 'owner_agreed' THEN 'has the owner''s consent'
                          WHEN 'owner_asked' THEN 'leaves the owner time to object'
                          WHEN 'owner_objected' THEN 'was objected to by the owner'
                          WHEN 'owner_released' THEN 'is about a purchase that its owner releases'
                          WHEN 'owner_replied' THEN 'was answered by the owner'
                          WHEN 'owner_read' THEN 'had its owner read again'
                          WHEN 'owner_window_waived' THEN 'waits for the owner no longer'
                          WHEN 'revealed' THEN 'was shown with the users'' ids'
                          WHEN 'token_asked' THEN 'has the App Store told of the new owner again'
                          WHEN 'transfer_begun' THEN 'is being carried out'
                          WHEN 'transfer_resolved' THEN 'had its transfer ended by hand'
                          WHEN 'transfer_stopped' THEN 'was not carried out'
                          WHEN 'transferred' THEN 'is done: the purchase is this user''s'
                          WHEN 'window_ended' THEN 'may be carried out: the owner''s time is over'
                          ELSE 'was ' || e.kind END)
          FROM ticket AS t JOIN me ON me.user_key = t.claimant_key
          JOIN ticket_event AS e ON e.ticket_id = t.id
        UNION ALL
        -- Whose ticket it is stays with that ticket.
        SELECT e.at, e.id, 'ticket',
               format('Ticket %s: this user %s.', reference_of('T', t.uid),
                      CASE e.kind WHEN 'owner_asked' THEN 'has time to object to a transfer of a purchase'
                                  WHEN 'owner_agreed' THEN 'agreed to the transfer'
                                  WHEN 'owner_objected' THEN 'objected to the transfer'
                                  WHEN 'owner_released' THEN 'released the purchase'
                                  ELSE 'is waited for no longer' END)
          FROM ticket AS t JOIN me ON me.user_key = t.owner_key
          JOIN ticket_event AS e ON e.ticket_id = t.id
         WHERE e.kind IN ('owner_asked', 'owner_agreed', 'owner_objected', 'owner_released', 'owner_window_waived')
        UNION ALL
        SELECT i.received_at, i.id, 'event',
               format('%s said %s%s; that is a reason to look, and no more.',
                      CASE i.source WHEN 'revenuecat' THEN 'RevenueCat' WHEN 'app_store' THEN 'The App Store'
                                    WHEN 'google_play' THEN 'Google Play' ELSE i.source END, i.kind,
                      coalesce(', of ' || to_char(i.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC', ''))
          FROM inbox AS i JOIN me ON i.user_keys @> ARRAY[me.user_key]
        UNION ALL
        SELECT x.ended_at, x.id, 'transfer',
               CASE WHEN x.to_key = me.user_key
                    THEN format('A purchase was moved to this user by support (ticket %s).', reference_of('T', t.uid))
                    ELSE format('A purchase of this user was moved to another account by support (ticket %s).',
                                reference_of('T', t.uid)) END
          FROM me JOIN transfer AS x ON me.user_key IN (x.from_key, x.to_key) AND x.step = 'done'
          JOIN ticket AS t ON t.id = x.ticket_id
        UNION ALL
        SELECT h.finished_at, 0, 'job',
               format('Job %s ended %s%s%s.', reference_of('R', h.id), h.state,
                      coalesce(' with ' || h.outcome, ''), coalesce(' (' || h.last_error || ')', ''))
          FROM job_history AS h JOIN me USING (user_key)
    )
    SELECT e.at, e.place, e.kind, e.words FROM events AS e
$$;

-- Decisions and tickets by cause; `observed`: decisions of which nothing was written.
CREATE OR REPLACE FUNCTION desk_causes(session bytea, days integer) RETURNS TABLE (what text, cause text, found bigint, users bigint, last_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    who   operator := acting(session, 'view');
    own   bigint[] := own_cases(who.id);
    since timestamptz := clock_timestamp() - make_interval(days => least(greatest(coalesce(days, 7), 1), 90));
BEGIN
    RETURN QUERY
    SELECT CASE WHEN d.observed THEN 'observed' ELSE 'decision' END, d.rule || CASE WHEN d.type_after = 'subscriber' THEN ':promoted' ELSE ':demoted' END, count(*),
           count(DISTINCT d.user_key), max(d.at)
      FROM decision AS d
     WHERE d.at >= since AND d.type_before IS DISTINCT FROM d.type_after
     GROUP BY 1, 2
    UNION ALL
    SELECT 'ticket', t.kind, count(*), count(DISTINCT t.claimant_key), max(t.created_at)
      FROM ticket AS t WHERE t.created_at >= since AND t.id <> ALL (own) GROUP BY t.kind
     ORDER BY 3 DESC, 2;
END
$$;

-- Figures for the charts of the console.
CREATE OR REPLACE FUNCTION desk_figures(session bytea) RETURNS TABLE (series text, bar text, part text, place integer, figure bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET jit = off SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
    own bigint[] := own_cases(who.id);
BEGIN
    RETURN QUERY
    WITH age AS MATERIALIZED (
        SELECT width_bucket(clock_timestamp() - t.clock_from, ARRAY['1 hour', '8 hours', '1 day', '3 days', '7 days']::interval[]) AS place,
               coalesce(t.due_at < clock_timestamp(), false) AS is_late, count(*) AS found
          FROM ticket AS t
         WHERE t.state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate') AND t.id <> ALL (own)
         GROUP BY 1, 2
    ), ended AS MATERIALIZED (
        SELECT date_trunc('day', t.closed_at) AS day,
               CASE t.state WHEN 'transferred' THEN 'transferred'
                            WHEN 'refused' THEN CASE t.verdict WHEN 'refuse' THEN 'refused' ELSE 'other help' END
                            ELSE 'closed itself' END AS part, count(*) AS found
          FROM ticket AS t WHERE t.closed_at >= date_trunc('day', clock_timestamp()) - interval '13 days' AND t.id <> ALL (own)
         GROUP BY 1, 2
    )
    SELECT 'age', b.bar, x.part, b.place::integer,
           (SELECT coalesce(sum(a.found), 0)::bigint FROM age AS a WHERE a.place = b.place - 1 AND a.is_late = (x.part = 'late'))
      FROM unnest(ARRAY['under 1 h', '1 to 8 h', '8 to 24 h', '1 to 3 d', '3 to 7 d', 'over 7 d']) WITH ORDINALITY AS b(bar, place)
     CROSS JOIN (VALUES ('in time'), ('late')) AS x(part)
    UNION ALL
    SELECT 'verdict', to_char(d.day, 'MM-DD'), v.part, (extract(epoch FROM d.day) / 86400)::integer,
           coalesce((SELECT n.found FROM ended AS n WHERE n.day = d.day AND n.part = v.part), 0)
      FROM generate_series(date_trunc('day', clock_timestamp()) - interval '13 days', date_trunc('day', clock_timestamp()), interval '1 day') AS d(day)
     CROSS JOIN (VALUES ('transferred'), ('other help'), ('refused'), ('closed itself')) AS v(part)
    UNION ALL
    SELECT 'outcome', d.outcome || CASE WHEN d.observed THEN ', only observed' ELSE '' END, '', d.observed::integer, count(*)
      FROM decision AS d
     WHERE d.at >= clock_timestamp() - interval '1 day' GROUP BY d.outcome, d.observed
    UNION ALL
    SELECT 'queue', x.bar, '', x.place, x.figure
      FROM (SELECT count(*) FILTER (WHERE q.owner IS NULL AND q.due <= clock_timestamp()) AS queued,
                   count(*) FILTER (WHERE q.owner IS NOT NULL) AS running,
                   count(*) FILTER (WHERE q.owner IS NULL AND q.due > clock_timestamp()) AS delayed
              FROM queue AS q) AS n
     CROSS JOIN LATERAL (VALUES ('due now', 1, n.queued), ('running', 2, n.running), ('waiting for their time', 3, n.delayed),
                                ('dead', 4, (SELECT count(*) FROM job_history AS h
                                             WHERE h.state = 'dead' AND NOT is_own_account(who.id, h.user_key)))) AS x(bar, place, figure);
END
$$;
