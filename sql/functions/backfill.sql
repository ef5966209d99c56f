-- Backfills of a run: App Store notification histories and Google's voided purchases, read in windows of time.

-- Requests a run that only reads backfills since an instant, and returns its id; null: a run of the scope `since` goes on.
CREATE OR REPLACE FUNCTION ask_backfill(starting timestamptz, who text, by_schedule text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    made bigint := ask_run('since', false, starting, NULL, who, by_schedule);
BEGIN
    UPDATE run AS r SET is_backfill_only = true, is_paged = true, is_fed = true, total = 0, started_at = clock_timestamp()
     WHERE r.id = made;
    RETURN made;
END
$$;

-- Adds to a run the backfills that live workers can read. Returns whether the run has to wait for a backfill; null: the caller leads no
-- more. The run does not wait for a backfill that failed three times in a row, or that no worker has advanced for five minutes.
CREATE OR REPLACE FUNCTION plan_backfills(fenced bigint, which bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
    r     run;
    fresh bigint;
    mute  bigint;
BEGIN
    IF NOT leads('planner', fenced) THEN
        RETURN NULL;
    END IF;
    -- A worker that reads a backfill takes this lock too, before it writes the run's record.
    SELECT x.* INTO r FROM run AS x
     WHERE x.id = which AND x.state = 'reading' AND x.scope = 'since' AND NOT x.is_dry FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO run_backfill (run_id, list, since, until, reached)
    SELECT which, o.list, b.begins, clock_timestamp(), b.begins
      FROM (SELECT DISTINCT unnest(w.backfills) AS list FROM worker AS w WHERE w.expires_at > clock_timestamp()) AS o
     CROSS JOIN LATERAL (
           -- A scheduled backfill begins at `since` or earlier: where the schedule's runs have read to, so that failures leave no gap.
           -- If they have never read it, it begins at least 30 days ago.
           SELECT CASE WHEN r.schedule IS NOT NULL AND r.is_backfill_only
                       THEN least(r.since, coalesce((SELECT max((x.listed -> o.list ->> 'until')::timestamptz) FROM run AS x
                                                      WHERE x.schedule = r.schedule AND x.is_backfill_only AND x.id <> which),
                                                    r.asked_at - interval '30 days'))
                       -- What was lost in a failover has to be listed again, even if the run's `since` is later.
                       ELSE least(r.since, (SELECT w.lacks_since - interval '1 minute' FROM server_watch AS w)) END AS begins) AS b
     WHERE b.begins < clock_timestamp()
       AND NOT EXISTS (SELECT 1 FROM run_backfill AS y WHERE y.run_id = which AND y.list = o.list)
        ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS fresh = ROW_COUNT;
    UPDATE run_backfill AS y SET error = 'silent'
     WHERE y.run_id = which AND y.ended_at IS NULL AND y.error IS NULL
         AND greatest(y.moved_at, y.due) < clock_timestamp() - interval '5 minutes';
    GET DIAGNOSTICS mute = ROW_COUNT;
    IF fresh + mute > 0 THEN
        PERFORM note_backfills(which);
    END IF;
    RETURN EXISTS (SELECT 1 FROM run_backfill AS y
                    WHERE y.run_id = which AND y.ended_at IS NULL AND y.failures < 3
                      AND greatest(y.moved_at, y.due) >= clock_timestamp() - interval '5 minutes')
           -- Without a live worker it is not known which backfills can be read.
        OR NOT EXISTS (SELECT 1 FROM worker AS w WHERE w.expires_at > clock_timestamp());
END
$$;

-- Leases a due backfill to a worker. If the worker dies, another takes it when the lease ends, and goes on after the last complete
-- window. `reach`: how far back the store's history goes. Returns no row if none is due.
CREATE OR REPLACE FUNCTION take_backfill(of_list text, reach interval, lasting interval)
RETURNS TABLE (run_id bigint, turn integer, failures integer, reached timestamptz, until timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    taken bigint;
BEGIN
    SELECT r.id INTO taken
      FROM run AS r JOIN run_backfill AS y ON y.run_id = r.id AND y.list = of_list AND y.ended_at IS NULL
     WHERE r.state IN ('reading', 'applying') AND y.due <= clock_timestamp()
     ORDER BY y.due LIMIT 1 FOR NO KEY UPDATE OF r, y SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    UPDATE run_backfill AS y
       SET due = clock_timestamp() + lasting, tries = y.tries + 1, passing = '{}',
           -- A store is not asked for more than its history holds.
           since = CASE WHEN y.reached > y.since THEN y.since ELSE greatest(y.since, b.begins) END,
           reached = least(greatest(y.reached, b.begins), y.until)
      FROM (SELECT clock_timestamp() - reach AS begins) AS b
     WHERE y.run_id = taken AND y.list = of_list
    RETURNING y.run_id, y.tries, y.failures, y.reached, y.until;
    PERFORM note_backfills(taken);
END
$$;

-- Locks a run and one of its backfills. Returns whether the run goes on and the caller's turn (`held`) is the last one.
CREATE OR REPLACE FUNCTION hold_backfill(which bigint, of_list text, held integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM 1 FROM run AS r WHERE r.id = which AND r.state IN ('reading', 'applying') FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM run_backfill AS y
     WHERE y.run_id = which AND y.list = of_list AND y.tries = held AND y.ended_at IS NULL FOR NO KEY UPDATE;
    RETURN FOUND;
END
$$;

-- Keeps the events of a page, as `accept_events` does. `stood`: counts of what was on the page. `owned`: events about purchases without
-- a known owner are counted and not kept. Returns false and keeps nothing if the backfill has ended or another worker has it, or if the
-- run does not go on.
CREATE OR REPLACE FUNCTION keep_backfill(
    which bigint, of_list text, held integer, lasting interval, stood jsonb, owned boolean, sender text,
    event_ids text[], kinds text[], occurred timestamptz[], access_events boolean[], names text[], abouts text[], bodies bytea[]
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET enable_seqscan = off SET lock_timeout = '5s' AS $$
DECLARE
    added bigint := 0;
    known integer[];
BEGIN
    IF NOT hold_backfill(which, of_list, held) THEN
        RETURN false;
    END IF;
    -- For every owner, and also if the page was listed before.
    PERFORM note_chargebacks(abouts);
    known := ARRAY(
        SELECT a.n::integer FROM unnest(abouts) WITH ORDINALITY AS a(about, n)
         WHERE NOT owned
            OR EXISTS (SELECT 1
                         FROM jsonb_to_recordset(a.about::jsonb -> 'purchases') AS s(store text, environment text, value text)
                         JOIN purchase_identifier AS x ON x.value = s.value AND x.store = s.store
                          AND x.environment = coalesce(s.environment, x.environment)
                         JOIN purchase AS f ON f.id = x.purchase_id
                         JOIN purchase AS p ON p.id = coalesce(f.merged_into, f.id)
                        WHERE p.owner_key IS NOT NULL)
         ORDER BY a.n);
    IF cardinality(known) < cardinality(event_ids) THEN
        stood := add_counts(stood, jsonb_build_object('unknown', cardinality(event_ids) - cardinality(known)));
    END IF;
    IF known <> '{}' THEN
        event_ids := ARRAY(SELECT event_ids[k.n] FROM unnest(known) AS k(n));
        added := accept_events(
            sender, event_ids, ARRAY(SELECT kinds[k.n] FROM unnest(known) AS k(n)),
            ARRAY(SELECT occurred[k.n] FROM unnest(known) AS k(n)), ARRAY(SELECT access_events[k.n] FROM unnest(known) AS k(n)),
            ARRAY(SELECT names[k.n] FROM unnest(known) AS k(n)), ARRAY(SELECT abouts[k.n] FROM unnest(known) AS k(n)),
            ARRAY(SELECT bodies[k.n] FROM unnest(known) AS k(n)));
    END IF;
    IF added > 0 THEN
        -- Only the events that this transaction has added.
        UPDATE inbox AS i SET is_backfilled = true
         WHERE i.source = sender AND i.event_id = ANY (event_ids) AND i.received_at = now();
    END IF;
    UPDATE run_backfill AS y
       SET passing = add_counts(y.passing, stood), counts = add_counts(y.counts, jsonb_build_object('new', added)),
           moved_at = clock_timestamp(), due = clock_timestamp() + lasting
     WHERE y.run_id = which AND y.list = of_list;
    PERFORM note_backfills(which);
    RETURN true;
END
$$;

-- Notes that a backfill was read up to an instant, and ends it at its end. Returns false as `keep_backfill` does.
CREATE OR REPLACE FUNCTION move_backfill(which bigint, of_list text, held integer, lasting interval, upto timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    IF NOT hold_backfill(which, of_list, held) THEN
        RETURN false;
    END IF;
    UPDATE run_backfill AS y
       SET reached = upto, counts = add_counts(y.counts, y.passing), passing = '{}', failures = 0, error = NULL,
           moved_at = clock_timestamp(), due = clock_timestamp() + lasting,
           ended_at = CASE WHEN upto >= y.until THEN clock_timestamp() END
     WHERE y.run_id = which AND y.list = of_list;
    PERFORM note_backfills(which);
    RETURN true;
END
$$;

-- Postpones a backfill. `code`: why it cannot be read; null: its worker stops. `failed`: how many tries have failed in a row.
CREATE OR REPLACE FUNCTION postpone_backfill(which bigint, of_list text, held integer, pause interval, code text, failed integer)
    RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    IF NOT hold_backfill(which, of_list, held) THEN
        RETURN;
    END IF;
    UPDATE run_backfill AS y
       SET due = clock_timestamp() + pause, failures = failed, error = coalesce(left(code, 100), y.error)
     WHERE y.run_id = which AND y.list = of_list;
    PERFORM note_backfills(which);
END
$$;

-- Writes into the run's record what its backfills have listed, and which of them have failed.
CREATE OR REPLACE FUNCTION note_backfills(which bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    UPDATE run AS x
       SET listed = l.listed,
           errors = (SELECT coalesce(jsonb_object_agg(e.key, e.value), '{}')
                       FROM jsonb_each(x.errors) AS e WHERE e.key NOT LIKE 'listing.%') || l.errors
      FROM (SELECT jsonb_object_agg(y.list, jsonb_strip_nulls(jsonb_build_object(
                       'from', y.since, 'until', y.reached,
                       'listed', coalesce(c.counts -> 'listed', '0'), 'new', coalesce(c.counts -> 'new', '0'),
                       'unknown', c.counts -> 'unknown', 'refused', c.counts -> 'refused',
                       'complete', y.ended_at IS NOT NULL, 'error', y.error))) AS listed,
                   coalesce(jsonb_object_agg('listing.' || y.list, 1) FILTER (WHERE y.error IS NOT NULL), '{}')
                   || coalesce(jsonb_object_agg('listing.' || y.list || '.refused', c.counts -> 'refused')
                                   FILTER (WHERE c.counts ? 'refused'), '{}') AS errors
              FROM run_backfill AS y CROSS JOIN LATERAL (SELECT add_counts(y.counts, y.passing) AS counts) AS c
             WHERE y.run_id = which) AS l
     WHERE x.id = which AND l.listed IS NOT NULL
$$;
