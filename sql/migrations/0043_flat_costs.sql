-- compatible_from: 11
-- What the API and the console ask costs the same however much history there is.

-- By `-id`, an order that the primary key can't give: walked back for a rare state, it would be read to its beginning.
CREATE INDEX ticket_state_newest ON ticket (state, (-id));
CREATE INDEX job_history_dead_end ON job_history (finished_at DESC, id DESC) INCLUDE (user_key) WHERE state = 'dead';
CREATE INDEX ticket_closed_kind ON ticket (kind, closed_at DESC, id DESC) WHERE closed_at IS NOT NULL;

-- The newest tickets in some states, by default those that are open, but for an operator's own cases.
CREATE FUNCTION newest_tickets(who bigint, wanted text[], before bigint, most integer) RETURNS bigint[]
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    -- State by state: of one that is rare the newest may lie far back among all tickets.
    SELECT ARRAY(SELECT c.id
                   FROM (SELECT unnest(wanted) UNION
                         SELECT m.state FROM ticket_move AS m WHERE wanted IS NULL AND is_open(m.state)) AS s(state)
                  CROSS JOIN LATERAL (
                        SELECT t.id FROM ticket AS t
                         WHERE t.state = s.state AND -t.id > -coalesce(before, 9223372036854775807)
                           AND NOT is_own_case(who, t)
                         ORDER BY -t.id LIMIT most) AS c
                  ORDER BY c.id DESC LIMIT most)
$$;

-- Tickets, the newest first, but for cases of one's own. `before`: the id that the page before ended with.
CREATE OR REPLACE FUNCTION list_tickets(session bytea, wanted text[], before bigint, most integer, reveal boolean DEFAULT false)
RETURNS TABLE (id bigint, reference text, user_id text, purchase_owner_id text, store text, original_id text, kind text,
               state text, touches integer, created_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who    operator := acting(session, CASE WHEN reveal THEN 'reveal' ELSE 'view' END);
    shown  bigint[];
BEGIN
    IF reveal THEN
        SELECT l.tickets INTO shown
          FROM ticket_reveal AS r JOIN list_reveal AS l ON l.reveal_id = r.id
         WHERE r.operator_id = who.id AND r.at > clock_timestamp() - interval '1 minute' AND r.xact <> pg_current_xact_id()
         ORDER BY r.id DESC LIMIT 1;
    END IF;
    RETURN QUERY
    SELECT t.id, reference_of('T', t.uid), masked(c.user_id, coalesce(t.id = ANY (shown), false)),
           masked(o.user_id, coalesce(t.id = ANY (shown), false)), t.store, t.original_id,
           t.kind, t.state, t.touches, t.created_at
      FROM unnest(newest_tickets(who.id, wanted, before, least(coalesce(most, 50), 1000))) AS n(id)
      JOIN ticket AS t ON t.id = n.id
      JOIN user_sync AS c ON c.user_key = t.claimant_key
      LEFT JOIN user_sync AS o ON o.user_key = t.owner_key
     ORDER BY t.id DESC;
END
$$;

-- Shows the users of the list's tickets, as before.
CREATE OR REPLACE FUNCTION reveal_list(session bytea, wanted text[], before bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who  operator := acting(session, 'reveal');
    made bigint;
BEGIN
    IF is_past_reveals(who.id, 20) THEN
        RETURN refuse_act(who, NULL, 'reveal', 'too_many_reveals');
    END IF;
    INSERT INTO ticket_reveal (ticket_id, operator_id) VALUES (NULL, who.id) RETURNING id INTO made;
    INSERT INTO list_reveal (reveal_id, tickets)
    SELECT made, newest_tickets(who.id, wanted, before, 20);
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'revealed', '{"ticket": "a list"}');
    RETURN NULL;
END
$$;

-- A page of a lane, as before.
CREATE OR REPLACE FUNCTION desk_queue(session bytea, wanted_lane text, wanted_kind text, after_due timestamptz, after_id bigint, most integer)
RETURNS TABLE (id bigint, reference text, kind text, state text, store text, original_id text, claimant text, owner text,
               holder text, touches integer, created_at timestamptz, due_at timestamptz, sorted_by timestamptz, is_urgent boolean,
               verdict text, suggested text, reason text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who    operator := acting(session, 'view');
    rows   integer := least(greatest(coalesce(most, 50), 1), 200);
    owns   boolean := has_account(who.id);
    states text[] := ARRAY(SELECT DISTINCT l.state FROM desk_lane AS l WHERE l.lane = wanted_lane
                            OR wanted_lane IS NULL AND l.lane <> 'closed');
    found  bigint[];
BEGIN
    IF cardinality(states) = 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'lane: there is no such lane', HINT = 'See the table desk_lane.';
    END IF;
    IF wanted_lane = 'closed' AND wanted_kind IS NULL THEN
        found := ARRAY(SELECT t.id FROM ticket AS t
                        WHERE t.closed_at IS NOT NULL
                          AND (t.closed_at, t.id) < (coalesce(after_due, 'infinity'), coalesce(after_id, 0))
                          AND (NOT owns OR NOT is_own_case(who.id, t))
                        ORDER BY t.closed_at DESC, t.id DESC LIMIT rows);
    ELSIF wanted_lane = 'closed' THEN
        found := ARRAY(SELECT t.id FROM ticket AS t
                        WHERE t.closed_at IS NOT NULL AND t.kind = wanted_kind
                          AND (t.closed_at, t.id) < (coalesce(after_due, 'infinity'), coalesce(after_id, 0))
                          AND (NOT owns OR NOT is_own_case(who.id, t))
                        ORDER BY t.closed_at DESC, t.id DESC LIMIT rows);
    ELSIF wanted_kind IS NULL THEN
        found := ARRAY(SELECT c.id FROM unnest(states) AS s(state)
                        CROSS JOIN LATERAL (
                              SELECT t.id, coalesce(t.due_at, 'infinity') AS due FROM ticket AS t
                               WHERE t.state = s.state
                                 AND t.state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate')
                                 AND (after_id IS NULL OR (coalesce(t.due_at, 'infinity'), t.id) > (after_due, after_id))
                                 AND (wanted_lane IS DISTINCT FROM 'mine' OR t.holder_id = who.id)
                                 AND (wanted_lane IS DISTINCT FROM 'others' OR t.holder_id IS DISTINCT FROM who.id)
                                 AND (NOT owns OR NOT is_own_case(who.id, t))
                               ORDER BY coalesce(t.due_at, 'infinity'), t.id LIMIT rows) AS c
                        ORDER BY c.due, c.id LIMIT rows);
    ELSE
        found := ARRAY(SELECT c.id FROM unnest(states) AS s(state)
                        CROSS JOIN LATERAL (
                              SELECT t.id, coalesce(t.due_at, 'infinity') AS due FROM ticket AS t
                               WHERE t.state = s.state AND t.kind = wanted_kind
                                 AND t.state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate')
                                 AND (after_id IS NULL OR (coalesce(t.due_at, 'infinity'), t.id) > (after_due, after_id))
                                 AND (wanted_lane IS DISTINCT FROM 'mine' OR t.holder_id = who.id)
                                 AND (wanted_lane IS DISTINCT FROM 'others' OR t.holder_id IS DISTINCT FROM who.id)
                                 AND (NOT owns OR NOT is_own_case(who.id, t))
                               ORDER BY coalesce(t.due_at, 'infinity'), t.id LIMIT rows) AS c
                        ORDER BY c.due, c.id LIMIT rows);
    END IF;
    RETURN QUERY
    SELECT t.id, reference_of('T', t.uid), t.kind, t.state, t.store, t.original_id, masked(c.user_id, false),
           masked(o.user_id, false), h.name, t.touches, t.created_at, t.due_at,
           CASE WHEN wanted_lane = 'closed' THEN t.closed_at ELSE coalesce(t.due_at, 'infinity') END,
           is_urgent(t), t.verdict, e.suggested, e.reason
      FROM unnest(found) WITH ORDINALITY AS f(id, place)
      JOIN ticket AS t ON t.id = f.id
      JOIN user_sync AS c ON c.user_key = t.claimant_key
      LEFT JOIN user_sync AS o ON o.user_key = t.owner_key
      LEFT JOIN operator AS h ON h.id = t.holder_id AND t.holder_until > clock_timestamp()
      LEFT JOIN ticket_evidence AS e ON e.id = t.evidence_id
     ORDER BY f.place;
END
$$;

-- Dead jobs, the newest first.
CREATE OR REPLACE FUNCTION desk_dead(session bytea, most integer DEFAULT 100)
RETURNS TABLE(id text, reference text, kind text, user_key bigint, user_id text, attempt integer, finished_at timestamp with time zone, last_error text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who  operator := acting(session, 'view');
    owns boolean := has_account(who.id);
    rows integer := least(greatest(coalesce(most, 100), 1), 500);
BEGIN
    RETURN QUERY
    SELECT h.id::text, reference_of('R', h.id), CASE h.kind WHEN 0 THEN 'restore' ELSE 'reconcile' END, h.user_key,
           masked(u.user_id, false), h.attempt::integer, h.finished_at, h.last_error
      FROM job_history AS h
      LEFT JOIN user_sync AS u ON u.user_key = h.user_key
     WHERE h.state = 'dead' AND (NOT owns OR NOT is_own_account(who.id, h.user_key))
     ORDER BY h.finished_at DESC, h.id DESC LIMIT rows;
END
$$;

-- What charts show, as before.
CREATE OR REPLACE FUNCTION desk_figures(session bytea) RETURNS TABLE (series text, bar text, part text, place integer, figure bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET jit = off SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    who  operator := acting(session, 'view');
    own  bigint[] := own_cases(who.id);
    owns boolean := has_account(who.id);
    -- A moment that might change from row to row can't be looked up in an index.
    moment CONSTANT timestamptz := clock_timestamp();
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
          FROM ticket AS t WHERE t.closed_at >= date_trunc('day', moment) - interval '13 days' AND t.id <> ALL (own)
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
     WHERE d.at >= moment - interval '1 day' GROUP BY d.outcome, d.observed
    UNION ALL
    SELECT 'queue', x.bar, '', x.place, x.figure
      FROM (SELECT count(*) FILTER (WHERE q.owner IS NULL AND q.due <= clock_timestamp()) AS queued,
                   count(*) FILTER (WHERE q.owner IS NOT NULL) AS running,
                   count(*) FILTER (WHERE q.owner IS NULL AND q.due > clock_timestamp()) AS delayed
              FROM queue AS q) AS n
     CROSS JOIN LATERAL (VALUES ('due now', 1, n.queued), ('running', 2, n.running), ('waiting for their time', 3, n.delayed),
                                ('dead', 4, (SELECT count(*) FROM job_history AS h
                                             WHERE h.state = 'dead' AND (NOT owns OR NOT is_own_account(who.id, h.user_key))))) AS x(bar, place, figure);
END
$$;

REVOKE ALL ON FUNCTION newest_tickets FROM PUBLIC;
