-- What a store sent meanwhile: notification histories and voided purchases, read in windows of time.

-- Asks for stores' lists since an instant. Returns null where a run of the scope `since` goes on.
CREATE OR REPLACE FUNCTION ask_lists(starting timestamptz, who text, by_schedule text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    made bigint := ask_run('since', false, starting, NULL, who, by_schedule);
BEGIN
    UPDATE run AS r SET lists_only = true, is_paged = true, is_fed = true, total = 0, started_at = clock_timestamp()
     WHERE r.id = made;
    RETURN made;
END
$$;

-- Begins to list for a run what workers that live can list; what was begun goes on. Returns whether the run's end has to
-- wait for it: one that has failed a few times, or of which nothing is heard, is waited for no longer. Null: the caller leads
-- no more.
CREATE OR REPLACE FUNCTION plan_listings(fenced bigint, which bigint) RETURNS boolean
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
    -- Whoever lists writes the run's record as well, after this lock.
    SELECT x.* INTO r FROM run AS x
     WHERE x.id = which AND x.state = 'reading' AND x.scope = 'since' AND NOT x.is_dry FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO run_listing (run_id, list, since, until, reached)
    SELECT which, o.list, b.begins, clock_timestamp(), b.begins
      FROM (SELECT DISTINCT unnest(w.lists) AS list FROM worker AS w WHERE w.expires_at > clock_timestamp()) AS o
     CROSS JOIN LATERAL (
           -- By schedule from where the list was read to, however long ago: one that nobody could read leaves no gap, and
           -- keeps no other list back. What was never read is read for a month.
           SELECT CASE WHEN r.schedule IS NOT NULL AND r.lists_only
                       THEN least(r.since, coalesce((SELECT max((x.listed -> o.list ->> 'until')::timestamptz) FROM run AS x
                                                      WHERE x.schedule = r.schedule AND x.lists_only AND x.id <> which),
                                                    r.asked_at - interval '30 days'))
                       ELSE r.since END AS begins) AS b
     WHERE b.begins < clock_timestamp()
       AND NOT EXISTS (SELECT 1 FROM run_listing AS y WHERE y.run_id = which AND y.list = o.list)
        ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS fresh = ROW_COUNT;
    UPDATE run_listing AS y SET error = 'silent'
     WHERE y.run_id = which AND y.ended_at IS NULL AND y.error IS NULL
         AND greatest(y.moved_at, y.due) < clock_timestamp() - interval '5 minutes';
    GET DIAGNOSTICS mute = ROW_COUNT;
    IF fresh + mute > 0 THEN
        PERFORM note_listings(which);
    END IF;
    RETURN EXISTS (SELECT 1 FROM run_listing AS y
                    WHERE y.run_id = which AND y.ended_at IS NULL AND y.failures < 3
                      AND greatest(y.moved_at, y.due) >= clock_timestamp() - interval '5 minutes')
           -- Nobody has said yet what can be listed.
        OR NOT EXISTS (SELECT 1 FROM worker AS w WHERE w.expires_at > clock_timestamp());
END
$$;

-- Takes a list up, for a while: whoever dies meanwhile has it taken by others, who go on behind the last window that was listed
-- to its end. `reach`: how far back it goes.
CREATE OR REPLACE FUNCTION take_listing(of_list text, reach interval, lasting interval)
RETURNS TABLE (run_id bigint, turn integer, failures integer, reached timestamptz, until timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    taken bigint;
BEGIN
    SELECT r.id INTO taken
      FROM run AS r JOIN run_listing AS y ON y.run_id = r.id AND y.list = of_list AND y.ended_at IS NULL
     WHERE r.state IN ('reading', 'applying') AND y.due <= clock_timestamp()
     ORDER BY y.due LIMIT 1 FOR NO KEY UPDATE OF r, y SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    UPDATE run_listing AS y
       SET due = clock_timestamp() + lasting, tries = y.tries + 1, passing = '{}',
           -- No store is asked about more than it remembers.
           since = CASE WHEN y.reached > y.since THEN y.since ELSE greatest(y.since, b.begins) END,
           reached = least(greatest(y.reached, b.begins), y.until)
      FROM (SELECT clock_timestamp() - reach AS begins) AS b
     WHERE y.run_id = taken AND y.list = of_list
    RETURNING y.run_id, y.tries, y.failures, y.reached, y.until;
    PERFORM note_listings(taken);
END
$$;

-- Locks a run and one of its lists for whoever has taken that up last; whether that is the caller, and the run goes on.
CREATE OR REPLACE FUNCTION hold_listing(which bigint, of_list text, held integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM 1 FROM run AS r WHERE r.id = which AND r.state IN ('reading', 'applying') FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM run_listing AS y
     WHERE y.run_id = which AND y.list = of_list AND y.tries = held AND y.ended_at IS NULL FOR NO KEY UPDATE;
    RETURN FOUND;
END
$$;

-- Keeps what stood on a page of a list, as `accept_events` keeps what is delivered; `stood`: how many stood there, and of what
-- kind. `owned`: of events about purchases that nobody is known to own nothing is kept, they are counted. Returns false where
-- somebody else has taken the list up, or the run does not go on: nothing is kept then.
CREATE OR REPLACE FUNCTION keep_listing(
    which bigint, of_list text, held integer, lasting interval, stood jsonb, owned boolean, sender text,
    event_ids text[], kinds text[], occurred timestamptz[], promising boolean[], names text[], abouts text[], bodies bytea[]
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET enable_seqscan = off SET lock_timeout = '5s' AS $$
DECLARE
    added bigint := 0;
    known integer[];
BEGIN
    IF NOT hold_listing(which, of_list, held) THEN
        RETURN false;
    END IF;
    -- Whoever owns them, and whether or not the page was listed before.
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
            ARRAY(SELECT occurred[k.n] FROM unnest(known) AS k(n)), ARRAY(SELECT promising[k.n] FROM unnest(known) AS k(n)),
            ARRAY(SELECT names[k.n] FROM unnest(known) AS k(n)), ARRAY(SELECT abouts[k.n] FROM unnest(known) AS k(n)),
            ARRAY(SELECT bodies[k.n] FROM unnest(known) AS k(n)));
    END IF;
    IF added > 0 THEN
        -- Those of this transaction.
        UPDATE inbox AS i SET is_listed = true
         WHERE i.source = sender AND i.event_id = ANY (event_ids) AND i.received_at = now();
    END IF;
    UPDATE run_listing AS y
       SET passing = add_counts(y.passing, stood), counts = add_counts(y.counts, jsonb_build_object('new', added)),
           moved_at = clock_timestamp(), due = clock_timestamp() + lasting
     WHERE y.run_id = which AND y.list = of_list;
    PERFORM note_listings(which);
    RETURN true;
END
$$;

-- Notes that a list was read up to an instant; at its end it is over. Returns false as `keep_listing` does.
CREATE OR REPLACE FUNCTION move_listing(which bigint, of_list text, held integer, lasting interval, upto timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    IF NOT hold_listing(which, of_list, held) THEN
        RETURN false;
    END IF;
    UPDATE run_listing AS y
       SET reached = upto, counts = add_counts(y.counts, y.passing), passing = '{}', failures = 0, error = NULL,
           moved_at = clock_timestamp(), due = clock_timestamp() + lasting,
           ended_at = CASE WHEN upto >= y.until THEN clock_timestamp() END
     WHERE y.run_id = which AND y.list = of_list;
    PERFORM note_listings(which);
    RETURN true;
END
$$;

-- Puts a list off: `code` says why it can't be read, null that its reader goes. `failed`: how many times in a row by now.
CREATE OR REPLACE FUNCTION put_off_listing(which bigint, of_list text, held integer, pause interval, code text, failed integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    IF NOT hold_listing(which, of_list, held) THEN
        RETURN;
    END IF;
    UPDATE run_listing AS y
       SET due = clock_timestamp() + pause, failures = failed, error = coalesce(left(code, 100), y.error)
     WHERE y.run_id = which AND y.list = of_list;
    PERFORM note_listings(which);
END
$$;

-- Writes into the run's record what was listed, and which lists have failed so far.
CREATE OR REPLACE FUNCTION note_listings(which bigint) RETURNS void
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
              FROM run_listing AS y CROSS JOIN LATERAL (SELECT add_counts(y.counts, y.passing) AS counts) AS c
             WHERE y.run_id = which) AS l
     WHERE x.id = which AND l.listed IS NOT NULL
$$;
