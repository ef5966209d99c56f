-- Runs: which process leads, what it plans, and what an operator approves. When a run stops or is done: `settle_run` in run_parts.sql.

-- Takes a free lead, or keeps the caller's (`held`: its number). Returns the lead's number; null: another process leads.
CREATE OR REPLACE FUNCTION take_lead(which text, who text, held bigint, lasting interval) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO leader AS l (name, fence, holder, expires_at)
    VALUES (which, 1, left(who, 200), clock_timestamp() + lasting)
    ON CONFLICT (name) DO UPDATE
       SET fence = CASE WHEN l.fence = held AND l.expires_at > clock_timestamp() THEN l.fence ELSE l.fence + 1 END,
           holder = excluded.holder, expires_at = clock_timestamp() + lasting
     WHERE l.expires_at <= clock_timestamp() OR l.fence = held
    RETURNING l.fence
$$;

-- Whether the caller still leads. Locks the lead's row, so no other process can take over before the caller's transaction ends.
CREATE OR REPLACE FUNCTION leads(which text, held bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM 1 FROM leader AS l WHERE l.name = which AND l.fence = held AND l.expires_at > clock_timestamp() FOR SHARE;
    RETURN FOUND;
END
$$;

-- Gives up the caller's lead, so that another process can take it at once.
CREATE OR REPLACE FUNCTION step_down(which text, held bigint) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    UPDATE leader AS l SET expires_at = '-infinity' WHERE l.name = which AND l.fence = held
$$;

-- Requests a run and returns its id; null: a run of this scope, dry or not as requested, goes on.
CREATE OR REPLACE FUNCTION ask_run(
    wanted     text,
    dry        boolean,
    starting   timestamptz,
    most       integer,
    who        text,
    by_schedule text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    made bigint;
BEGIN
    INSERT INTO run (scope, is_dry, since, max_demotions, asked_by, schedule)
    VALUES (wanted, dry, starting, most, left(who, 200), by_schedule)
    ON CONFLICT DO NOTHING RETURNING id INTO made;
    PERFORM stir();
    RETURN made;
END
$$;

-- Starts the run of a schedule's slot and returns it. Null: a run of the scope goes on, the slot is over, or the caller leads no more.
CREATE OR REPLACE FUNCTION start_scheduled(held bigint, which text, slot timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    s    schedule;
    made bigint;
BEGIN
    IF NOT leads('scheduler', held) THEN
        RETURN NULL;
    END IF;
    SELECT x.* INTO s FROM schedule AS x WHERE x.name = which AND x.slot_at < slot FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF s.scope = 'since' THEN
        made := ask_backfill(slot - make_interval(days => s.days), 'schedule ' || s.name, s.name);
    ELSE
        made := ask_run(s.scope, s.is_dry, NULL, s.max_demotions, 'schedule ' || s.name, s.name);
    END IF;
    UPDATE schedule AS x
       SET slot_at = CASE WHEN made IS NULL THEN x.slot_at ELSE slot END,
           late_since = CASE WHEN made IS NULL THEN coalesce(x.late_since, slot) END
     WHERE x.name = which;
    RETURN made;
END
$$;

-- Counts the next `batch` users of a run. Returns whether more are left to count; null: the caller leads no more.
CREATE OR REPLACE FUNCTION count_run(fenced bigint, which bigint, batch integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
    r    run;
    seen bigint;
    last text;
BEGIN
    IF NOT leads('planner', fenced) THEN
        RETURN NULL;
    END IF;
    SELECT x.* INTO r FROM run AS x WHERE x.id = which AND x.total IS NULL AND x.state = 'reading' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF r.scope = 'all' THEN
        SELECT count(*), (array_agg(p.id ORDER BY p.n DESC))[1] INTO seen, last
          FROM (SELECT h.id, row_number() OVER () AS n FROM entitlement_sync_host.page_users(r.count_cursor, batch) AS h) AS p;
    ELSIF r.scope = 'due' THEN
        -- Counted in one step along one index, because users stop being due while the run goes on.
        batch := 5000000;
        SELECT r.fed + count(*) INTO seen
          FROM (SELECT 1 FROM user_sync AS u
                 WHERE u.next_check_at <= r.asked_at
                   AND (u.next_check_at, u.user_key) > (coalesce(r.cursor_at, '-infinity'), coalesce(r.cursor_key, 0))
                 LIMIT batch) AS d;
    ELSE
        SELECT count(*), max(w.user_key)::text INTO seen, last
          FROM (SELECT u.user_key FROM user_sync AS u WHERE u.user_key > coalesce(r.count_cursor::bigint, 0)
                 ORDER BY u.user_key LIMIT batch) AS w;
    END IF;
    UPDATE run AS x
       SET counted = x.counted + seen, count_cursor = CASE WHEN seen = batch THEN coalesce(last, x.count_cursor) END,
           total = CASE WHEN seen < batch THEN x.counted + seen END
     WHERE x.id = which;
    RETURN seen = batch;
END
$$;

-- Plans the next part of a run, of at most `batch` users. Returns how many users it examined; 0: there is nothing to plan at present.
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
    passed  integer;
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
        -- A pause delays the changes that were approved, and does not void them.
        RETURN 0;
    END IF;
    IF r.state = 'applying' AND coalesce(r.confirmed_at, r.settled_at, r.asked_at) < clock_timestamp() - interval '72 hours' THEN
        -- The reads are too old to change users by them.
        UPDATE run AS x
           SET is_paged = true, is_fed = true, late = '{}',
               errors = add_counts(x.errors, jsonb_build_object('too_old', (
                            SELECT count(*) FROM run_change AS c
                             WHERE c.run_id = which AND c.state IN ('held', 'predicted') AND c.outcome <> 'deferred'
                               AND (c.user_key > coalesce(r.cursor_key, 0) OR c.user_key = ANY (r.late)))))
         WHERE x.id = which;
        RETURN 0;
    END IF;
    IF r.is_paged AND r.late_due > clock_timestamp() THEN
        RETURN 0;
    END IF;
    IF r.is_paged AND r.state = 'reading' AND r.late_since < clock_timestamp() - interval '15 minutes' THEN
        -- The host's transactions may stay open for long: the run goes on without the users that they have locked.
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
                       WHERE c.run_id = which AND c.state IN ('held', 'predicted') AND c.outcome <> 'deferred'
                           AND c.user_key > coalesce(r.cursor_key, 0)
                       ORDER BY c.user_key LIMIT batch);
        passed := cardinality(keys);
        last_id := keys[passed];
    ELSIF r.scope = 'all' THEN
        SELECT array_agg(p.id ORDER BY p.n), array_agg(p.id) FILTER (WHERE is_eligible(p.status))
          INTO ids, able
          FROM (SELECT h.id, h.status, row_number() OVER () AS n
                  FROM entitlement_sync_host.page_users(r.cursor_id, batch) AS h) AS p;
        passed := coalesce(cardinality(ids), 0);
        is_last := passed < batch;
        able := coalesce(able, '{}');
        strangers := ARRAY(SELECT a.id FROM unnest(able) AS a(id)
                            WHERE NOT EXISTS (SELECT 1 FROM user_sync AS x WHERE x.user_id = a.id));
        IF strangers <> '{}' THEN
            PERFORM meet_free(strangers, r.is_dry);
            -- Another transaction is making a user known: the part ends before it. If it is the first, the run leaves it out.
            SELECT min(p.n) INTO unmet FROM unnest(ids) WITH ORDINALITY AS p(id, n)
             WHERE p.id = ANY (strangers) AND NOT EXISTS (SELECT 1 FROM user_sync AS x WHERE x.user_id = p.id);
            IF unmet IS NOT NULL THEN
                is_last := false;
                IF unmet = 1 THEN
                    r.errors := add_counts(r.errors, '{"held_elsewhere": 1}');
                END IF;
                ids := ids[1:greatest(unmet - 1, 1)];
                passed := cardinality(ids);
                able := ARRAY(SELECT a.id FROM unnest(able) AS a(id) WHERE a.id = ANY (ids));
            END IF;
        END IF;
        keys := ARRAY(SELECT u.user_key FROM unnest(able) AS a(id)
                       CROSS JOIN LATERAL (SELECT x.user_key FROM user_sync AS x WHERE x.user_id = a.id OFFSET 0) AS u
                       ORDER BY u.user_key);
        r.cursor_id := coalesce(ids[passed], r.cursor_id);
        r.skipped := r.skipped + passed - cardinality(able);
    ELSIF r.scope = 'due' THEN
        SELECT array_agg(d.user_key ORDER BY d.next_check_at, d.user_key), count(*), max(d.next_check_at) INTO keys, passed, last_at
          FROM (SELECT u.user_key, u.next_check_at FROM user_sync AS u
                 WHERE u.next_check_at <= r.asked_at
                   AND (u.next_check_at, u.user_key) > (coalesce(r.cursor_at, '-infinity'), coalesce(r.cursor_key, 0))
                 ORDER BY u.next_check_at, u.user_key LIMIT batch) AS d;
        keys := coalesce(keys, '{}');
        last_id := keys[passed];
        IF NOT r.is_dry THEN
            -- The job's verdict plans the next check; without a verdict the check is due again in six hours.
            UPDATE user_sync AS u SET next_check_at = clock_timestamp() + interval '6 hours'
             WHERE u.user_key = ANY (ARRAY(SELECT x.user_key FROM user_sync AS x
                                            WHERE x.user_key = ANY (keys) FOR NO KEY UPDATE SKIP LOCKED))
               AND u.next_check_at <= r.asked_at;
        END IF;
    ELSE
        -- Every window has the same size, however few of its users the run reads.
        SELECT array_agg(w.user_key) FILTER (WHERE w.user_id IS NOT NULL AND coalesce(w.read_at, '-infinity') < r.since),
               count(*), max(w.user_key)
          INTO keys, passed, last_id
          FROM (SELECT u.user_key, u.user_id, u.read_at FROM user_sync AS u WHERE u.user_key > coalesce(r.cursor_key, 0)
                 ORDER BY u.user_key LIMIT batch) AS w;
        keys := coalesce(keys, '{}');
        r.skipped := r.skipped + passed - cardinality(keys);
    END IF;
    r.is_paged := r.is_paged OR coalesce(is_last, passed < batch);
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
            -- Other transactions have locked these users' rows, or have locked so many that the rest was not tried.
            r.late := r.late || ARRAY(SELECT k.key FROM unnest(keys) AS k(key) WHERE k.key <> ALL (took));
        END IF;
    END IF;
    UPDATE run AS x
       SET started_at = coalesce(x.started_at, clock_timestamp()), parts = r.parts, fed = r.fed, late = r.late,
           late_since = CASE WHEN r.is_paged AND r.late <> '{}' THEN coalesce(x.late_since, clock_timestamp()) END,
           is_paged = r.is_paged, is_fed = r.is_paged AND r.late = '{}',
           skipped = r.skipped, errors = r.errors, cursor_id = CASE WHEN NOT r.is_paged THEN r.cursor_id END,
           cursor_at = r.cursor_at, cursor_key = r.cursor_key
     WHERE x.id = which;
    RETURN coalesce(passed, cardinality(took), 0);
END
$$;

-- The hash by which an operator approves a run: over every user that would change, the change, and the user's epoch.
CREATE OR REPLACE FUNCTION hash_of_run(which bigint) RETURNS bytea
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT sha256(convert_to(coalesce(string_agg(concat_ws('|', c.user_key, c.epoch, c.outcome, c.type_before, c.type_after),
                                                 E'\n' ORDER BY c.user_key), ''), 'UTF8'))
      FROM run_change AS c WHERE c.run_id = which AND c.outcome <> 'deferred'
$$;

-- Approves a stopped run, or a finished dry run, whose changes become a run of their own. Returns the run that writes the changes; null:
-- there is no such run, or the dry run was approved before. Error 22023: the hash differs, or the run was read over 72 hours ago.
CREATE OR REPLACE FUNCTION approve_run(which bigint, seen bytea, who text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    r    run;
    made bigint;
BEGIN
    SELECT x.* INTO r FROM run AS x
     WHERE x.id = which AND (x.state = 'stopped' OR x.state = 'done' AND x.is_dry) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF r.hash IS DISTINCT FROM seen THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'hash: it is not that of this run''s changes',
            HINT = 'Check the changes again: entitlement-sync runs show prints their hash.';
    END IF;
    IF r.settled_at < clock_timestamp() - interval '72 hours' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'run: it was read more than 72 hours ago',
            HINT = 'Ask for a new one, and check its changes.';
    END IF;
    IF r.is_dry THEN
        INSERT INTO run (scope, of_run, state, is_confirmed, asked_by, confirmed_by, confirmed_at, hash, total)
        VALUES ('diff', which, 'applying', true, left(who, 200), left(who, 200), clock_timestamp(), r.hash,
                (SELECT count(*) FROM run_change AS c WHERE c.run_id = which AND c.outcome <> 'deferred'))
            ON CONFLICT (of_run) WHERE state <> 'canceled' DO NOTHING
        RETURNING id INTO made;
        IF made IS NULL THEN
            RETURN NULL;
        END IF;
        INSERT INTO run_change (run_id, user_key, epoch, state, outcome, rule, announced, type_before, type_after, explanation)
        SELECT made, c.user_key, c.epoch, CASE c.outcome WHEN 'demoted' THEN 'held' ELSE 'predicted' END, c.outcome, c.rule, c.announced,
               c.type_before, c.type_after, c.explanation
          FROM run_change AS c WHERE c.run_id = which AND c.outcome <> 'deferred';
    ELSE
        UPDATE run AS x
           SET state = 'applying', is_confirmed = true, is_fed = false, is_paged = false, cursor_key = NULL, confirmed_by = left(who, 200),
               confirmed_at = clock_timestamp()
         WHERE x.id = which;
        made := which;
    END IF;
    PERFORM clear_run_alarm();
    RETURN made;
END
$$;

-- Cancels a run. Its queued jobs still read their users, but do not demote them. Returns false if the run has ended.
CREATE OR REPLACE FUNCTION cancel_run(which bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    UPDATE run AS x SET state = 'canceled', ended_at = clock_timestamp(), cursor_id = NULL, count_cursor = NULL
     WHERE x.id = which AND x.state IN ('reading', 'applying', 'stopped');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM clear_run_alarm();
    RETURN true;
END
$$;

-- For each job that came to a demotion: whether a run holds it, and whether an operator has approved it. A run holds the demotions of
-- its users until it writes them or ends, whichever job reads the user. A stopped run holds them for 72 hours, as long as `approve_run`
-- accepts it. Jobs whose users no run concerns are left out.
CREATE OR REPLACE FUNCTION runs_of(wanted uuid[], users bigint[])
RETURNS TABLE (job uuid, run_id bigint, is_held boolean, is_confirmed boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
    SELECT w.id, r.id, NOT (r.state = 'applying' AND c.user_key IS NOT NULL), r.is_confirmed
      FROM run AS r
      JOIN run_part AS p ON p.run_id = r.id AND p.ended_at IS NULL
     CROSS JOIN LATERAL (SELECT x.key FROM unnest(p.keys) AS x(key) WHERE x.key = ANY (users)) AS j
      JOIN unnest(wanted, users) AS w(id, user_key) ON w.user_key = j.key
     CROSS JOIN LATERAL (SELECT x.epoch FROM user_sync AS x WHERE x.user_key = j.key OFFSET 0) AS u
      LEFT JOIN run_change AS c
        ON c.run_id = r.id AND c.user_key = j.key AND c.state = 'held' AND c.epoch = u.epoch
     WHERE NOT r.is_dry
       AND NOT (r.state = 'stopped' AND coalesce(r.settled_at, 'infinity') < clock_timestamp() - interval '72 hours')
     UNION ALL
    SELECT w.id, r.id, true, false
      FROM unnest(wanted, users) AS w(id, user_key)
     CROSS JOIN LATERAL (SELECT x.epoch FROM user_sync AS x WHERE x.user_key = w.user_key OFFSET 0) AS u
      JOIN run_change AS c ON c.user_key = w.user_key AND c.state = 'held' AND c.epoch = u.epoch
      JOIN run AS r ON r.id = c.run_id
     WHERE r.state = 'reading'
        OR r.state = 'stopped' AND coalesce(r.settled_at, 'infinity') >= clock_timestamp() - interval '72 hours'
$$;

-- Clears the alarm `run_stopped` if no run is stopped.
CREATE OR REPLACE FUNCTION clear_run_alarm() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- Waits for a transaction that raises the alarm at this moment, before it checks whether a run is stopped.
    PERFORM 1 FROM alarm AS a WHERE a.name = 'run_stopped' FOR UPDATE;
    DELETE FROM alarm AS a WHERE a.name = 'run_stopped' AND NOT EXISTS (SELECT 1 FROM run AS x WHERE x.state = 'stopped');
END
$$;

-- Deletes runs and imports that ended more than `days` days ago, and imports that no operator has approved for so long.
CREATE OR REPLACE FUNCTION forget_runs(days integer) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    DELETE FROM import AS i WHERE coalesce(i.ended_at, CASE i.state WHEN 'ready' THEN i.ready_at END)
                                  < clock_timestamp() - days * interval '1 day';
    DELETE FROM run AS r WHERE r.ended_at < clock_timestamp() - days * interval '1 day'
$$;
