-- The parts of a run: what workers take, when a part has ended, and when the run goes on, stops or is done (`settle_run`).

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
