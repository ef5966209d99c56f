-- What the console reads: the queue by who has to act, search, a user and what happened to them, dead jobs, causes and figures.
-- Every function asks for a session; accounts are masked, and nobody finds a case of their own.

-- ---- What takes longest comes first, while nothing else is locked ----

-- A restore's reference is spelled from the last bits of its id: people read it out to support.
CREATE INDEX job_history_reference ON job_history (substring(uuid_send(id) FROM 13)) WHERE kind = 0;

-- ---- Clocks ---------------------------------------------------------------------------------------------------------

-- How long each stage of a case may take; a team may change the figures.
CREATE TABLE desk_clock (
    stage     text     NOT NULL CHECK (stage IN ('first_look', 'decision', 'execution')),
    is_urgent boolean  NOT NULL,
    within    interval NOT NULL CHECK (within BETWEEN interval '1 minute' AND interval '90 days'),
    PRIMARY KEY (stage, is_urgent)
);
INSERT INTO desk_clock (stage, is_urgent, within) VALUES
    ('first_look', false, '8 hours'), ('first_look', true, '1 hour'),
    ('decision',   false, '3 days'),  ('decision',   true, '1 day'),
    ('execution',  false, '4 hours'), ('execution',  true, '1 hour');

ALTER TABLE ticket
    ADD COLUMN clock_from timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN waited     interval    NOT NULL DEFAULT '0',
    ADD COLUMN due_at     timestamptz;
COMMENT ON COLUMN ticket.clock_from IS 'when the case was opened, or opened again';
COMMENT ON COLUMN ticket.waited IS 'how long somebody outside the desk had to act; counts for none of its clocks';
COMMENT ON COLUMN ticket.due_at IS 'until when the desk has to take the next step; absent: it is not the desk''s turn';

-- Money was taken without access, or a store takes the sale back at a known time.
CREATE FUNCTION is_urgent(t ticket) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN t.kind = 'paid_no_access' OR t.priority < 1 OR t.deadline IS NOT NULL;

CREATE FUNCTION due_of(t ticket) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT least(t.deadline,
                 CASE c.stage WHEN 'execution' THEN t.state_since WHEN 'decision' THEN greatest(t.looked_at, t.clock_from) + t.waited
                              ELSE t.clock_from + t.waited END + c.within)
      FROM (VALUES (CASE WHEN t.state IN ('approved', 'executing') THEN 'execution'
                          WHEN t.state NOT IN ('new', 'claimed', 'needs_second') THEN NULL
                          WHEN t.looked_at >= t.clock_from THEN 'decision' ELSE 'first_look' END)) AS now(stage)
      LEFT JOIN desk_clock AS c ON c.stage = now.stage AND c.is_urgent = is_urgent(t)
     WHERE now.stage IS NOT NULL
$$;

-- Runs after `guard_state`, which says since when a state holds.
CREATE FUNCTION keep_clock() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.state <> NEW.state THEN
        IF OLD.state IN ('waiting_claimant', 'waiting_owner') THEN
            NEW.waited := NEW.waited + (clock_timestamp() - OLD.state_since);
        ELSIF NOT is_open(OLD.state) THEN
            NEW.clock_from := clock_timestamp();
            NEW.waited := '0';
            NEW.looked_at := NULL;
        END IF;
    END IF;
    NEW.due_at := due_of(NEW);
    RETURN NEW;
END
$$;
CREATE TRIGGER keep_clock BEFORE INSERT OR UPDATE OF state, looked_at, kind, priority, deadline ON ticket
    FOR EACH ROW EXECUTE FUNCTION keep_clock();
-- Those from before begin their time now: nobody is late on the first day.
UPDATE ticket AS t SET due_at = due_of(t) WHERE is_open(t.state);

-- New figures hold for the cases that are open.
CREATE FUNCTION clock_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    UPDATE ticket AS t SET due_at = due_of(t)
     WHERE t.state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');
    RETURN NULL;
END
$$;
CREATE TRIGGER clock_changed AFTER INSERT OR UPDATE OR DELETE ON desk_clock FOR EACH STATEMENT EXECUTE FUNCTION clock_changed();

-- ---- Indexes --------------------------------------------------------------------------------------------------------

CREATE INDEX ticket_queue ON ticket (state, coalesce(due_at, 'infinity'), id)
 WHERE state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');
CREATE INDEX ticket_queue_kind ON ticket (state, kind, coalesce(due_at, 'infinity'), id)
 WHERE state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');
CREATE INDEX ticket_closed ON ticket (closed_at DESC, id DESC) WHERE closed_at IS NOT NULL;
CREATE INDEX ticket_holder ON ticket (holder_id) WHERE holder_id IS NOT NULL;
CREATE INDEX ticket_original ON ticket (original_id) WHERE original_id IS NOT NULL;
CREATE INDEX decision_at ON decision USING brin (at);
CREATE INDEX transfer_parties ON transfer (to_key);
CREATE INDEX transfer_from_all ON transfer (from_key);

-- ---- Who looks ------------------------------------------------------------------------------------------------------

-- Whose session it is, what the role may, and until when.
CREATE FUNCTION desk_me(session bytea)
RETURNS TABLE (id bigint, name text, role text, duties text[], is_held boolean, ends_at timestamptz, fresh_until timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT who.id, who.name, who.role, ARRAY(SELECT d.duty FROM desk_duty AS d WHERE d.role = who.role ORDER BY d.duty),
           coalesce(who.held_until > clock_timestamp(), false), session_ends(s), s.proved_at + interval '10 minutes'
      FROM operator_session AS s WHERE s.digest = sha256(session);
END
$$;

-- Whether a session still holds; looking does not make it last longer.
CREATE FUNCTION desk_alive(session bytea) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator_session AS s JOIN operator AS o ON o.id = s.operator_id
                    WHERE s.digest = sha256(session) AND session_ends(s) > clock_timestamp() AND o.disabled_at IS NULL)
$$;

CREATE FUNCTION has_account(who bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator_account AS a WHERE a.operator_id = who)
$$;

-- The tickets, open or closed, that an operator does not see: those about an account that is, or was, their own.
CREATE FUNCTION own_cases(who bigint) RETURNS bigint[]
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    WITH RECURSIVE mine AS MATERIALIZED (
        SELECT a.user_key FROM operator_account AS a WHERE a.operator_id = who
    ), item AS (
        SELECT p.id FROM mine AS m JOIN purchase AS p ON p.owner_key = m.user_key
         UNION
        SELECT p.id FROM item AS i JOIN purchase AS p ON p.merged_into = i.id
    )
    SELECT coalesce(array_agg(DISTINCT t.id), '{}')
      FROM (SELECT x.id FROM mine AS m JOIN ticket AS x ON x.claimant_key = m.user_key
            UNION SELECT x.id FROM mine AS m JOIN ticket AS x ON x.owner_key = m.user_key
            UNION SELECT x.id FROM item AS i JOIN ticket AS x ON x.purchase_id = i.id
            UNION SELECT x.id FROM item AS i JOIN ticket AS x ON x.subject_id = i.id) AS c
      JOIN ticket AS t ON t.id = c.id
     WHERE is_own_case(who, t)
$$;

-- ---- The queue ------------------------------------------------------------------------------------------------------

-- Who has to act: the rows of the queue's filter.
CREATE TABLE desk_lane (
    lane  text     NOT NULL,
    place smallint NOT NULL,
    state text     NOT NULL,
    PRIMARY KEY (lane, state)
);
INSERT INTO desk_lane (lane, place, state) VALUES
    ('desk', 1, 'new'), ('mine', 2, 'claimed'), ('others', 3, 'claimed'), ('second', 4, 'needs_second'),
    ('execute', 5, 'approved'), ('claimant', 6, 'waiting_claimant'), ('owner', 7, 'waiting_owner'), ('worker', 8, 'executing'),
    ('closed', 9, 'transferred'), ('closed', 9, 'refused'), ('closed', 9, 'expired'), ('closed', 9, 'auto_resolved'),
    ('closed', 9, 'duplicate');

-- How many tickets are in each lane, up to 1000, and how many of them are late. A case of one's own is not counted.
CREATE FUNCTION desk_counts(session bytea) RETURNS TABLE (lane text, tickets integer, late integer)
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
                      AND t.state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate')
                      AND (l.lane <> 'mine' OR t.holder_id = who.id)
                      AND (l.lane <> 'others' OR t.holder_id IS DISTINCT FROM who.id)
                      AND t.id <> ALL (own)
                    ORDER BY coalesce(t.due_at, 'infinity'), t.id LIMIT 1000) AS c) AS n
     ORDER BY l.place;
END
$$;

-- A page of a lane, what is due first before the rest; closed ones the latest first. `after_due` and `after_id` are those of the
-- last row of the page before.
CREATE FUNCTION desk_queue(session bytea, wanted_lane text, wanted_kind text, after_due timestamptz, after_id bigint, most integer)
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
    IF wanted_lane = 'closed' THEN
        found := ARRAY(SELECT t.id FROM ticket AS t
                        WHERE t.closed_at IS NOT NULL AND (wanted_kind IS NULL OR t.kind = wanted_kind)
                          AND (after_id IS NULL OR (t.closed_at, t.id) < (after_due, after_id))
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

-- ---- Search ---------------------------------------------------------------------------------------------------------

-- What a word names: a ticket's reference or number, a restore's reference, a user's id, an order or a transaction.
CREATE FUNCTION desk_search(session bytea, word text)
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
BEGIN
    IF wanted IS NULL OR length(wanted) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'search: 1 to 255 characters',
            HINT = 'Give a reference, a user''s id, an order or a transaction.';
    END IF;
    IF spelled ~ '^T-[0-9A-Z]{4}-[0-9A-Z]{2}$' THEN
        cases := ARRAY(SELECT t.id FROM ticket AS t WHERE reference_of('T', t.uid) = spelled ORDER BY t.id DESC LIMIT 20);
    ELSIF spelled ~ '^R-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{2}$' THEN
        SELECT coalesce(array_agg(DISTINCT h.user_key), '{}'), coalesce(array_agg(DISTINCT h.ticket_id) FILTER (WHERE h.ticket_id IS NOT NULL), '{}')
          INTO users, cases
          FROM (SELECT x.user_key, x.ticket_id FROM job_history AS x
                 WHERE x.kind = 0 AND substring(uuid_send(x.id) FROM 13) = ANY (reference_ends(spelled))
                 LIMIT 20) AS h;
    ELSE
        IF wanted ~ '^[0-9]{1,15}$' THEN
            cases := ARRAY(SELECT t.id FROM ticket AS t WHERE t.id = wanted::bigint);
        END IF;
        users := ARRAY(SELECT u.user_key FROM user_sync AS u WHERE u.user_id = wanted);
        items := ARRAY(SELECT DISTINCT living(i.purchase_id) FROM purchase_identifier AS i WHERE i.value = wanted LIMIT 20);
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

-- The last four bytes of the ids that a reference such as R-7K3Q-92 can be spelled from: thirty bits of them are known.
CREATE FUNCTION reference_ends(spelled text) RETURNS bytea[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT ARRAY(SELECT substring(int8send((high.bits << 30) + low.bits) FROM 5)
                   FROM generate_series(0::bigint, 3) AS high(bits))
      FROM (SELECT sum((strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', c.sign) - 1)::bigint << (5 * (6 - c.place)::integer))::bigint AS bits
              FROM regexp_split_to_table(replace(substring(spelled FROM 3), '-', ''), '') WITH ORDINALITY AS c(sign, place)) AS low
$$;

-- ---- A user ---------------------------------------------------------------------------------------------------------

-- Whether an account is, or was, an operator's own, or the other side of a case of theirs: nobody looks into the records of either.
CREATE FUNCTION is_own_account(who bigint, which bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT has_account(who)
       AND (EXISTS (SELECT 1 FROM operator_account AS a WHERE a.operator_id = who AND a.user_key = which)
            OR EXISTS (SELECT 1 FROM ticket AS t WHERE t.claimant_key = which AND is_own_case(who, t))
            OR EXISTS (SELECT 1 FROM ticket AS t WHERE t.owner_key = which AND is_own_case(who, t))
            OR EXISTS (SELECT 1 FROM operator_account AS a JOIN transfer AS x ON x.from_key = a.user_key
                        WHERE a.operator_id = who AND x.to_key = which)
            OR EXISTS (SELECT 1 FROM operator_account AS a JOIN transfer AS x ON x.to_key = a.user_key
                        WHERE a.operator_id = who AND x.from_key = which))
$$;

-- Asks to see a user's id; it is shown in a later transaction within the minute.
CREATE TABLE user_reveal (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_key    bigint      NOT NULL,
    operator_id bigint      NOT NULL REFERENCES operator,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    xact        xid8        NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX user_reveal_operator ON user_reveal (operator_id, at);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON user_reveal FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON user_reveal FOR EACH STATEMENT EXECUTE FUNCTION append_only();

CREATE FUNCTION reveal_user(session bytea, which bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'reveal');
BEGIN
    IF is_own_account(who.id, which) THEN
        PERFORM refuse_act(who, NULL, 'reveal', 'own_case');
    ELSIF EXISTS (SELECT 1 FROM user_sync AS u WHERE u.user_key = which) THEN
        INSERT INTO user_reveal (user_key, operator_id) VALUES (which, who.id);
        INSERT INTO operator_event (operator_id, kind, detail)
        VALUES (who.id, 'revealed', jsonb_build_object('user', which));
    END IF;
END
$$;

-- Everything that the desk sees of a user, as one JSON object; null: there is none, or it is the operator's own account.
CREATE FUNCTION desk_user(session bytea, which bigint, reveal boolean DEFAULT false) RETURNS text
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
        'full_read_at', me.full_read_at, 'next_look', me.next_look, 'frozen_assets', held.lapsed, 'other_assets', held.others,
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

-- What happened to a user, in plain sentences; in the words of `explain`. Names nobody else.
CREATE FUNCTION user_events(which bigint) RETURNS TABLE (at timestamptz, place bigint, kind text, words text)
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
               format('Rule %s, outcome %s: %s%s%s%s', d.rule, d.outcome, d.explanation,
                      CASE WHEN d.type_before IS DISTINCT FROM d.type_after
                           THEN format(' Type %s became %s.', d.type_before, d.type_after) ELSE '' END,
                      CASE WHEN d.assets_changed = 1 THEN ' 1 asset changed.'
                           WHEN d.assets_changed > 1 THEN format(' %s assets changed.', d.assets_changed) ELSE '' END,
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
                          WHEN 'revealed' THEN 'was shown with the users'' ids'
                          WHEN 'transfer_begun' THEN 'is being carried out'
                          WHEN 'transfer_resolved' THEN 'had its transfer ended by hand'
                          WHEN 'transfer_stopped' THEN 'was not carried out'
                          WHEN 'transferred' THEN 'is done: the purchase is this user''s'
                          WHEN 'window_ended' THEN 'may be carried out: the owner''s time is over'
                          ELSE 'was ' || e.kind END)
          FROM ticket AS t JOIN me ON me.user_key = t.claimant_key
          JOIN ticket_event AS e ON e.ticket_id = t.id
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

-- What happened to a user, in plain sentences, the latest first.
CREATE FUNCTION desk_timeline(session bytea, which bigint, most integer DEFAULT 200)
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

-- Has a user read again now. Returns null where the job was asked for, and else a word for why not.
CREATE FUNCTION desk_restore(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who operator := acting(session, 'restore');
    me  user_sync;
    job uuid;
BEGIN
    -- An erasure that has begun is waited for: nobody comes back by being read again.
    SELECT u.* INTO me FROM user_sync AS u WHERE u.user_key = which FOR KEY SHARE;
    IF me.user_id IS NULL THEN
        RETURN 'gone';
    END IF;
    IF is_own_account(who.id, which) THEN
        RETURN refuse_act(who, NULL, 'restore', 'own_case');
    END IF;
    job := request_reconcile(me.user_id, 'manual');
    INSERT INTO operator_event (operator_id, kind, detail)
    VALUES (who.id, 'restored', jsonb_build_object('user', which, 'job', job));
    RETURN NULL;
END
$$;

-- ---- Dead jobs ------------------------------------------------------------------------------------------------------

CREATE FUNCTION desk_dead(session bytea, most integer DEFAULT 100)
RETURNS TABLE (id text, reference text, kind text, user_key bigint, user_id text, attempt integer, finished_at timestamptz,
               last_error text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT h.id::text, reference_of('R', h.id), CASE h.kind WHEN 0 THEN 'restore' ELSE 'reconcile' END, h.user_key,
           masked(u.user_id, false), h.attempt::integer, h.finished_at, h.last_error
      FROM job_history AS h
      LEFT JOIN user_sync AS u ON u.user_key = h.user_key
     WHERE h.state = 'dead' AND NOT is_own_account(who.id, h.user_key)
     ORDER BY h.finished_at DESC, h.id DESC LIMIT least(greatest(coalesce(most, 100), 1), 500);
END
$$;

-- Puts a dead job back. Returns null where it was, and else a word for why not.
CREATE FUNCTION desk_retry(session bytea, which uuid) RETURNS text
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

-- ---- Figures --------------------------------------------------------------------------------------------------------

-- What was wrong in the records, by the rule that put it right, and which tickets were opened.
CREATE FUNCTION desk_causes(session bytea, days integer) RETURNS TABLE (what text, cause text, found bigint, users bigint, last_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    who   operator := acting(session, 'view');
    own   bigint[] := own_cases(who.id);
    since timestamptz := clock_timestamp() - make_interval(days => least(greatest(coalesce(days, 7), 1), 90));
BEGIN
    RETURN QUERY
    SELECT 'decision', d.rule || CASE WHEN d.type_after = 'subscriber' THEN ':promoted' ELSE ':demoted' END, count(*),
           count(DISTINCT d.user_key), max(d.at)
      FROM decision AS d
     WHERE d.at >= since AND d.type_before IS DISTINCT FROM d.type_after
     GROUP BY 2
    UNION ALL
    SELECT 'ticket', t.kind, count(*), count(DISTINCT t.claimant_key), max(t.created_at)
      FROM ticket AS t WHERE t.created_at >= since AND t.id <> ALL (own) GROUP BY t.kind
     ORDER BY 3 DESC, 2;
END
$$;
CREATE INDEX ticket_created ON ticket USING brin (created_at);

-- What charts show. `series` names the chart, `bar` the bar, `place` its order.
CREATE FUNCTION desk_figures(session bytea) RETURNS TABLE (series text, bar text, part text, place integer, figure bigint)
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
    SELECT 'outcome', d.outcome, '', 0, count(*) FROM decision AS d
     WHERE d.at >= clock_timestamp() - interval '1 day' GROUP BY d.outcome
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

-- What operators did, the latest first; for auditors and admins.
CREATE FUNCTION desk_log(session bytea, before bigint, most integer)
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

-- ---- Live -----------------------------------------------------------------------------------------------------------

-- Pages that are open are told that something has changed; what, they ask with their session.
CREATE FUNCTION tell_desk() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM pg_notify('entitlement_sync_desk', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER tell_desk AFTER INSERT ON ticket_event FOR EACH ROW EXECUTE FUNCTION tell_desk();
CREATE TRIGGER tell_desk AFTER INSERT ON ticket_evidence FOR EACH ROW EXECUTE FUNCTION tell_desk();
CREATE TRIGGER tell_desk AFTER INSERT ON transfer_step FOR EACH ROW EXECUTE FUNCTION tell_desk();

REVOKE ALL ON FUNCTION is_urgent, due_of, keep_clock, desk_me, desk_alive, has_account, own_cases, clock_changed, desk_counts, desk_queue, desk_search, reference_ends,
                       is_own_account, reveal_user, desk_user, user_events, desk_timeline, desk_restore, desk_dead, desk_retry,
                       desk_causes, desk_figures, desk_log, tell_desk
    FROM PUBLIC;
SELECT grant_to('entitlement_sync_support', ARRAY[
    'GRANT EXECUTE ON FUNCTION desk_me, desk_alive, desk_counts, desk_queue, desk_search, reveal_user, desk_user, desk_timeline, desk_restore,
                               desk_dead, desk_retry, desk_causes, desk_figures, desk_log TO %I',
    'GRANT SELECT ON desk_lane, desk_clock TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION user_events TO %I']);
SELECT grant_to('entitlement_sync_auditor', ARRAY[
    'GRANT EXECUTE ON FUNCTION user_events TO %I',
    'GRANT SELECT ON desk_lane, desk_clock, user_reveal TO %I']);

-- A grant on all tables met the partitions one by one; what the parent withholds they withhold too.
DO $$
DECLARE
    part regclass;
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'entitlement_sync_support') THEN
        FOR part IN SELECT i.inhrelid::regclass FROM pg_inherits AS i WHERE i.inhparent = 'job_history'::regclass LOOP
            EXECUTE format('REVOKE ALL ON %s FROM entitlement_sync_support', part);
        END LOOP;
    END IF;
END
$$;
