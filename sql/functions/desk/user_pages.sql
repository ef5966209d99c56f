-- What the console and the terminal show of users and dead jobs; how operators request restores and dry runs, and requeue dead jobs.

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
                                 'id', p.id, 'store', p.store, 'store_app', coalesce(p.store_app, p.revenuecat_project),
                                 'environment', p.environment, 'kind', p.kind, 'product', p.product_id,
                                 'status', p.status, 'gives_access', p.gives_access, 'ends_at', p.period_ends_at,
                                 'renewal', p.renewal, 'ownership', p.ownership, 'owner_since', p.owner_since,
                                 'observed_at', p.observed_at, 'rule', p.owner_rule) ORDER BY p.observed_at DESC, p.id DESC), '[]')
                        FROM (SELECT x.* FROM purchase AS x WHERE x.owner_key = which AND x.merged_into IS NULL
                               ORDER BY x.observed_at DESC, x.id DESC LIMIT 50) AS p),
        'grants', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', g.id, 'until', g.until, 'created_at', g.created_at,
                                                                'revoked_at', g.revoked_at, 'reason', g.reason, 'source', g.source,
                                                                'entitlement', g.entitlement)
                                             ORDER BY g.id DESC), '[]')
                     FROM (SELECT x.* FROM "grant" AS x WHERE x.user_key = which AND x.version_of IS NULL
                            ORDER BY x.id DESC LIMIT 20) AS g),
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
    PERFORM stir();
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

-- Dead jobs, the newest first, without those of users that the operator may not see. `of_error`, `of_kind`: only those; null: all.
CREATE OR REPLACE FUNCTION desk_dead(session bytea, of_error text DEFAULT NULL, of_kind text DEFAULT NULL, most integer DEFAULT 100)
RETURNS TABLE (id text, reference text, kind text, user_key bigint, user_id text, attempt integer, finished_at timestamptz,
               last_error text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who   operator := acting(session, 'view');
    owns  boolean := has_account(who.id);
    rows  integer := least(greatest(coalesce(most, 100), 1), 500);
    which smallint := CASE of_kind WHEN 'restore' THEN 0 WHEN 'reconcile' THEN 1 END;
BEGIN
    RETURN QUERY
    SELECT h.id::text, reference_of('R', h.id), CASE h.kind WHEN 0 THEN 'restore' ELSE 'reconcile' END, h.user_key,
           masked(h.user_id, false), h.attempt::integer, h.finished_at, h.last_error
      FROM dead_job AS h
     WHERE (NOT owns OR NOT is_own_account(who.id, h.user_key))
       AND (of_error IS NULL OR h.last_error = of_error) AND (which IS NULL OR h.kind = which)
     ORDER BY h.finished_at DESC, h.id DESC LIMIT rows;
END
$$;

-- How many jobs died of each error, the most frequent first; `of_kind`: only those; null: all.
CREATE OR REPLACE FUNCTION desk_dead_errors(session bytea, of_kind text DEFAULT NULL) RETURNS TABLE (error text, jobs bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who   operator := acting(session, 'view');
    owns  boolean := has_account(who.id);
    which smallint := CASE of_kind WHEN 'restore' THEN 0 WHEN 'reconcile' THEN 1 END;
BEGIN
    RETURN QUERY
    SELECT h.last_error, count(*) FROM dead_job AS h
     WHERE h.last_error IS NOT NULL AND (NOT owns OR NOT is_own_account(who.id, h.user_key))
       AND (which IS NULL OR h.kind = which)
     GROUP BY h.last_error ORDER BY 2 DESC, 1 LIMIT 50;
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

-- Requeues dead jobs of an error, the oldest first, until 1,000 are queued, without those of the operator's own account and those whose
-- users have such a job queued already. `of_kind`: only those; null: all. Returns how many are queued.
CREATE OR REPLACE FUNCTION desk_retry_all(session bytea, of_error text, of_kind text DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who     operator := acting(session, 'retry');
    owns    boolean := has_account(who.id);
    which   smallint := CASE of_kind WHEN 'restore' THEN 0 WHEN 'reconcile' THEN 1 END;
    ids     uuid[];
    first   uuid;
    after   uuid := '00000000-0000-0000-0000-000000000000';
    retried integer := 0;
BEGIN
    WHILE retried < 1000 LOOP
        ids := ARRAY(
            SELECT h.id FROM dead_job AS h
             WHERE h.last_error = of_error AND (which IS NULL OR h.kind = which) AND h.id > after
               AND (NOT owns OR NOT is_own_account(who.id, h.user_key))
             ORDER BY h.id LIMIT 1000 - retried);
        EXIT WHEN cardinality(ids) = 0;
        first := coalesce(first, ids[1]);
        after := ids[cardinality(ids)];
        retried := retried + requeue_dead(ids);
    END LOOP;
    IF retried > 0 THEN
        INSERT INTO operator_event (operator_id, kind, detail)
        VALUES (who.id, 'retried', jsonb_build_object('error', of_error, 'jobs', retried, 'first', first, 'last', after));
    END IF;
    RETURN retried;
END
$$;
