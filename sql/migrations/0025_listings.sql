-- compatible_from: 11
-- Catching up by listing: what stores sent while nobody heard them is listed while a run over whoever was not read since an
-- instant goes on, and comes into the inbox as if it had been delivered. The planner begins it; workers list, for they have
-- the stores' keys. A list is a hint to look again: nothing is decided by it, and the run reads its users all the same.

ALTER TABLE worker ADD COLUMN lists text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN worker.lists IS 'the stores'' lists that it can read';

ALTER TABLE inbox ADD COLUMN is_listed boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN inbox.is_listed IS 'nobody delivered it: it was found in a store''s list';

ALTER TABLE run ADD COLUMN listed jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN run.listed IS 'by list: from when on, up to when, how many were listed, and how many of them were new';

-- A store's list that a run reads, a window after the other.
CREATE TABLE run_listing (
    run_id   bigint      NOT NULL REFERENCES run ON DELETE CASCADE,
    list     text        NOT NULL CHECK (list IN ('app_store', 'app_store_sandbox', 'google_play')),
    since    timestamptz NOT NULL,
    until    timestamptz NOT NULL,
    reached  timestamptz NOT NULL,
    moved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due      timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries    integer     NOT NULL DEFAULT 0,
    failures integer     NOT NULL DEFAULT 0,
    error    text,
    counts   jsonb       NOT NULL DEFAULT '{}',
    passing  jsonb       NOT NULL DEFAULT '{}',
    ended_at timestamptz,
    PRIMARY KEY (run_id, list)
) WITH (fillfactor = 50);
CREATE INDEX run_listing_open ON run_listing (run_id, list) WHERE ended_at IS NULL;
COMMENT ON COLUMN run_listing.reached IS 'whatever came before was listed';
COMMENT ON COLUMN run_listing.moved_at IS 'when somebody last heard of it';
COMMENT ON COLUMN run_listing.tries IS 'whoever takes it up shuts the turn before out';
COMMENT ON COLUMN run_listing.failures IS 'in a row';
COMMENT ON COLUMN run_listing.passing IS 'of the window that is being listed: counted once it was listed to its end';

-- Writes into the run's record what was listed, and which lists have failed so far.
CREATE FUNCTION note_listings(which bigint) RETURNS void
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

-- Begins to list for a run what workers that live can list; what was begun goes on. Returns whether the run's end has to
-- wait for it: one that has failed a few times, or of which nothing is heard, is waited for no longer. Null: the caller leads
-- no more.
CREATE FUNCTION plan_listings(fenced bigint, which bigint) RETURNS boolean
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
    SELECT which, o.list, r.since, clock_timestamp(), r.since
      FROM (SELECT DISTINCT unnest(w.lists) AS list FROM worker AS w WHERE w.expires_at > clock_timestamp()) AS o
     WHERE r.since < clock_timestamp()
       AND NOT EXISTS (SELECT 1 FROM run_listing AS y WHERE y.run_id = which AND y.list = o.list)
        ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS fresh = ROW_COUNT;
    UPDATE run_listing AS y SET error = 'silent'
     WHERE y.run_id = which AND y.ended_at IS NULL AND y.error IS NULL AND y.moved_at < clock_timestamp() - interval '5 minutes';
    GET DIAGNOSTICS mute = ROW_COUNT;
    IF fresh + mute > 0 THEN
        PERFORM note_listings(which);
    END IF;
    RETURN EXISTS (SELECT 1 FROM run_listing AS y
                    WHERE y.run_id = which AND y.ended_at IS NULL AND y.failures < 3
                      AND y.moved_at >= clock_timestamp() - interval '5 minutes')
           -- Nobody has said yet what can be listed.
        OR NOT EXISTS (SELECT 1 FROM worker AS w WHERE w.expires_at > clock_timestamp());
END
$$;

-- Takes a list up, for a while: whoever dies meanwhile has it taken by others, who go on behind the last window that was listed
-- to its end. `reach`: how far back it goes.
CREATE FUNCTION take_listing(of_list text, reach interval, lasting interval)
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
CREATE FUNCTION hold_listing(which bigint, of_list text, held integer) RETURNS boolean
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
CREATE FUNCTION keep_listing(
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
CREATE FUNCTION move_listing(which bigint, of_list text, held integer, lasting interval, upto timestamptz) RETURNS boolean
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
CREATE FUNCTION put_off_listing(which bigint, of_list text, held integer, pause interval, code text, failed integer) RETURNS void
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

REVOKE ALL ON FUNCTION note_listings, plan_listings, take_listing, hold_listing, keep_listing, move_listing, put_off_listing
    FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT SELECT ON run_listing TO %I',
    'GRANT EXECUTE ON FUNCTION plan_listings, take_listing, keep_listing, move_listing, put_off_listing TO %I']);
SELECT grant_to(r.name, ARRAY['GRANT SELECT ON run_listing TO %I', 'GRANT SELECT (is_listed) ON inbox TO %I'])
  FROM unnest(ARRAY['entitlement_sync_support', 'entitlement_sync_auditor']) AS r(name);
