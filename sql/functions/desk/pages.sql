-- What the console and the terminal show: lanes, search, users, dead jobs, charts and the log.

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
    items := ARRAY(WITH RECURSIVE item AS (
                       SELECT surviving_purchase(coalesce(t.purchase_id, t.subject_id)) AS id FROM ticket AS t
                        WHERE t.id = which AND NOT is_own_case(who.id, t)
                        UNION
                       SELECT p.id FROM purchase AS p JOIN item AS i ON p.merged_into = i.id
                   )
                   SELECT i.id FROM item AS i WHERE i.id IS NOT NULL);
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
               approved_by text[], transfer_step text, transfer_error text, events jsonb)
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
                AND n.id = CASE WHEN v.detail ->> 'note' ~ '^[0-9]{1,18}$' THEN (v.detail ->> 'note')::bigint END)
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

-- All that the desk shows of a user, as one JSON object; null: there is no such user, or the operator may not see them.
CREATE OR REPLACE FUNCTION desk_user(session bytea, which bigint, reveal boolean DEFAULT false) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    who   operator := acting(session, CASE WHEN reveal THEN 'reveal' ELSE 'view' END);
    shown boolean := reveal AND EXISTS (SELECT 1 FROM user_reveal AS r
                                         WHERE r.operator_id = who.id AND r.user_key = which
                                           AND r.at > clock_timestamp() - interval '1 minute' AND r.xact <> pg_current_xact_id());
    me    user_sync;
    host  record;
    held  record;
BEGIN
    SELECT u.* INTO me FROM user_sync AS u WHERE u.user_key = which;
    IF me.user_key IS NULL OR is_own_account(who.id, which) THEN
        RETURN NULL;
    END IF;
    SELECT h.* INTO host FROM entitlement_sync_host.read_users(ARRAY[me.user_id]) AS h WHERE me.user_id IS NOT NULL;
    SELECT c.lapsed, c.others INTO held FROM entitlement_sync_host.count_assets(ARRAY[me.user_id]) AS c WHERE me.user_id IS NOT NULL;
    RETURN jsonb_build_object(
        'key', me.user_key, 'user_id', masked(me.user_id, shown), 'is_revealed', shown, 'is_erased', me.user_id IS NULL,
        'type', host.type, 'status', host.status, 'created_at', host.created_at, 'read_at', me.read_at,
        'full_read_at', me.full_read_at, 'next_check_at', me.next_check_at, 'frozen_assets', held.lapsed, 'other_assets', held.others,
        'purchases', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                                 'id', p.id, 'store', p.store, 'environment', p.environment, 'kind', p.kind, 'product', p.product_id,
                                 'status', p.status, 'gives_access', p.gives_access, 'ends_at', p.period_ends_at,
                                 'renewal', p.renewal, 'ownership', p.ownership, 'owner_since', p.owner_since,
                                 'observed_at', p.observed_at, 'rule', p.owner_rule) ORDER BY p.observed_at DESC, p.id DESC), '[]')
                        FROM (SELECT x.* FROM purchase AS x WHERE x.owner_key = which AND x.merged_into IS NULL
                               ORDER BY x.observed_at DESC, x.id DESC LIMIT 50) AS p),
        'grants', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', g.id, 'until', g.until, 'created_at', g.created_at,
                                                                'revoked_at', g.revoked_at, 'reason', g.reason)
                                             ORDER BY g.id DESC), '[]')
                     FROM (SELECT x.* FROM "grant" AS x WHERE x.user_key = which ORDER BY x.id DESC LIMIT 20) AS g),
        'standing', user_standing(me.user_id),
        'dry_run', (SELECT to_jsonb(r) FROM dry_run AS r
                     WHERE r.user_key = which AND r.asked_at > clock_timestamp() - interval '1 day'
                       -- A later decision says more than the dry run.
                       AND NOT EXISTS (SELECT 1 FROM past_decision AS d WHERE d.user_key = which AND d.at > r.ended_at)
                     ORDER BY r.asked_at DESC LIMIT 1),
        'waiting', EXISTS (SELECT 1 FROM queue AS q WHERE q.user_key = which),
        'jobs', (SELECT coalesce(jsonb_agg(jsonb_build_object('reference', reference_of('R', j.id),
                                                              'kind', CASE j.kind WHEN 0 THEN 'restore' ELSE 'reconcile' END,
                                                              'state', j.state, 'outcome', j.outcome, 'message', j.message_key,
                                                              'finished_at', j.finished_at, 'error', j.last_error)
                                           ORDER BY j.finished_at DESC), '[]')
                   FROM (SELECT x.* FROM job_history AS x WHERE x.user_key = which ORDER BY x.finished_at DESC LIMIT 20) AS j),
        'tickets', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', t.id, 'reference', reference_of('T', t.uid), 'kind', t.kind,
                                                                 'state', t.state, 'verdict', t.verdict, 'created_at', t.created_at,
                                                                 'closed_at', t.closed_at,
                                                                 'side', CASE t.claimant_key WHEN which THEN 'claimant' ELSE 'owner' END)
                                              ORDER BY t.id DESC), '[]')
                      FROM (SELECT x.* FROM ticket AS x
                             WHERE x.id IN (SELECT y.id FROM ticket AS y WHERE y.claimant_key = which
                                            UNION SELECT y.id FROM ticket AS y WHERE y.owner_key = which)
                               AND NOT is_own_case(who.id, x)
                             ORDER BY x.id DESC LIMIT 20) AS t))::text;
END
$$;

-- What happened to a user, in plain sentences, the latest first; no rows for a user that the operator may not see.
CREATE OR REPLACE FUNCTION desk_timeline(session bytea, which bigint, most integer DEFAULT 200)
RETURNS TABLE (at timestamptz, kind text, words text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    IF is_own_account(who.id, which) THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT e.at, e.kind, e.words FROM user_events(which) AS e
     ORDER BY e.at DESC, e.kind = 'job' DESC, e.kind DESC, e.place DESC LIMIT least(greatest(coalesce(most, 200), 1), 1000);
END
$$;

-- Requests a restore for a user, as if they had tapped; it takes no access away. Returns null, or `gone` or `own_case`.
CREATE OR REPLACE FUNCTION desk_restore(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who operator := acting(session, 'restore');
    me  user_sync;
    job uuid;
BEGIN
    -- Waits for an erasure that has begun: an erased user must not be read again.
    SELECT u.* INTO me FROM user_sync AS u WHERE u.user_key = which FOR KEY SHARE;
    IF me.user_id IS NULL THEN
        RETURN 'gone';
    END IF;
    IF is_own_account(who.id, which) THEN
        RETURN refuse_act(who, NULL, 'restore', 'own_case');
    END IF;
    job := request_restore(me.user_id);
    INSERT INTO operator_event (operator_id, kind, detail)
    VALUES (who.id, 'restored', jsonb_build_object('user', which, 'job', job));
    RETURN NULL;
END
$$;

-- Requests a dry run of a user, or hastens the one that waits. Returns its id.
CREATE OR REPLACE FUNCTION ask_dry_run(wanted text) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    key   bigint := user_key_of(wanted);
    asked uuid;
BEGIN
    INSERT INTO dry_run AS r (user_key) VALUES (key)
    ON CONFLICT (user_key) WHERE due IS NOT NULL DO UPDATE SET due = least(r.due, clock_timestamp())
    RETURNING r.id INTO asked;
    RETURN asked;
END
$$;

-- Requests a dry run of a user for an operator. Returns null, or `gone` or `own_case`.
CREATE OR REPLACE FUNCTION desk_dry_run(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who   operator := acting(session, 'restore');
    known text;
BEGIN
    -- Waits for an erasure that has begun: an erased user gets no dry run.
    SELECT u.user_id INTO known FROM user_sync AS u WHERE u.user_key = which FOR KEY SHARE;
    IF is_own_account(who.id, which) THEN
        RETURN refuse_act(who, NULL, 'dry_run', 'own_case');
    END IF;
    IF NOT EXISTS (SELECT 1 FROM entitlement_sync_host.read_users(ARRAY[known]) AS h WHERE known IS NOT NULL) THEN
        RETURN 'gone';
    END IF;
    INSERT INTO operator_event (operator_id, kind, detail)
    VALUES (who.id, 'dry_run', jsonb_build_object('user', which, 'dry_run', ask_dry_run(known)));
    RETURN NULL;
END
$$;

-- Dead jobs, the newest first, without those of users that the operator may not see.
CREATE OR REPLACE FUNCTION desk_dead(session bytea, most integer DEFAULT 100)
RETURNS TABLE (id text, reference text, kind text, user_key bigint, user_id text, attempt integer, finished_at timestamptz,
               last_error text)
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

-- Decisions and tickets of the last days by cause; `observed`: decisions of which nothing was written.
CREATE OR REPLACE FUNCTION desk_causes(session bytea, days integer)
    RETURNS TABLE (what text, cause text, found bigint, users bigint, last_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    who   operator := acting(session, 'view');
    own   bigint[] := own_cases(who.id);
    since timestamptz := clock_timestamp() - make_interval(days => least(greatest(coalesce(days, 7), 1), 90));
BEGIN
    RETURN QUERY
    SELECT CASE WHEN d.observed THEN 'observed' ELSE 'decision' END, 
           d.rule || CASE WHEN d.type_after = 'subscriber' THEN ':promoted' ELSE ':demoted' END, count(*),
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

-- Requeues a dead job. Returns null, or `gone`, `own_case` or `queued_already`.
CREATE OR REPLACE FUNCTION desk_retry(session bytea, which uuid) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who operator := acting(session, 'retry');
    key bigint;
BEGIN
    SELECT h.user_key INTO key FROM job_history AS h WHERE h.id = which AND h.state = 'dead';
    IF key IS NULL THEN
        RETURN 'gone';
    END IF;
    IF is_own_account(who.id, key) THEN
        RETURN refuse_act(who, NULL, 'retry', 'own_case');
    END IF;
    IF requeue_dead(ARRAY[which]) = 0 THEN
        RETURN 'queued_already';
    END IF;
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'retried', jsonb_build_object('job', which));
    RETURN NULL;
END
$$;

-- The numbers of the charts. `series` names the chart, `bar` the bar, `part` a part of the bar; `place` orders the bars.
CREATE OR REPLACE FUNCTION desk_figures(session bytea) RETURNS TABLE (series text, bar text, part text, place integer, figure bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET jit = off SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    who  operator := acting(session, 'view');
    own  bigint[] := own_cases(who.id);
    owns boolean := has_account(who.id);
    -- A constant, because a value that may change from row to row cannot be searched in an index.
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH age AS MATERIALIZED (
        SELECT width_bucket(clock_timestamp() - t.clock_from, ARRAY['1 hour', '8 hours', '1 day', '3 days', '7 days']::interval[]) AS place,
               coalesce(t.due_at < clock_timestamp(), false) AS is_late, count(*) AS found
          FROM ticket AS t
         WHERE is_open(t.state) AND t.id <> ALL (own)
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
      FROM generate_series(date_trunc('day', clock_timestamp()) - interval '13 days', date_trunc('day', clock_timestamp()),
          interval '1 day') AS d(day)
     CROSS JOIN (VALUES ('transferred'), ('other help'), ('refused'), ('closed itself')) AS v(part)
    UNION ALL
    SELECT 'outcome', d.outcome || CASE WHEN d.observed THEN ', only observed' ELSE '' END, '', d.observed::integer, count(*)
      FROM (SELECT x.outcome, x.observed FROM decision AS x WHERE x.at >= moment - interval '1 day'
             UNION ALL
            SELECT h.outcome, EXISTS (SELECT 1 FROM worker AS w WHERE w.mode = 'observe' AND w.expires_at > moment)
              FROM job_history AS h
             WHERE h.confirms IS NOT NULL AND h.id >= first_id_at(moment - interval '2 days')
               AND h.finished_at >= moment - interval '1 day') AS d
     GROUP BY d.outcome, d.observed
    UNION ALL
    SELECT 'queue', x.bar, '', x.place, x.figure
      FROM (SELECT count(*) FILTER (WHERE q.owner IS NULL AND q.due <= clock_timestamp()) AS queued,
                   count(*) FILTER (WHERE q.owner IS NOT NULL) AS running,
                   count(*) FILTER (WHERE q.owner IS NULL AND q.due > clock_timestamp()) AS delayed
              FROM queue AS q) AS n
     CROSS JOIN LATERAL (VALUES ('due now', 1, n.queued), ('running', 2, n.running), ('waiting for their time', 3, n.delayed),
                                ('dead', 4, (SELECT count(*) FROM job_history AS h
                                             WHERE h.state = 'dead' AND (NOT owns OR NOT is_own_account(who.id, h.user_key))))) 
           AS x(bar, place, figure);
END
$$;

-- What operators did, the latest first, for an operator with the permission `audit`.
CREATE OR REPLACE FUNCTION desk_log(session bytea, before bigint, most integer)
RETURNS TABLE (id bigint, at timestamptz, operator text, kind text, about text, detail text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'audit');
BEGIN
    RETURN QUERY
    SELECT e.id, e.at, o.name, e.kind, a.name, CASE WHEN e.detail <> '{}' THEN e.detail::text END
      FROM (SELECT * FROM operator_event AS y WHERE y.id < coalesce(before, 9223372036854775807) ORDER BY y.id DESC
             LIMIT least(greatest(coalesce(most, 100), 1), 500)) AS e
      LEFT JOIN operator AS o ON o.id = e.operator_id
      LEFT JOIN operator AS a ON a.id = e.about_id
     ORDER BY e.id DESC;
END
$$;
