-- What the desk tells a user, in one place for the console and for `explain`; how often operators see ids; restores that
-- are under way, found by their reference; and what a reconcile would do.

-- ---- What a user may be told -----------------------------------------------------------------------------------------

-- How a user stands, as far as they may know it themselves, as one JSON object; null: there is none. Of others it holds nothing: a
-- case that its claimant does not know of is not in it, and neither is one that somebody else has about a purchase of theirs.
CREATE FUNCTION user_standing(known text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    me   user_sync;
    host record;
BEGIN
    SELECT u.* INTO me FROM user_sync AS u WHERE u.user_id = known;
    SELECT h.* INTO host FROM entitlement_sync_host.read_users(ARRAY[known]) AS h WHERE known IS NOT NULL;
    IF me.user_key IS NULL AND host.id IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN jsonb_build_object(
        'account', CASE WHEN host.id IS NULL THEN 'gone' WHEN host.status IN ('active', 'onboarding') THEN 'eligible'
                        ELSE 'barred' END,
        'subscriber', coalesce(host.type = 'subscriber', false),
        -- The day; null: there is none, or it is over and nobody has looked since.
        'until', (SELECT CASE WHEN NOT bool_or(a.until IS NULL) THEN to_char(max(a.until), 'YYYY-MM-DD') END
                    FROM (SELECT p.period_ends_at AS until FROM purchase AS p
                           WHERE p.owner_key = me.user_key AND p.merged_into IS NULL
                             AND coalesce(p.gives_access, p.status = 'owned')
                             AND (p.environment = 'production'
                                  OR EXISTS (SELECT 1 FROM sandbox_user AS s WHERE s.user_id = known AND s.until > now()))
                           UNION ALL
                          SELECT g.until FROM "grant" AS g WHERE g.user_key = me.user_key AND g.revoked_at IS NULL) AS a
                   WHERE a.until IS NULL OR a.until > now()),
        'ended', (SELECT to_char(max(p.period_ends_at), 'YYYY-MM-DD') FROM purchase AS p
                   WHERE p.owner_key = me.user_key AND p.merged_into IS NULL AND p.kind = 'subscription'
                     AND p.environment = 'production' AND p.period_ends_at <= now()
                     AND p.gives_access IS NOT TRUE AND p.status <> 'refunded'),
        -- By the reference that its claimant knows, as in `ticket_answers`.
        'case', (SELECT jsonb_build_object('state', t.state, 'verdict', t.verdict,
                                           'reference', coalesce((SELECT c.reference FROM case_of(me.user_key) AS c),
                                                                 reference_of('T', t.uid)))
                   FROM ticket AS t
                  WHERE t.claimant_key = me.user_key AND t.visible
                    -- Who has asked for a restore since writes about that.
                    AND (is_open(t.state)
                         OR t.closed_at > clock_timestamp() - interval '90 days'
                            AND NOT EXISTS (SELECT 1 FROM job_history AS j
                                             WHERE j.user_key = me.user_key AND j.kind = 0 AND j.finished_at > t.closed_at))
                  ORDER BY is_open(t.state) DESC, t.id DESC LIMIT 1),
        'moved', EXISTS (SELECT 1 FROM owner_cases(me.user_key) AS o WHERE o.state = 'decided'),
        'waiting', EXISTS (SELECT 1 FROM queue AS q WHERE q.user_key = me.user_key),
        'failed', coalesce((SELECT j.state = 'dead' OR j.outcome = 'store_unavailable' FROM job_history AS j
                             WHERE j.user_key = me.user_key ORDER BY j.finished_at DESC, j.id DESC LIMIT 1), false),
        -- Restores before reconciles: support finds those by what is read out to it.
        'reference', coalesce(
            (SELECT reference_of('R', coalesce(q.restore_id, q.restore_next)) FROM queue AS q WHERE q.user_key = me.user_key),
            (SELECT reference_of('R', j.id) FROM job_history AS j WHERE j.user_key = me.user_key AND j.kind = 0
              ORDER BY j.finished_at DESC, j.id DESC LIMIT 1),
            (SELECT reference_of('R', coalesce(q.reconcile_id, q.reconcile_next)) FROM queue AS q WHERE q.user_key = me.user_key),
            (SELECT reference_of('R', j.id) FROM job_history AS j WHERE j.user_key = me.user_key
              ORDER BY j.finished_at DESC, j.id DESC LIMIT 1)));
END
$$;

-- As before, with how the user stands.
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
        'standing', user_standing(me.user_id),
        'dry_run', (SELECT to_jsonb(r) FROM dry_run AS r
                     WHERE r.user_key = which AND r.asked_at > clock_timestamp() - interval '1 day'
                       -- What was decided since says more.
                       AND NOT EXISTS (SELECT 1 FROM decision AS d WHERE d.user_key = which AND d.at > r.ended_at)
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

-- ---- Ids that are shown ----------------------------------------------------------------------------------------------

INSERT INTO desk_setting (name, value) VALUES ('reveals_per_hour', 60);
COMMENT ON TABLE desk_setting IS
    'answer_days: how long a claimant has to answer; release_days: how long a release counts; reveals_per_hour: how often an '
    'operator sees ids, a list counting twenty times';

-- Whether an operator has seen as many ids as an hour allows, with `more` of them.
CREATE FUNCTION is_past_reveals(who bigint, more bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- One after the other: two at once would both be the last.
    PERFORM pg_advisory_xact_lock(7309940, who::integer);
    RETURN more + (SELECT coalesce(sum(CASE WHEN r.ticket_id IS NULL THEN 20 ELSE 1 END), 0) FROM ticket_reveal AS r
                    WHERE r.operator_id = who AND r.at > clock_timestamp() - interval '1 hour')
                + (SELECT count(*) FROM user_reveal AS r
                    WHERE r.operator_id = who AND r.at > clock_timestamp() - interval '1 hour')
           > coalesce(desk_number('reveals_per_hour'), 60);
END
$$;

-- They say now why they show nothing.
DROP FUNCTION reveal_ticket(bytea, bigint);
DROP FUNCTION reveal_user(bytea, bigint);

-- Asks to see the accounts of a ticket unmasked; they are shown in a later transaction within the minute. Returns
-- null where they will be, and else a word for why not.
CREATE FUNCTION reveal_ticket(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'reveal');
BEGIN
    IF which IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ticket: has to be named', HINT = 'See entitlement-sync tickets.';
    END IF;
    IF EXISTS (SELECT 1 FROM ticket AS t WHERE t.id = which AND is_own_case(who.id, t)) THEN
        RETURN refuse_act(who, which, 'reveal', 'own_case');
    END IF;
    IF is_past_reveals(who.id, 1) THEN
        RETURN refuse_act(who, which, 'reveal', 'too_many_reveals');
    END IF;
    INSERT INTO ticket_reveal (ticket_id, operator_id) VALUES (which, who.id);
    INSERT INTO operator_event (operator_id, kind, detail)
    VALUES (who.id, 'revealed', jsonb_build_object('ticket', which::text));
    INSERT INTO ticket_event (ticket_id, kind, operator_id)
    SELECT t.id, 'revealed', who.id FROM ticket AS t WHERE t.id = which;
    RETURN NULL;
END
$$;

-- The same for a user.
CREATE FUNCTION reveal_user(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'reveal');
BEGIN
    IF is_own_account(who.id, which) THEN
        RETURN refuse_act(who, NULL, 'reveal', 'own_case');
    END IF;
    IF NOT EXISTS (SELECT 1 FROM user_sync AS u WHERE u.user_key = which) THEN
        RETURN 'gone';
    END IF;
    IF is_past_reveals(who.id, 1) THEN
        RETURN refuse_act(who, NULL, 'reveal', 'too_many_reveals');
    END IF;
    INSERT INTO user_reveal (user_key, operator_id) VALUES (which, who.id);
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'revealed', jsonb_build_object('user', which));
    RETURN NULL;
END
$$;

-- Those of earlier stood in `ticket_reveal` alone.
INSERT INTO operator_event (at, operator_id, kind, detail)
SELECT r.at, r.operator_id, 'revealed', jsonb_build_object('ticket', coalesce(r.ticket_id::text, 'a list'))
  FROM ticket_reveal AS r ORDER BY r.id;

-- ---- Search ---------------------------------------------------------------------------------------------------------

-- As before, and restores that are queued or running.
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
        SELECT coalesce(array_agg(DISTINCT h.user_key), '{}'), coalesce(array_agg(DISTINCT h.ticket_id) FILTER (WHERE h.ticket_id IS NOT NULL), '{}')
          INTO users, cases
          FROM (SELECT x.user_key, x.ticket_id FROM job_history AS x
                 WHERE x.kind = 0 AND substring(uuid_send(x.id) FROM 13) = ANY (reference_ends(spelled))
                 LIMIT 20) AS h;
        -- Those under way. Read to the end and without an index: each would be paid for by every job that goes through the queue.
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

-- ---- Dry runs -------------------------------------------------------------------------------------------------------

-- Questions what a reconcile of a user would do now, and the answers of workers. They stand beside the queue: a job there may be
-- joined by whoever asks for a true one, and has a decision in `decision_log` for itself.
CREATE TABLE dry_run (
    id          uuid        PRIMARY KEY DEFAULT new_id(),
    user_key    bigint      NOT NULL,
    asked_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    due         timestamptz DEFAULT clock_timestamp(),
    ended_at    timestamptz,
    assets      bigint      NOT NULL DEFAULT 0,
    tries       integer     NOT NULL DEFAULT 0,
    is_paused   boolean     NOT NULL DEFAULT false,
    outcome     text,
    rule        text,
    explanation text,
    type_before text,
    type_after  text,
    error       text,
    CHECK ((due IS NULL) = (ended_at IS NOT NULL))
);
COMMENT ON TABLE dry_run IS 'what reconciles would have done: nothing of it was written anywhere else; kept for 30 days';
COMMENT ON COLUMN dry_run.due IS 'when a worker takes it up; absent: it is answered';
CREATE UNIQUE INDEX dry_run_open ON dry_run (user_key) WHERE due IS NOT NULL;
CREATE INDEX dry_run_due ON dry_run (due) WHERE due IS NOT NULL;
CREATE INDEX dry_run_user ON dry_run (user_key, asked_at);
CREATE INDEX dry_run_asked ON dry_run (asked_at);

CREATE FUNCTION ask_dry_run(wanted text) RETURNS uuid
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

-- The same for an operator. Returns null where it was asked, and else a word for why not.
CREATE FUNCTION desk_dry_run(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who   operator := acting(session, 'restore');
    known text;
BEGIN
    -- An erasure that has begun is waited for: nobody comes back by being asked about.
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

CREATE TRIGGER tell_desk AFTER UPDATE OF ended_at ON dry_run FOR EACH ROW WHEN (NEW.ended_at IS NOT NULL) EXECUTE FUNCTION tell_desk();

REVOKE ALL ON FUNCTION user_standing, is_past_reveals, reveal_ticket, reveal_user, ask_dry_run, desk_dry_run FROM PUBLIC;
SELECT grant_to('entitlement_sync_support', ARRAY['GRANT EXECUTE ON FUNCTION reveal_ticket, reveal_user, desk_dry_run TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT EXECUTE ON FUNCTION user_standing, ask_dry_run TO %I',
    'GRANT SELECT, INSERT, UPDATE, DELETE ON dry_run TO %I']);
SELECT grant_to('entitlement_sync_auditor', ARRAY[
    'GRANT EXECUTE ON FUNCTION user_standing TO %I',
    'GRANT SELECT ON dry_run TO %I']);
