-- Runs: which process leads, what it plans, which parts have ended, and what an operator approves.

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

-- Adds two JSON objects of counts; a sum of 0 is left out.
CREATE OR REPLACE FUNCTION add_counts(one jsonb, other jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(s.key, s.n), '{}')
      FROM (SELECT c.key, sum(c.value::bigint) AS n
              FROM (SELECT * FROM jsonb_each_text(one) UNION ALL SELECT * FROM jsonb_each_text(other)) AS c
             GROUP BY c.key HAVING sum(c.value::bigint) <> 0) AS s
$$;

-- Ends a part. Counts the users that are not tried again by outcome (`ends`), rule (`rules_of`) and error (`failures`). `was_held`:
-- the run has counted these users as deferred before, and takes that count back.
CREATE OR REPLACE FUNCTION end_part(
    which bigint, part integer, said text[], reasons text[], ends text[], rules_of text[], failures text[], was_held boolean
) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at   timestamptz := clock_timestamp();
    size bigint := cardinality(ends);
BEGIN
    UPDATE run_part AS p SET ended_at = at, due = NULL, outcomes = said, rules = reasons
     WHERE p.run_id = which AND p.number = part;
    UPDATE run AS x
       SET ended = x.ended + CASE WHEN was_held THEN 0 ELSE size END,
           outcomes = add_counts(add_counts(x.outcomes, counts_of(ends)),
                                 CASE WHEN was_held THEN jsonb_build_object('deferred', -size) ELSE '{}' END),
           rules = add_counts(add_counts(x.rules, counts_of(rules_of)),
                              CASE WHEN was_held THEN jsonb_build_object('proposed', -size) ELSE '{}' END),
           errors = add_counts(x.errors, counts_of(failures)),
           -- The distance between points grows with the run's age, so that a curve of any length has a few hundred.
           progress = CASE WHEN NOT was_held AND coalesce((x.progress -> -1 ->> 'at')::timestamptz, '-infinity')
                                < at - greatest(interval '1 second', (at - coalesce(x.started_at, at)) / 200)
                           THEN x.progress || jsonb_build_object('at', at, 'users', x.ended + size)
                           ELSE x.progress END
     WHERE x.id = which;
END
$$;

-- Ends the parts of real runs whose jobs have all ended. Returns how many parts; null: the caller leads no more.
CREATE OR REPLACE FUNCTION close_parts(fenced bigint, most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
    p        record;
    low      uuid;
    high     uuid;
    said     text[];
    reasons  text[];
    errors   text[];
    again    bigint[];
    closed   integer := 0;
BEGIN
    IF NOT leads('planner', fenced) THEN
        RETURN NULL;
    END IF;
    -- After a minute, if at most half of a part's jobs still wait, they become a part of their own.
    FOR p IN SELECT x.run_id, x.number, x.keys, x.jobs, w.keys AS waiting, w.jobs AS waiting_jobs, r.state, r.scope, r.settled_at
               FROM run AS r JOIN run_part AS x ON x.run_id = r.id AND x.ended_at IS NULL
              CROSS JOIN LATERAL (
                    SELECT coalesce(array_agg(j.key), '{}') AS keys, coalesce(array_agg(j.id), '{}') AS jobs
                      FROM unnest(x.keys, x.jobs) AS j(key, id)
                      JOIN queue AS q ON q.user_key = j.key AND j.id IN (q.reconcile_id, q.reconcile_next)) AS w
              WHERE NOT r.is_dry
                AND (w.keys = '{}' OR x.made_at < clock_timestamp() - interval '1 minute'
                    AND cardinality(w.keys) * 2 <= cardinality(x.keys))
              ORDER BY x.run_id, x.number LIMIT most LOOP
        IF p.waiting <> '{}' THEN
            UPDATE run AS y SET parts = y.parts + 1 WHERE y.id = p.run_id;
            INSERT INTO run_part (run_id, number, keys, jobs)
            SELECT p.run_id, y.parts, p.waiting, p.waiting_jobs FROM run AS y WHERE y.id = p.run_id;
            SELECT array_agg(j.key ORDER BY j.n), array_agg(j.id ORDER BY j.n) INTO p.keys, p.jobs
              FROM unnest(p.keys, p.jobs) WITH ORDINALITY AS j(key, id, n) WHERE j.id <> ALL (p.waiting_jobs);
            UPDATE run_part AS y SET keys = p.keys, jobs = p.jobs WHERE y.run_id = p.run_id AND y.number = p.number;
        END IF;
        SELECT min(j::text)::uuid, max(j::text)::uuid INTO low, high FROM unnest(p.jobs) AS j;
        SELECT array_agg(coalesce(h.outcome, h.state, 'gone') ORDER BY j.n), array_agg(d.rule ORDER BY j.n),
               array_agg(h.last_error ORDER BY j.n)
          INTO said, reasons, errors
          FROM unnest(p.jobs) WITH ORDINALITY AS j(id, n)
          LEFT JOIN LATERAL (SELECT y.outcome, y.state, y.last_error FROM job_history AS y
                              WHERE y.id = j.id AND y.id >= low AND y.id <= high OFFSET 0) AS h ON true
          LEFT JOIN LATERAL (SELECT y.rule FROM job_decision AS y WHERE y.job_id = j.id OFFSET 0) AS d ON true;
        INSERT INTO run_change AS c
               (run_id, user_key, epoch, assets, job_id, announced, state, outcome, rule, type_before, type_after, explanation)
        SELECT p.run_id, d.user_key, u.epoch, d.assets_changed, d.job_id,
               p.state = 'reading' AND d.outcome = 'demoted' AND NOT d.braked,
               CASE WHEN d.observed OR d.outcome = 'deferred' AND d.rule <> 'proposed' THEN 'predicted'
                    WHEN d.rule <> 'proposed' THEN 'applied'
                    -- A later decision about the user counts instead.
                    WHEN EXISTS (SELECT 1 FROM decision AS y
                                  WHERE y.user_key = d.user_key AND y.id > d.id AND y.rule <> 'proposed') THEN 'void'
                    ELSE 'held' END,
               CASE d.rule WHEN 'proposed' THEN 'demoted' ELSE d.outcome END, d.rule, d.type_before,
               CASE d.rule WHEN 'proposed' THEN 'free' ELSE d.type_after END, d.explanation
          FROM unnest(p.jobs) AS j(id)
         CROSS JOIN LATERAL (SELECT y.* FROM job_decision AS y WHERE y.job_id = j.id OFFSET 0) AS d
         CROSS JOIN LATERAL (SELECT y.epoch FROM user_sync AS y WHERE y.user_key = d.user_key OFFSET 0) AS u
         WHERE (p.state IN ('reading', 'applying') OR d.rule <> 'proposed')
           AND (d.type_before IS DISTINCT FROM d.type_after OR d.rule = 'proposed' AND p.state = 'reading'
                OR d.outcome = 'deferred' AND d.rule IN ('first_absence', 'absence_margin'))
            ON CONFLICT (run_id, user_key) DO UPDATE
           SET state = excluded.state, outcome = excluded.outcome, rule = excluded.rule, assets = excluded.assets,
               announced = excluded.announced, job_id = excluded.job_id, type_before = excluded.type_before,
                   type_after = excluded.type_after,
               explanation = excluded.explanation;
        IF p.state = 'applying' THEN
            -- Users of undecided jobs are tried again in five minutes, unless the job was canceled or the error would recur.
            again := ARRAY(SELECT j.key FROM unnest(p.keys, said, reasons, errors) AS j(key, outcome, rule, error)
                             JOIN run_change AS c ON c.run_id = p.run_id AND c.user_key = j.key AND c.state IN ('held', 'predicted')
                            WHERE j.outcome = 'gone' OR j.rule = 'demotions_paused'
                               OR j.outcome = 'store_unavailable'
                                  AND j.error NOT IN ('rejected', 'unknown_to_store', 'user_id_unusable', 'store_not_configured',
                                      'data_refused', 'crashed'));
            IF again <> '{}' THEN
                UPDATE run AS y SET late = y.late || again, late_due = clock_timestamp() + interval '5 minutes', is_fed = false
                 WHERE y.id = p.run_id;
            END IF;
        ELSE
            again := '{}';
        END IF;
        PERFORM end_part(p.run_id, p.number, said, reasons,
                         ARRAY(SELECT j.outcome FROM unnest(p.keys, said) AS j(key, outcome) WHERE j.key <> ALL (again)),
                         ARRAY(SELECT j.rule FROM unnest(p.keys, reasons) AS j(key, rule) WHERE j.key <> ALL (again)),
                         ARRAY(SELECT j.error FROM unnest(p.keys, errors) AS j(key, error) 
                                WHERE j.error IS NOT NULL AND j.key <> ALL (again)),
                         p.settled_at IS NOT NULL AND p.scope <> 'diff');
        closed := closed + 1;
    END LOOP;
    RETURN closed;
END
$$;

-- How many times each word occurs, as a JSON object; null elements are left out.
CREATE OR REPLACE FUNCTION counts_of(words text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(w.word, w.n), '{}')
      FROM (SELECT x.word, count(*) AS n FROM unnest(words) AS x(word) WHERE x.word IS NOT NULL GROUP BY x.word) AS w
$$;

-- Moves a run on once all its users are read or all its changes are written. `allowed`: how many more demotions the brake allows; `most`:
-- the brake's limit. Returns the new state `done`, `applying` or `stopped`; null: the run is not ready, or the caller leads no more.
CREATE OR REPLACE FUNCTION settle_run(fenced bigint, which bigint, allowed bigint, most bigint, of_subscribers bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    r   run;
    n   bigint;
    new text;
BEGIN
    IF NOT leads('planner', fenced) THEN
        RETURN NULL;
    END IF;
    SELECT x.* INTO r FROM run AS x WHERE x.id = which AND x.state IN ('reading', 'applying') AND x.is_fed FOR NO KEY UPDATE;
    IF NOT FOUND OR EXISTS (SELECT 1 FROM run_part AS p WHERE p.run_id = which AND p.ended_at IS NULL) THEN
        RETURN NULL;
    END IF;
    -- A held demotion counts no more if the user's type has changed since.
    UPDATE run_change AS c
       SET state = CASE WHEN (SELECT d.outcome FROM decision AS d WHERE d.user_key = c.user_key ORDER BY d.id DESC LIMIT 1) = 'demoted'
                        THEN 'applied' ELSE 'void' END
      FROM user_sync AS u
     WHERE c.run_id = which AND c.state = 'held' AND u.user_key = c.user_key AND u.epoch <> c.epoch;
    SELECT count(*) INTO n FROM run_change AS c WHERE c.run_id = which AND c.state = 'held';
    -- Demotions that other runs are about to write are taken off the allowance.
    allowed := greatest(allowed - (SELECT count(*) FROM run AS x JOIN run_change AS c ON c.run_id = x.id AND c.state = 'held'
                                    WHERE x.state = 'applying' AND NOT x.is_confirmed AND x.id <> which), 0);
    IF r.state = 'reading' AND NOT r.is_dry AND NOT r.is_backfill_only THEN
        -- If earlier runs of the scope are stopped, the smallest of their limits applies to this run too.
        r.max_demotions := least(r.max_demotions,
                                 (SELECT min(x.max_demotions) FROM run AS x
                                   WHERE x.scope = r.scope AND NOT x.is_dry AND x.state = 'stopped' AND x.id < which));
        -- An earlier stopped run is canceled if this run has found each of its held demotions, or a later decision was made about
        -- the user. A decision that only postpones a demotion does not count as one.
        UPDATE run AS x SET state = 'canceled', ended_at = clock_timestamp()
         WHERE x.scope = r.scope AND NOT x.is_dry AND x.state = 'stopped' AND x.id < which
           AND NOT EXISTS (SELECT 1 FROM run_change AS c JOIN user_sync AS u ON u.user_key = c.user_key
                            WHERE c.run_id = x.id AND c.state = 'held' AND c.epoch = u.epoch AND u.user_id IS NOT NULL
                              AND NOT EXISTS (SELECT 1 FROM run_change AS f
                                               WHERE f.run_id = which AND f.user_key = c.user_key
                                                 AND f.state IN ('held', 'applied'))
                              AND NOT EXISTS (SELECT 1 FROM decision AS y
                                               WHERE y.user_key = c.user_key AND NOT y.observed
                                                 AND y.rule NOT IN ('proposed', 'brake', 'demotions_paused', 'promote_only')
                                                 AND y.id > (SELECT d.id FROM decision AS d WHERE d.job_id = c.job_id)));
    END IF;
    IF r.state = 'applying' OR r.is_dry OR n = 0 THEN
        new := 'done';
        -- Read again, these users came to another result, or the brake held their demotions.
        UPDATE run_change AS c SET state = 'void' WHERE c.run_id = which AND c.state = 'held';
    ELSIF n <= least(allowed, r.max_demotions) THEN
        new := 'applying';
    ELSE
        new := 'stopped';
        PERFORM raise_alarm('run_stopped',
                          format('Run %s would demote %s users, more than its limit of %s: none of them was demoted. See'
                                 ' entitlement-sync runs show %s.', which, n, least(allowed, r.max_demotions), which));
    END IF;
    UPDATE run AS x
       SET state = new, is_fed = new <> 'applying', is_paged = new <> 'applying', cursor_key = NULL, cursor_id = NULL, count_cursor = NULL,
           settled_at = coalesce(x.settled_at, clock_timestamp()),
           held = CASE WHEN x.state = 'reading' THEN n ELSE x.held END,
           total = CASE WHEN x.state = 'reading' THEN x.fed + x.skipped ELSE x.total END,
           demotion_limit = CASE WHEN x.state = 'reading' AND NOT x.is_dry THEN least(allowed, r.max_demotions)
                                 ELSE coalesce(x.demotion_limit, most) END,
           max_demotions = r.max_demotions, subscribers = coalesce(x.subscribers, of_subscribers),
           hash = CASE WHEN x.state = 'reading' THEN hash_of_run(which) ELSE x.hash END,
           ended_at = CASE WHEN new = 'done' THEN clock_timestamp() END
     WHERE x.id = which;
    PERFORM clear_run_alarm();
    RETURN new;
END
$$;

-- Leases one part of a dry run to a worker. If the worker dies, another takes the part when the lease ends.
CREATE OR REPLACE FUNCTION take_part(lasting interval) RETURNS TABLE (run_id bigint, number integer, tries integer, keys bigint[])
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
    -- MATERIALIZED, because a plan that evaluates this again for each part would take the next part as well.
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

-- Keeps what a worker found out about a part of a dry run. Returns false if the caller's `turn` is not the part's last, the part has
-- ended, or the run no longer reads: then nothing is kept.
CREATE OR REPLACE FUNCTION keep_part(
    which bigint, part integer, turn integer, said text[], reasons text[], failures text[],
    changed bigint[], epochs bigint[], outcomes text[], by_rules text[], announced boolean[], types_before text[], types_after text[],
    assets bigint[], explanations text[]
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    PERFORM 1 FROM run_part AS p JOIN run AS r ON r.id = p.run_id
     WHERE p.run_id = which AND p.number = part AND p.tries = turn AND p.ended_at IS NULL AND r.state = 'reading'
       FOR NO KEY UPDATE OF p;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO run_change (run_id, user_key, epoch, assets, state, outcome, rule, announced, type_before, type_after, explanation)
    SELECT which, c.user_key, c.epoch, c.assets, 'predicted', c.outcome, c.rule, c.announced, c.type_before, c.type_after, c.explanation
      FROM unnest(changed, epochs, outcomes, by_rules, announced, types_before, types_after, assets, explanations)
           AS c(user_key, epoch, outcome, rule, announced, type_before, type_after, assets, explanation)
        ON CONFLICT DO NOTHING;
    PERFORM end_part(which, part, said, reasons, said, reasons, failures, false);
    RETURN true;
END
$$;

-- Notes in how many seconds a run is expected to end; null: unknown.
CREATE OR REPLACE FUNCTION predict_run(fenced bigint, which bigint, seconds double precision) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '1s' AS $$
BEGIN
    IF leads('planner', fenced) THEN
        UPDATE run AS r SET predicted_end = clock_timestamp() + seconds * interval '1 second'
         WHERE r.id = which AND r.state IN ('reading', 'applying');
    END IF;
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

-- Deletes runs that ended more than `days` days ago.
CREATE OR REPLACE FUNCTION forget_runs(days integer) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    DELETE FROM run AS r WHERE r.ended_at < clock_timestamp() - days * interval '1 day'
$$;
