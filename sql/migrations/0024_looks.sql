-- compatible_from: 11
-- Everybody who is known has a next look, save those whom the account's status shuts out.

ALTER TABLE user_sync ADD COLUMN shut_out boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN user_sync.shut_out IS 'the account''s status decided against the user: nobody looks until it changes';

ALTER TABLE user_sync ADD COLUMN met_dry boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN user_sync.met_dry IS 'a dry run made the user known: that alone has nobody looked at';

-- Where the round through the known users stands, who have no look planned. A walk by key needs no index that every job would
-- have to write.
CREATE TABLE look_round (
    is_only   boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    after_key bigint      NOT NULL DEFAULT 0,
    began_at  timestamptz NOT NULL DEFAULT 'epoch'
);
INSERT INTO look_round DEFAULT VALUES;
COMMENT ON COLUMN look_round.after_key IS 'users up to this key were looked through in the round; 0: it is over';

-- Goes a stretch of at most `batch` users on. Whoever was shut out and is found let in is looked at within minutes; whoever never had
-- a look gets one within `background` seconds (null: none). Returns how many looks were planned; 0 as well where somebody
-- else is at it, and where the last round began less than ten minutes ago.
CREATE FUNCTION plan_looks(batch integer, background bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
    r       look_round;
    last    bigint;
    looked  bigint;
    ids     text[];
    planned bigint;
BEGIN
    PERFORM check_isolation();
    SELECT x.* INTO r FROM look_round AS x FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR r.after_key = 0 AND r.began_at > clock_timestamp() - interval '10 minutes' THEN
        RETURN 0;
    END IF;
    SELECT max(w.user_key), count(*),
           array_agg(w.user_id ORDER BY w.user_id) FILTER (WHERE w.user_id IS NOT NULL AND w.next_look IS NULL
               AND (w.shut_out OR background IS NOT NULL)
               AND (NOT w.met_dry OR w.read_at IS NOT NULL
                    OR EXISTS (SELECT 1 FROM job_history AS h WHERE h.user_key = w.user_key)))
      INTO last, looked, ids
      FROM (SELECT u.user_key, u.user_id, u.next_look, u.shut_out, u.met_dry, u.read_at FROM user_sync AS u
             WHERE u.user_key > r.after_key ORDER BY u.user_key LIMIT batch) AS w;
    UPDATE look_round AS x
       SET after_key = CASE WHEN looked < batch THEN 0 ELSE last END,
           began_at = CASE WHEN r.after_key = 0 THEN clock_timestamp() ELSE x.began_at END;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    WITH able AS MATERIALIZED (
        SELECT h.id FROM entitlement_sync_host.read_users(ids) AS h WHERE h.status IN ('active', 'onboarding')
    ), wanted AS MATERIALIZED (
        -- Whoever is shut out still is not touched.
        SELECT u.user_key, u.shut_out, a.id IS NOT NULL AS is_able
          FROM unnest(ids) AS i(id) LEFT JOIN able AS a ON a.id = i.id
         CROSS JOIN LATERAL (SELECT x.user_key, x.shut_out FROM user_sync AS x
                              WHERE x.user_id = i.id AND x.next_look IS NULL AND (NOT x.shut_out OR a.id IS NOT NULL)
                                FOR NO KEY UPDATE SKIP LOCKED) AS u
    ), written AS (
        UPDATE user_sync AS u
           SET shut_out = NOT n.is_able,
               next_look = CASE WHEN NOT n.is_able THEN NULL
                                WHEN n.shut_out THEN clock_timestamp() + random() * interval '5 minutes'
                                ELSE clock_timestamp() + random() * background * interval '1 second' END
          FROM wanted AS n WHERE u.user_key = n.user_key
        RETURNING n.is_able
    )
    SELECT count(*) FILTER (WHERE w.is_able) INTO planned FROM written AS w;
    RETURN planned;
END
$$;

-- Makes users known, `dry`: for a run that changes nothing; whoever another transaction is about to make known is left out
-- after a moment.
CREATE FUNCTION meet_free(ids text[], dry boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    one   text;
    waits integer := 0;
    usual text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', '50ms', true);
    BEGIN
        INSERT INTO user_sync (user_id, met_dry) SELECT x.id, dry FROM unnest(ids) AS x(id) ORDER BY 1 ON CONFLICT (user_id) DO NOTHING;
    EXCEPTION
        WHEN lock_not_available THEN
            PERFORM set_config('lock_timeout', '10ms', true);
            FOREACH one IN ARRAY ids LOOP
                BEGIN
                    INSERT INTO user_sync (user_id, met_dry) VALUES (one, dry) ON CONFLICT (user_id) DO NOTHING;
                EXCEPTION
                    WHEN lock_not_available THEN
                        waits := waits + 1;
                        EXIT WHEN waits >= 4;
                END;
            END LOOP;
    END;
    PERFORM set_config('lock_timeout', usual, true);
END
$$;

-- The planner writes a run under its fence alone; a stretch of due users is read in the order of their looks; and a part's
-- turns are counted on.

-- Plans the next stretch of a run, of at most `batch` users. Returns how many users it looked at; 0: there are no more.
-- Null: the caller leads no more, or the run does not go on.
CREATE OR REPLACE FUNCTION feed_run(fenced bigint, which bigint, batch integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
    r       run;
    ids     text[];
    able    text[];
    strangers text[];
    keys    bigint[];
    jobs    uuid[];
    took    bigint[];
    looked  integer;
    is_last boolean;
    unmet   integer;
    last_at timestamptz;
    last_id bigint;
BEGIN
    IF NOT leads('planner', fenced) THEN
        RETURN NULL;
    END IF;
    SELECT x.* INTO r FROM run AS x WHERE x.id = which AND x.state IN ('reading', 'applying') FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF r.is_fed THEN
        RETURN 0;
    END IF;
    IF r.state = 'applying' AND EXISTS (SELECT 1 FROM control AS c WHERE c.name IN ('demotions', 'all') AND c.paused) THEN
        -- What somebody has confirmed must not come to nothing for that.
        RETURN 0;
    END IF;
    IF r.state = 'applying' AND coalesce(r.confirmed_at, r.settled_at, r.asked_at) < clock_timestamp() - interval '72 hours' THEN
        -- What was seen then says nothing of today.
        UPDATE run AS x
           SET is_paged = true, is_fed = true, late = '{}',
               errors = add_counts(x.errors, jsonb_build_object('too_old', (
                            SELECT count(*) FROM run_change AS c
                             WHERE c.run_id = which AND c.state IN ('held', 'foreseen') AND c.outcome <> 'deferred'
                               AND (c.user_key > coalesce(r.cursor_key, 0) OR c.user_key = ANY (r.late)))))
         WHERE x.id = which;
        RETURN 0;
    END IF;
    IF r.is_paged AND r.late_due > clock_timestamp() THEN
        RETURN 0;
    END IF;
    IF r.is_paged AND r.state = 'reading' AND r.late_since < clock_timestamp() - interval '15 minutes' THEN
        -- Nobody knows when the host's transactions end; everybody else has waited for long enough.
        UPDATE run AS x
           SET is_fed = true, late = '{}',
               errors = add_counts(x.errors, jsonb_build_object('held_elsewhere', cardinality(x.late)))
         WHERE x.id = which;
        RETURN 0;
    END IF;
    IF r.is_paged THEN
        keys := r.late[1:batch];
        r.late := r.late[batch + 1:];
    ELSIF r.state = 'applying' THEN
        keys := ARRAY(SELECT c.user_key FROM run_change AS c
                       WHERE c.run_id = which AND c.state IN ('held', 'foreseen') AND c.outcome <> 'deferred' AND c.user_key > coalesce(r.cursor_key, 0)
                       ORDER BY c.user_key LIMIT batch);
        looked := cardinality(keys);
        last_id := keys[looked];
    ELSIF r.scope = 'all' THEN
        SELECT array_agg(p.id ORDER BY p.n), array_agg(p.id) FILTER (WHERE p.status IN ('active', 'onboarding'))
          INTO ids, able
          FROM (SELECT h.id, h.status, row_number() OVER () AS n
                  FROM entitlement_sync_host.page_users(r.cursor_id, batch) AS h) AS p;
        looked := coalesce(cardinality(ids), 0);
        is_last := looked < batch;
        able := coalesce(able, '{}');
        strangers := ARRAY(SELECT a.id FROM unnest(able) AS a(id)
                            WHERE NOT EXISTS (SELECT 1 FROM user_sync AS x WHERE x.user_id = a.id));
        IF strangers <> '{}' THEN
            PERFORM meet_free(strangers, r.is_dry);
            -- Somebody is about to make a user known: the stretch ends before that one, or is that one alone, who is left out.
            SELECT min(p.n) INTO unmet FROM unnest(ids) WITH ORDINALITY AS p(id, n)
             WHERE p.id = ANY (strangers) AND NOT EXISTS (SELECT 1 FROM user_sync AS x WHERE x.user_id = p.id);
            IF unmet IS NOT NULL THEN
                is_last := false;
                IF unmet = 1 THEN
                    r.errors := add_counts(r.errors, '{"held_elsewhere": 1}');
                END IF;
                ids := ids[1:greatest(unmet - 1, 1)];
                looked := cardinality(ids);
                able := ARRAY(SELECT a.id FROM unnest(able) AS a(id) WHERE a.id = ANY (ids));
            END IF;
        END IF;
        keys := ARRAY(SELECT u.user_key FROM unnest(able) AS a(id)
                       CROSS JOIN LATERAL (SELECT x.user_key FROM user_sync AS x WHERE x.user_id = a.id OFFSET 0) AS u
                       ORDER BY u.user_key);
        r.cursor_id := coalesce(ids[looked], r.cursor_id);
        r.skipped := r.skipped + looked - cardinality(able);
    ELSIF r.scope = 'due' THEN
        SELECT array_agg(d.user_key ORDER BY d.next_look, d.user_key), count(*), max(d.next_look) INTO keys, looked, last_at
          FROM (SELECT u.user_key, u.next_look FROM user_sync AS u
                 WHERE u.next_look <= r.asked_at
                   AND (u.next_look, u.user_key) > (coalesce(r.cursor_at, '-infinity'), coalesce(r.cursor_key, 0))
                 ORDER BY u.next_look, u.user_key LIMIT batch) AS d;
        keys := coalesce(keys, '{}');
        last_id := keys[looked];
        IF NOT r.is_dry THEN
            -- A look that comes to nothing is taken again; the verdict of one that does plans the next.
            UPDATE user_sync AS u SET next_look = clock_timestamp() + interval '6 hours'
             WHERE u.user_key = ANY (ARRAY(SELECT x.user_key FROM user_sync AS x
                                            WHERE x.user_key = ANY (keys) FOR NO KEY UPDATE SKIP LOCKED))
               AND u.next_look <= r.asked_at;
        END IF;
    ELSE
        -- Read in windows of one size, however few of a window are wanted.
        SELECT array_agg(w.user_key) FILTER (WHERE w.user_id IS NOT NULL AND coalesce(w.read_at, '-infinity') < r.since),
               count(*), max(w.user_key)
          INTO keys, looked, last_id
          FROM (SELECT u.user_key, u.user_id, u.read_at FROM user_sync AS u WHERE u.user_key > coalesce(r.cursor_key, 0)
                 ORDER BY u.user_key LIMIT batch) AS w;
        keys := coalesce(keys, '{}');
        r.skipped := r.skipped + looked - cardinality(keys);
    END IF;
    r.is_paged := r.is_paged OR coalesce(is_last, looked < batch);
    r.cursor_key := coalesce(last_id, r.cursor_key);
    r.cursor_at := coalesce(last_at, r.cursor_at);
    IF cardinality(keys) > 0 AND r.is_dry THEN
        INSERT INTO run_part (run_id, number, keys, due) VALUES (which, r.parts + 1, keys, clock_timestamp());
        r.parts := r.parts + 1;
        r.fed := r.fed + cardinality(keys);
    ELSIF cardinality(keys) > 0 THEN
        SELECT coalesce(array_agg(e.user_key), '{}'), coalesce(array_agg(e.job), '{}') INTO took, jobs FROM enqueue_free(keys) AS e;
        IF cardinality(took) > 0 THEN
            INSERT INTO run_part (run_id, number, keys, jobs) VALUES (which, r.parts + 1, took, jobs);
            r.parts := r.parts + 1;
            r.fed := r.fed + cardinality(took);
        END IF;
        IF cardinality(took) < cardinality(keys) THEN
            -- Transactions of the host speak of them just now, or more had to be waited for than a moment allows.
            r.late := r.late || ARRAY(SELECT k.key FROM unnest(keys) AS k(key) WHERE k.key <> ALL (took));
        END IF;
    END IF;
    UPDATE run AS x
       SET started_at = coalesce(x.started_at, clock_timestamp()), parts = r.parts, fed = r.fed, late = r.late,
           late_since = CASE WHEN r.is_paged AND r.late <> '{}' THEN coalesce(x.late_since, clock_timestamp()) END,
           is_paged = r.is_paged, is_fed = r.is_paged AND r.late = '{}',
           skipped = r.skipped, errors = r.errors, cursor_id = r.cursor_id, cursor_at = r.cursor_at, cursor_key = r.cursor_key
     WHERE x.id = which;
    RETURN coalesce(looked, cardinality(took), 0);
END
$$;

-- Notes when a run is expected to end; null: nobody can say.
CREATE FUNCTION predict_run(fenced bigint, which bigint, seconds double precision) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '1s' AS $$
BEGIN
    IF leads('planner', fenced) THEN
        UPDATE run AS r SET predicted_end = clock_timestamp() + seconds * interval '1 second'
         WHERE r.id = which AND r.state IN ('reading', 'applying');
    END IF;
END
$$;

-- Takes parts of dry runs up, for a while: whoever dies meanwhile has its share taken by others.
CREATE OR REPLACE FUNCTION take_part(lasting interval) RETURNS TABLE (run_id bigint, number integer, tries integer, keys bigint[])
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
    -- Found once: a plan that looks for it anew beside each part would take the next one as well.
    WITH free AS MATERIALIZED (
        SELECT x.run_id, x.number
          FROM run AS r JOIN run_part AS x ON x.run_id = r.id AND x.ended_at IS NULL
         WHERE r.state = 'reading' AND r.is_dry AND x.due <= clock_timestamp()
         ORDER BY x.run_id, x.number LIMIT 1 FOR UPDATE OF x SKIP LOCKED
    )
    UPDATE run_part AS p SET due = clock_timestamp() + lasting, tries = p.tries + 1
      FROM free AS t
     WHERE p.run_id = t.run_id AND p.number = t.number
    RETURNING p.run_id, p.number, p.tries, p.keys
$$;

DROP FUNCTION meet_free(text[]);
REVOKE ALL ON FUNCTION predict_run, plan_looks, meet_free FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT SELECT ON look_round TO %I',
    'GRANT EXECUTE ON FUNCTION predict_run, plan_looks TO %I']);
