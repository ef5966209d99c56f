-- What the console and the terminal show of tickets: lanes, lists, one ticket; and the search for tickets and users.

-- How many tickets each lane has, up to 1000, and how many of these are late; without the operator's own cases.
CREATE OR REPLACE FUNCTION desk_counts(session bytea) RETURNS TABLE (lane text, tickets integer, late integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
    own bigint[] := own_cases(who.id);
BEGIN
    RETURN QUERY
    SELECT l.lane, n.tickets, n.late
      FROM (SELECT DISTINCT y.lane, y.place, y.state FROM desk_lane AS y WHERE y.lane <> 'closed') AS l
     CROSS JOIN LATERAL (
           SELECT count(*)::integer AS tickets, (count(*) FILTER (WHERE c.due_at < clock_timestamp()))::integer AS late
             FROM (SELECT t.due_at FROM ticket AS t
                    WHERE t.state = l.state
                      AND is_open(t.state)
                      AND (l.lane <> 'mine' OR t.assignee_id = who.id)
                      AND (l.lane <> 'others' OR t.assignee_id IS DISTINCT FROM who.id)
                      AND t.id <> ALL (own)
                    ORDER BY coalesce(t.due_at, 'infinity'), t.id LIMIT 1000) AS c) AS n
     ORDER BY l.place;
END
$$;

-- A page of a lane, the earliest due first; of closed tickets, the latest first; without the operator's own cases. `after_due` and
-- `after_id`: `sorted_by` and `id` of the previous page's last row.
CREATE OR REPLACE FUNCTION desk_queue(session bytea, wanted_lane text, wanted_kind text, after_due timestamptz, after_id bigint,
    most integer)
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
                                 AND is_open(t.state)
                                 AND (after_id IS NULL OR (coalesce(t.due_at, 'infinity'), t.id) > (after_due, after_id))
                                 AND (wanted_lane IS DISTINCT FROM 'mine' OR t.assignee_id = who.id)
                                 AND (wanted_lane IS DISTINCT FROM 'others' OR t.assignee_id IS DISTINCT FROM who.id)
                                 AND (NOT owns OR NOT is_own_case(who.id, t))
                               ORDER BY coalesce(t.due_at, 'infinity'), t.id LIMIT rows) AS c
                        ORDER BY c.due, c.id LIMIT rows);
    ELSE
        found := ARRAY(SELECT c.id FROM unnest(states) AS s(state)
                        CROSS JOIN LATERAL (
                              SELECT t.id, coalesce(t.due_at, 'infinity') AS due FROM ticket AS t
                               WHERE t.state = s.state AND t.kind = wanted_kind
                                 AND is_open(t.state)
                                 AND (after_id IS NULL OR (coalesce(t.due_at, 'infinity'), t.id) > (after_due, after_id))
                                 AND (wanted_lane IS DISTINCT FROM 'mine' OR t.assignee_id = who.id)
                                 AND (wanted_lane IS DISTINCT FROM 'others' OR t.assignee_id IS DISTINCT FROM who.id)
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
      LEFT JOIN operator AS h ON h.id = t.assignee_id AND t.assigned_until > clock_timestamp()
      LEFT JOIN ticket_evidence AS e ON e.id = t.evidence_id
     ORDER BY f.place;
END
$$;

-- Tickets, the newest first, without the operator's own cases. `before`: the last id of the previous page.
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

-- The newest tickets in some states, by default the open ones, without the operator's own cases.
CREATE OR REPLACE FUNCTION newest_tickets(who bigint, wanted text[], before bigint, most integer) RETURNS bigint[]
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    -- Reads state by state: the newest ticket of a rare state may lie far back.
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

-- The other tickets about the same purchase, the newest first, without the operator's own cases.
CREATE OR REPLACE FUNCTION linked_tickets(session bytea, which bigint)
RETURNS TABLE (id bigint, reference text, state text, created_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who   operator := acting(session, 'view');
    items bigint[];
BEGIN
    items := ARRAY(SELECT lineage(ARRAY[purchase_of(t)]) FROM ticket AS t WHERE t.id = which AND NOT is_own_case(who.id, t));
    RETURN QUERY
    SELECT t.id, reference_of('T', t.uid), t.state, t.created_at
      FROM ticket AS t
     WHERE t.id IN (SELECT x.id FROM ticket AS x WHERE x.purchase_id = ANY (items)
                     UNION SELECT x.id FROM ticket AS x WHERE x.purchase_id IS NULL AND x.subject_id = ANY (items))
       AND t.id <> which AND NOT is_own_case(who.id, t)
     ORDER BY t.id DESC LIMIT 100;
END
$$;

-- A ticket for the desk; no row for the operator's own case. Accounts are masked, unless `reveal_ticket` was called in an earlier
-- transaction of the last minute. Notes are shown to operators with the permission `work` or `audit`.
CREATE OR REPLACE FUNCTION show_ticket(session bytea, which bigint, reveal boolean DEFAULT false)
RETURNS TABLE (id bigint, reference text, kind text, state text, state_since timestamptz, store text, original_id text,
               visible boolean, priority smallint, touches integer, created_at timestamptz, deadline timestamptz,
               claimant text, owner text, holder text, assigned_until timestamptz, owner_until timestamptz, verdict text,
               evidence_at timestamptz, evidence_hash bytea, evidence_due timestamptz, evidence_error text, facts text[],
               hindrance text, suggested text, reason text, approvals_needed smallint, also_moves text[], document text,
               approved_by text[], transfer_step text, transfer_error text, events jsonb, store_app text, account_facts jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    who    operator := acting(session, CASE WHEN reveal THEN 'reveal' ELSE 'view' END);
    shown  boolean := reveal AND may_see(who.id, which);
BEGIN
    RETURN QUERY
    SELECT t.id, reference_of('T', t.uid), t.kind, t.state, t.state_since, t.store, t.original_id, t.visible, t.priority,
           t.touches, t.created_at, t.deadline, masked(c.user_id, shown), masked(o.user_id, shown), h.name,
           CASE WHEN t.assigned_until > clock_timestamp() THEN t.assigned_until END, w.ends_at, t.verdict,
           e.collected_at, e.hash, r.due_at, r.error, e.facts, e.hindrance, e.suggested, e.reason,
           e.approvals, e.also_moves, e.document::text,
           ARRAY(SELECT p.name FROM ticket_approval AS a JOIN operator AS p ON p.id = a.operator_id
                  WHERE a.ticket_id = t.id AND (a.ended_at IS NULL OR a.ended_by = 'used') ORDER BY a.id),
           x.step, x.last_error,
           (SELECT coalesce(jsonb_agg(jsonb_build_object('at', v.at, 'kind', v.kind, 'by', p.name, 'detail', v.detail,
                                                         'text', n.words) ORDER BY v.id), '[]')
              FROM (SELECT * FROM ticket_event AS y WHERE y.ticket_id = t.id ORDER BY y.id DESC LIMIT 200) AS v
              LEFT JOIN operator AS p ON p.id = v.operator_id
              LEFT JOIN ticket_note AS n ON v.kind = 'note' AND n.ticket_id = t.id AND may_read_messages(who)
                AND n.id = CASE WHEN v.detail ->> 'note' ~ '^[0-9]{1,18}$' THEN (v.detail ->> 'note')::bigint END),
           (SELECT coalesce(y.store_app, y.revenuecat_project) FROM purchase AS y
             WHERE y.id = purchase_of(t)),
           account_facts(t)
      FROM ticket AS t
      JOIN user_sync AS c ON c.user_key = t.claimant_key
      LEFT JOIN user_sync AS o ON o.user_key = t.owner_key
      LEFT JOIN operator AS h ON h.id = t.assignee_id AND t.assigned_until > clock_timestamp()
      LEFT JOIN ticket_evidence AS e ON e.id = t.evidence_id
      LEFT JOIN evidence_request AS r ON r.ticket_id = t.id
      LEFT JOIN owner_window AS w ON w.ticket_id = t.id
      LEFT JOIN LATERAL (SELECT y.step, y.last_error FROM transfer AS y WHERE y.ticket_id = t.id ORDER BY y.id DESC LIMIT 1)
                AS x ON true
     WHERE t.id = which AND NOT is_own_case(who.id, t);
END
$$;

-- Finds tickets and users by a ticket's reference or number, a restore's reference (also of one that is queued or running), a user's id,
-- an order id or a transaction id.
CREATE OR REPLACE FUNCTION desk_search(session bytea, word text)
RETURNS TABLE (what text, id bigint, reference text, kind text, state text, label text, created_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who     operator := acting(session, 'view');
    owns    boolean := has_account(who.id);
    wanted  text := btrim(word);
    spelled text := upper(btrim(word));
    users   bigint[] := '{}';
    items   bigint[] := '{}';
    cases   bigint[] := '{}';
    ends    bytea[];
BEGIN
    IF wanted IS NULL OR length(wanted) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'search: 1 to 255 characters',
            HINT = 'Give a reference, a user''s id, an order or a transaction.';
    END IF;
    IF spelled ~ '^T-[0-9A-Z]{4}-[0-9A-Z]{2}$' THEN
        cases := ARRAY(SELECT t.id FROM ticket AS t WHERE reference_of('T', t.uid) = spelled ORDER BY t.id DESC LIMIT 20);
    ELSIF spelled ~ '^R-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{2}$' THEN
        ends := reference_ends(spelled);
        SELECT coalesce(array_agg(DISTINCT h.user_key), '{}'),
            coalesce(array_agg(DISTINCT h.ticket_id) FILTER (WHERE h.ticket_id IS NOT NULL), '{}')
          INTO users, cases
          FROM (SELECT x.user_key, x.ticket_id FROM job_history AS x
                 WHERE x.kind = 0 AND substring(uuid_send(x.id) FROM 13) = ANY (reference_ends(spelled))
                 LIMIT 20) AS h;
        -- Jobs in the queue. Reads it to the end: every job that goes through the queue would pay for an index.
        users := users || ARRAY(SELECT q.user_key FROM queue AS q
                                 WHERE substring(uuid_send(q.restore_id) FROM 13) = ANY (ends)
                                    OR substring(uuid_send(q.restore_next) FROM 13) = ANY (ends)
                                    OR substring(uuid_send(q.reconcile_id) FROM 13) = ANY (ends)
                                    OR substring(uuid_send(q.reconcile_next) FROM 13) = ANY (ends) LIMIT 20);
    ELSE
        IF wanted ~ '^[0-9]{1,15}$' THEN
            cases := ARRAY(SELECT t.id FROM ticket AS t WHERE t.id = wanted::bigint);
        END IF;
        users := ARRAY(SELECT u.user_key FROM user_sync AS u WHERE u.user_id = wanted);
        items := ARRAY(SELECT DISTINCT surviving_purchase(i.purchase_id) FROM purchase_identifier AS i WHERE i.value = wanted LIMIT 20);
        cases := cases || ARRAY(SELECT t.id FROM ticket AS t WHERE t.original_id = wanted ORDER BY t.id DESC LIMIT 20)
                       || ARRAY(SELECT t.id FROM ticket AS t WHERE t.purchase_id = ANY (items) ORDER BY t.id DESC LIMIT 20)
                       || ARRAY(SELECT t.id FROM ticket AS t WHERE t.subject_id = ANY (items) ORDER BY t.id DESC LIMIT 20);
    END IF;
    cases := cases || ARRAY(SELECT t.id FROM ticket AS t WHERE t.claimant_key = ANY (users) ORDER BY t.id DESC LIMIT 20)
                   || ARRAY(SELECT t.id FROM ticket AS t WHERE t.owner_key = ANY (users) ORDER BY t.id DESC LIMIT 20);
    users := users || ARRAY(SELECT p.owner_key FROM purchase AS p WHERE p.id = ANY (items) AND p.owner_key IS NOT NULL);
    RETURN QUERY
    SELECT f.what, f.id, f.reference, f.kind, f.state, f.label, f.created_at
      FROM (SELECT 'ticket' AS what, t.id, reference_of('T', t.uid) AS reference, t.kind, t.state,
                   concat_ws(' ', t.store, t.original_id) AS label, t.created_at
              FROM ticket AS t
             WHERE t.id = ANY (cases) AND (NOT owns OR NOT is_own_case(who.id, t))
            UNION ALL
            SELECT 'user', u.user_key, NULL, NULL, NULL, masked(u.user_id, false), NULL
              FROM user_sync AS u
             WHERE u.user_key = ANY (users) AND u.user_id IS NOT NULL
               AND NOT is_own_account(who.id, u.user_key)) AS f
     ORDER BY f.what, f.created_at DESC NULLS LAST, f.id DESC LIMIT 50;
END
$$;

-- The last four bytes that an id with a reference such as R-7K3Q-92 can have: the reference gives thirty of their bits.
CREATE OR REPLACE FUNCTION reference_ends(spelled text) RETURNS bytea[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT ARRAY(SELECT substring(int8send((high.bits << 30) + low.bits) FROM 5)
                   FROM generate_series(0::bigint, 3) AS high(bits))
      FROM (SELECT sum((strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', c.sign) - 1)::bigint << (5 * (6 - c.place)::integer))::bigint AS bits
              FROM regexp_split_to_table(replace(substring(spelled FROM 3), '-', ''), '') WITH ORDINALITY AS c(sign, place)) AS low
$$;
