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
     WHERE y.run_id = which AND y.ended_at IS NULL AND y.error IS NULL AND greatest(y.moved_at, y.due) < clock_timestamp() - interval '5 minutes';
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

-- ---- What lists tell comes into the inbox, and waits as sweeps do --------------------------------------------------------

-- Has users read again for what an event told, in a lane.
CREATE FUNCTION reread(keys bigint[], job_lane smallint) RETURNS void
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at     timestamptz := clock_timestamp();
    fresh  uuid[] := ARRAY(SELECT new_id() FROM unnest(keys));
    queued bigint[];
BEGIN
    queued := ARRAY(SELECT e.user_key FROM enqueue_reconciles(keys, job_lane, fresh) AS e
                     WHERE e.answered_by = ANY (fresh));
    -- Events about one purchase come in bursts: whoever was read a moment ago is read again when it is over.
    UPDATE queue AS q
       SET reconcile_due = u.read_at + interval '5 seconds',
           due = CASE WHEN q.restore_id IS NULL THEN u.read_at + interval '5 seconds' ELSE q.due END
      FROM user_sync AS u
     WHERE u.user_key = ANY (queued) AND u.read_at > at - interval '5 seconds'
       AND q.user_key = u.user_key AND q.owner IS NULL AND q.reconcile_id = ANY (fresh);
END
$$;

CREATE OR REPLACE FUNCTION reread(keys bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM reread(keys, 1::smallint);
END
$$;

-- Looks into events that are due: whoever is known by them is read again soon, one job a user. `looked`: events that were
-- looked into; `queued`: users. Rows that another session holds for longer than a moment are left for the next time.
CREATE OR REPLACE FUNCTION drain_inbox(most integer DEFAULT 500)
RETURNS TABLE (looked bigint, queued bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = entitlement_sync, pg_temp SET lock_timeout = '50ms' SET enable_seqscan = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    picked   bigint[];
    names    text[];
    one_name text;
    events   bigint[];
    keys     bigint[];
    todo     bigint[];
    slow     bigint[];
    later    bigint[];
    one_key  bigint;
    held     bigint[];
    tries    integer := 0;
BEGIN
    picked := ARRAY(SELECT i.id FROM inbox AS i
                     WHERE i.state IN ('received', 'waiting') AND i.due <= clock_timestamp()
                     ORDER BY i.due LIMIT most FOR UPDATE SKIP LOCKED);
    looked := cardinality(picked);
    queued := 0;
    IF looked = 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;

    -- Users of the host who were never asked about get their row.
    names := ARRAY(SELECT DISTINCT n.name FROM inbox AS i
                    CROSS JOIN LATERAL jsonb_array_elements_text(i.about -> 'users') AS n(name)
                    WHERE i.id = ANY (picked));
    names := ARRAY(SELECT h.id FROM entitlement_sync_host.read_users(names) AS h ORDER BY h.id);
    FOR one_name IN
        SELECT n.name FROM unnest(names) AS n(name)
         WHERE NOT EXISTS (SELECT 1 FROM user_sync AS u WHERE u.user_id = n.name)
    LOOP
        BEGIN
            INSERT INTO user_sync (user_id) VALUES (one_name) ON CONFLICT (user_id) DO NOTHING;
        EXCEPTION
            -- Somebody's open transaction makes them known just now; such waits must not add up.
            WHEN lock_not_available THEN tries := tries + 1;
        END;
        EXIT WHEN tries >= 4;
    END LOOP;

    -- Who each event is about: an event and a user at each place of the two arrays.
    SELECT coalesce(array_agg(w.id), '{}'), coalesce(array_agg(w.key), '{}') INTO events, keys FROM (
        SELECT i.id, u.user_key AS key
          FROM inbox AS i
         CROSS JOIN LATERAL jsonb_array_elements_text(i.about -> 'users') AS n(name)
          JOIN user_sync AS u ON u.user_id = n.name
         WHERE i.id = ANY (picked) AND n.name = ANY (names)
         UNION
        SELECT i.id, p.owner_key
          FROM inbox AS i
         CROSS JOIN LATERAL jsonb_to_recordset(i.about -> 'purchases') AS n(store text, environment text, value text)
          JOIN purchase_identifier AS x ON x.value = n.value AND x.store = n.store
           AND x.environment = coalesce(n.environment, x.environment)
          JOIN purchase AS f ON f.id = x.purchase_id
          JOIN purchase AS p ON p.id = coalesce(f.merged_into, f.id)
         WHERE i.id = ANY (picked) AND p.owner_key IS NOT NULL
    ) AS w;

    -- Before the queue's rows, as whoever writes verdicts does, and without waiting for them.
    WITH promised AS MATERIALIZED (
        -- From when it came, for the sender's own reads may lag behind it; an old one promises nothing new.
        SELECT k.key, max(CASE WHEN i.occurred_at < i.received_at - interval '10 minutes' THEN i.occurred_at
                               ELSE i.received_at END) AS at
          FROM unnest(events, keys) AS k(event, key) JOIN inbox AS i ON i.id = k.event
         WHERE i.promises GROUP BY 1
    ), locked AS MATERIALIZED (
        SELECT u.user_key FROM user_sync AS u JOIN promised AS p ON p.key = u.user_key
         ORDER BY u.user_key FOR NO KEY UPDATE OF u SKIP LOCKED
    ), noted AS (
        UPDATE user_sync AS u SET promised_at = greatest(u.promised_at, p.at)
          FROM promised AS p JOIN locked AS l ON l.user_key = p.key
         WHERE u.user_key = p.key
    )
    SELECT coalesce(array_agg(p.key), '{}') INTO held
      FROM promised AS p WHERE NOT EXISTS (SELECT 1 FROM locked AS l WHERE l.user_key = p.key);

    todo := ARRAY(SELECT DISTINCT k.key FROM unnest(keys) AS k(key) WHERE k.key <> ALL (held) ORDER BY 1);
    -- Whom only lists speak of waits as a sweep does, and is held by a run as everybody in it is.
    slow := ARRAY(SELECT t.key FROM unnest(todo) AS t(key)
                   WHERE NOT EXISTS (SELECT 1 FROM unnest(events, keys) AS k(event, key) JOIN inbox AS i ON i.id = k.event
                                      WHERE k.key = t.key AND NOT i.is_listed));
    -- Whoever the run that had it listed is still to read is left to that run; what was listed waits, should the run end before.
    later := ARRAY(SELECT t.key FROM unnest(slow) AS t(key)
                    WHERE EXISTS (SELECT 1 FROM run AS r JOIN user_sync AS u ON u.user_key = t.key
                                   WHERE r.state = 'reading' AND r.scope = 'since' AND NOT r.is_dry AND NOT r.is_paged
                                     AND u.user_key > coalesce(r.cursor_key, 0)
                                     AND coalesce(u.read_at, '-infinity') < r.since));
    -- Whoever was read since has been looked at.
    todo := ARRAY(SELECT t.key FROM unnest(todo) AS t(key)
                   WHERE t.key <> ALL (later)
                     AND (t.key <> ALL (slow)
                          OR NOT EXISTS (SELECT 1 FROM user_sync AS u
                                          WHERE u.user_key = t.key
                                            AND u.read_at > (SELECT max(i.received_at)
                                                               FROM unnest(events, keys) AS k(event, key)
                                                               JOIN inbox AS i ON i.id = k.event WHERE k.key = t.key)))
                   ORDER BY 1);
    BEGIN
        PERFORM reread(ARRAY(SELECT t.key FROM unnest(todo) AS t(key) WHERE t.key <> ALL (slow)), 1::smallint);
        PERFORM reread(ARRAY(SELECT t.key FROM unnest(todo) AS t(key) WHERE t.key = ANY (slow)), 2::smallint);
    EXCEPTION
        -- One by one, to find out whose rows are held. A host that speaks of many users in one transaction holds many: to
        -- wait for each would take minutes.
        WHEN lock_not_available THEN
            FOREACH one_key IN ARRAY todo LOOP
                IF tries >= 4 THEN
                    held := held || one_key;
                    CONTINUE;
                END IF;
                BEGIN
                    PERFORM reread(ARRAY[one_key], CASE WHEN one_key = ANY (slow) THEN 2 ELSE 1 END::smallint);
                EXCEPTION
                    WHEN lock_not_available THEN
                        held := held || one_key;
                        tries := tries + 1;
                END;
            END LOOP;
    END;
    queued := (SELECT count(*) FROM unnest(todo) AS t(key) WHERE t.key <> ALL (held));

    IF EXISTS (SELECT 1 FROM inbox AS i WHERE i.id = ANY (picked) AND i.attempt = 0 AND i.about ? 'blocked'
                  AND NOT EXISTS (SELECT 1 FROM unnest(events, keys) AS k(event, key)
                                   WHERE k.event = i.id AND k.key = ANY (held))) THEN
        BEGIN
            INSERT INTO alarm AS a (name, detail)
            VALUES ('blocked_customer_id', 'RevenueCat has a customer with an id such as null or guest: an app sends it in '
                                           'place of the user''s own, and many people become one customer.')
            ON CONFLICT (name) DO UPDATE SET last_at = now(), count = a.count + 1;
        EXCEPTION
            -- Whoever mends it holds the row, and knows.
            WHEN lock_not_available THEN NULL;
        END;
    END IF;

    UPDATE inbox AS i
       SET user_keys = n.user_keys,
           state = n.state,
           about = CASE WHEN n.state = 'done' THEN NULL ELSE i.about END,
           attempt = CASE WHEN n.is_held OR n.is_left THEN i.attempt ELSE i.attempt + 1 END,
           due = clock_timestamp() + CASE WHEN n.is_held THEN interval '1 second' WHEN n.is_left THEN interval '1 minute' ELSE
                 (ARRAY['10 seconds', '1 minute', '5 minutes', '30 minutes', '2 hours']::interval[])
                     [least(i.attempt + 1, 5)] END
      FROM (SELECT x.id, w.user_keys, coalesce(w.user_keys && held, false) AS is_held,
                   coalesce(w.user_keys && later, false) AS is_left,
                   CASE WHEN w.user_keys && held THEN 'received'
                        WHEN w.user_keys && later THEN 'waiting'
                        WHEN w.user_keys IS NOT NULL THEN 'done'
                        WHEN x.attempt >= 5 OR x.about -> 'users' = '[]' AND x.about -> 'purchases' = '[]' THEN 'parked'
                        ELSE 'waiting' END AS state
              FROM inbox AS x
              LEFT JOIN (SELECT k.event, array_agg(k.key ORDER BY k.key) AS user_keys
                           FROM unnest(events, keys) AS k(event, key) GROUP BY 1) AS w ON w.event = x.id
             WHERE x.id = ANY (picked)) AS n
     WHERE i.id = n.id;
    RETURN NEXT;
END
$$;

REVOKE ALL ON FUNCTION reread(bigint[], smallint), note_listings, plan_listings, take_listing, hold_listing, keep_listing, move_listing, put_off_listing
    FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT SELECT ON run_listing TO %I',
    'GRANT EXECUTE ON FUNCTION plan_listings, take_listing, keep_listing, move_listing, put_off_listing TO %I']);
SELECT grant_to(r.name, ARRAY['GRANT SELECT ON run_listing TO %I', 'GRANT SELECT (is_listed) ON inbox TO %I'])
  FROM unnest(ARRAY['entitlement_sync_support', 'entitlement_sync_auditor']) AS r(name);

-- ---- A run names nobody once it has gone by -----------------------------------------------------------------------------

CREATE FUNCTION forget_cursors() RETURNS trigger LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF NEW.is_paged OR NEW.state NOT IN ('reading', 'applying') THEN
        NEW.cursor_id := NULL;
    END IF;
    IF NEW.total IS NOT NULL OR NEW.state NOT IN ('reading', 'applying') THEN
        NEW.count_cursor := NULL;
    END IF;
    RETURN NEW;
END
$$;
REVOKE ALL ON FUNCTION forget_cursors FROM PUBLIC;
CREATE TRIGGER forget_cursors BEFORE UPDATE ON run FOR EACH ROW EXECUTE FUNCTION forget_cursors();
UPDATE run SET state = state;

-- Where an open run stands is a user's id, which is not for everybody who may see how far it is.
SELECT grant_to(r.name, ARRAY[
           'REVOKE SELECT ON run FROM %I',
           (SELECT 'GRANT SELECT (' || string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) || ') ON run TO %I'
              FROM pg_catalog.pg_attribute AS a
             WHERE a.attrelid = 'run'::regclass AND a.attnum > 0 AND NOT a.attisdropped
               AND a.attname NOT IN ('cursor_id', 'count_cursor'))])
  FROM unnest(ARRAY['entitlement_sync_support', 'entitlement_sync_auditor']) AS r(name);
