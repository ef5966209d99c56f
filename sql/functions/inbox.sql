-- Store events: how they are kept, how their users are found and read again, and how events are forgotten.

-- Keeps events and returns how many are new; an event that was kept before stays as it is. `names`: per event the ids that may be users'
-- ids, one per line. `abouts`: per event, as JSON, what else leads to its users, such as purchases. Both null: the event is ignored.
CREATE OR REPLACE FUNCTION accept_events(
    source      text,
    event_ids   text[],
    kinds       text[],
    occurred    timestamptz[],
    access_events   boolean[],
    names       text[],
    abouts      text[],
    bodies      bytea[]
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    added bigint;
BEGIN
    WITH sent AS MATERIALIZED (
        -- Sorted, because two callers that insert the same events in different orders could deadlock.
        SELECT DISTINCT ON (e.event_id) e.*
          FROM unnest(event_ids, kinds, occurred, access_events, names, abouts, bodies)
               AS e(event_id, kind, occurred_at, is_access_event, names, about, body)
         ORDER BY e.event_id
    ), kept AS (
        INSERT INTO inbox (source, event_id, kind, occurred_at, is_access_event, about, state)
        SELECT source, s.event_id, s.kind, s.occurred_at, s.is_access_event,
               CASE WHEN s.names IS NOT NULL OR s.about IS NOT NULL
                    THEN coalesce(s.about::jsonb, '{"purchases": []}')
                         || jsonb_build_object('users', to_jsonb(string_to_array(coalesce(s.names, ''), E'\n'))) END,
               CASE WHEN s.names IS NULL AND s.about IS NULL THEN 'ignored' ELSE 'received' END
          FROM sent AS s
        ON CONFLICT ON CONSTRAINT inbox_source_event_id_key DO NOTHING
        RETURNING id, event_id
    ), bodied AS (
        INSERT INTO inbox_body (id, body)
        SELECT k.id, s.body FROM kept AS k JOIN sent AS s ON s.event_id = k.event_id
         -- The body of an ignored event is not kept.
         WHERE s.names IS NOT NULL OR s.about IS NOT NULL
    )
    SELECT count(*) INTO added FROM kept;
    PERFORM stir();
    RETURN added;
END
$$;

-- Examines up to `most` events that are due. It queues one reconcile for each user that an event names, by an id or by a purchase of
-- our records. Returns how many events it examined, and how many users it queued. A row that another transaction has locked for longer
-- than a moment is left for the next call. An event that leads to no user waits, and a worker asks its store.
CREATE OR REPLACE FUNCTION drain_inbox(most integer DEFAULT 500)
RETURNS TABLE (examined bigint, queued bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = entitlement_sync, pg_temp SET lock_timeout = '50ms' SET enable_seqscan = off SET enable_mergejoin = off SET jit = off
    AS $$
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
    picked := lock_due_events(most);
    examined := cardinality(picked);
    queued := 0;
    IF examined = 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;

    -- Users of the host that were not known get their row.
    names := ARRAY(SELECT h.id FROM entitlement_sync_host.read_users(user_ids_in(picked)) AS h ORDER BY h.id);
    FOR one_name IN
        SELECT n.name FROM unnest(names) AS n(name)
         WHERE NOT EXISTS (SELECT 1 FROM user_sync AS u WHERE u.user_id = n.name)
    LOOP
        BEGIN
            INSERT INTO user_sync (user_id) VALUES (one_name) ON CONFLICT (user_id) DO NOTHING;
        EXCEPTION
            -- Another transaction is making the user known. After four such waits the rest is left for the next call.
            WHEN lock_not_available THEN tries := tries + 1;
        END;
        EXIT WHEN tries >= 4;
    END LOOP;

    -- Which user each event concerns: each place of the two arrays holds an event and a user.
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

    -- Users are locked before their queue rows, as when verdicts are written. A user that another transaction has locked is skipped.
    WITH promised AS MATERIALIZED (
        -- The store's API may lag behind its webhook, so the time of receipt counts; for an old event, the time of the event.
        SELECT k.key, max(CASE WHEN i.occurred_at < i.received_at - interval '10 minutes' THEN i.occurred_at
                               ELSE i.received_at END) AS at
          FROM unnest(events, keys) AS k(event, key) JOIN inbox AS i ON i.id = k.event
         WHERE i.is_access_event GROUP BY 1
    ), locked AS MATERIALIZED (
        SELECT u.user_key FROM user_sync AS u JOIN promised AS p ON p.key = u.user_key
         ORDER BY u.user_key FOR NO KEY UPDATE OF u SKIP LOCKED
    ), noted AS (
        UPDATE user_sync AS u SET access_event_at = greatest(u.access_event_at, p.at)
          FROM promised AS p JOIN locked AS l ON l.user_key = p.key
         WHERE u.user_key = p.key
    )
    SELECT coalesce(array_agg(p.key), '{}') INTO held
      FROM promised AS p WHERE NOT EXISTS (SELECT 1 FROM locked AS l WHERE l.user_key = p.key);

    todo := ARRAY(SELECT DISTINCT k.key FROM unnest(keys) AS k(key) WHERE k.key <> ALL (held) ORDER BY 1);
    -- A user that only a backfill names goes into the background lane, where a run can hold the demotion.
    slow := ARRAY(SELECT t.key FROM unnest(todo) AS t(key)
                   WHERE NOT EXISTS (SELECT 1 FROM unnest(events, keys) AS k(event, key) JOIN inbox AS i ON i.id = k.event
                                      WHERE k.key = t.key AND NOT i.is_backfilled));
    -- If a run will still read the user, the event waits: it is examined again in case the run ends before it has read the user.
    later := ARRAY(SELECT t.key FROM unnest(slow) AS t(key)
                    WHERE EXISTS (SELECT 1 FROM run AS r JOIN user_sync AS u ON u.user_key = t.key
                                   WHERE r.state = 'reading' AND r.scope = 'since' AND NOT r.is_dry AND NOT r.is_paged
                                     AND u.user_key > coalesce(r.cursor_key, 0)
                                     AND coalesce(u.read_at, '-infinity') < r.since));
    -- A user that only a backfill names is not queued if a read began after the event was kept.
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
        -- One by one, to find out which rows are locked. After four of them the rest is left for the next call: a transaction of the
        -- host may have locked very many, and to wait for each would take minutes.
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
        PERFORM set_alarm('blocked_customer_id', 'RevenueCat has a customer with an id such as null or guest: an app sends it in place'
                                                 ' of the user''s own, and many people become one customer.');
    END IF;

    UPDATE inbox AS i
       SET user_keys = n.user_keys,
           state = n.state,
           -- Purchases that our records lack are kept, because the queued read asks their store for them.
           about = CASE WHEN n.state <> 'done' THEN i.about
                        WHEN i.about -> 'purchases' = '[]' THEN NULL
                        WHEN is_first_mention(i.about) THEN jsonb_build_object('purchases', i.about -> 'purchases') END,
           ask_due = CASE WHEN n.state = 'waiting' AND NOT n.is_left AND may_ask(i.about)
                               -- A voided purchase gives no access, so its user does not have to be found.
                               AND NOT (i.is_backfilled AND i.kind = 'voidedPurchase') THEN clock_timestamp() END,
           attempt = CASE WHEN n.is_held OR n.is_left THEN i.attempt ELSE i.attempt + 1 END,
           due = clock_timestamp() + CASE WHEN n.is_held THEN interval '1 second' WHEN n.is_left THEN interval '1 minute'
                                          WHEN n.state = 'done' THEN interval '0' ELSE
                 (ARRAY['10 seconds', '1 minute', '5 minutes', '30 minutes', '2 hours', '6 hours', '1 day', '3 days',
                        '7 days']::interval[])[least(i.attempt + 1, inbox_tries(i.about))] END
      FROM (SELECT x.id, w.user_keys, coalesce(w.user_keys && held, false) AS is_held,
                   coalesce(w.user_keys && later, false) AS is_left,
                   CASE WHEN w.user_keys && held THEN 'received'
                        WHEN w.user_keys && later THEN 'waiting'
                        WHEN w.user_keys IS NOT NULL THEN 'done'
                        WHEN x.attempt >= inbox_tries(x.about)
                             OR x.about -> 'users' = '[]' AND NOT may_ask(x.about) THEN 'parked'
                        ELSE 'waiting' END AS state
              FROM inbox AS x
              LEFT JOIN (SELECT k.event, array_agg(k.key ORDER BY k.key) AS user_keys
                           FROM unnest(events, keys) AS k(event, key) GROUP BY 1) AS w ON w.event = x.id
             WHERE x.id = ANY (picked)) AS n
     WHERE i.id = n.id;
    RETURN NEXT;
END
$$;

-- How many times an event that leads to no user is examined. An anonymous customer may sign in days later.
CREATE OR REPLACE FUNCTION inbox_tries(about jsonb) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN about ? 'anonymous' THEN 9 ELSE 5 END
$$;

-- Whether an event names a purchase for which its user's next read has to ask: our records have no owner for it, or it ended more than
-- 61 days ago, so that a read does not include it otherwise.
CREATE OR REPLACE FUNCTION is_first_mention(about jsonb) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (
        SELECT 1 FROM jsonb_to_recordset(about -> 'purchases') AS n(store text, environment text, value text)
         WHERE NOT EXISTS (
                   SELECT 1 FROM purchase_identifier AS x
                     JOIN purchase AS f ON f.id = x.purchase_id
                     JOIN purchase AS p ON p.id = coalesce(f.merged_into, f.id)
                    WHERE x.store = n.store AND x.value = n.value AND x.environment = coalesce(n.environment, x.environment)
                      AND p.owner_key IS NOT NULL
                      AND coalesce(p.period_ends_at, 'infinity') > now() - interval '61 days'))
$$;

-- Whether a store can be asked which user an event concerns.
CREATE OR REPLACE FUNCTION may_ask(about jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(about -> 'purchases' <> '[]' OR about ? 'anonymous', false)
$$;

-- Queues a reconcile of each user in a lane.
CREATE OR REPLACE FUNCTION reread(keys bigint[], job_lane smallint DEFAULT 1) RETURNS void
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at     timestamptz := clock_timestamp();
    fresh  uuid[] := ARRAY(SELECT new_id() FROM unnest(keys));
    queued bigint[];
BEGIN
    queued := ARRAY(SELECT e.user_key FROM enqueue_reconciles(keys, job_lane, fresh) AS e
                     WHERE e.answered_by = ANY (fresh));
    -- Events about one purchase come in bursts: a user that was read less than five seconds ago is read again five seconds later.
    UPDATE queue AS q
       SET reconcile_due = u.read_at + interval '5 seconds',
           due = CASE WHEN q.restore_id IS NULL THEN u.read_at + interval '5 seconds' ELSE q.due END
      FROM user_sync AS u
     WHERE u.user_key = ANY (queued) AND u.read_at > at - interval '5 seconds'
       AND q.user_key = u.user_key AND q.owner IS NULL AND q.reconcile_id = ANY (fresh);
END
$$;

-- Leases up to `most` events whose stores have to be asked for the user. An event is due again after two minutes, unless an answer
-- is kept before.
CREATE OR REPLACE FUNCTION take_asks(most integer)
RETURNS TABLE (id bigint, attempt integer, is_backfilled boolean, about text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
    WITH due AS MATERIALIZED (
        SELECT i.id FROM inbox AS i
         WHERE i.ask_due <= clock_timestamp() AND i.state = 'waiting'
         ORDER BY i.ask_due LIMIT most FOR UPDATE SKIP LOCKED
    )
    UPDATE inbox AS i SET ask_due = clock_timestamp() + interval '2 minutes'
      FROM due AS d WHERE i.id = d.id
    RETURNING i.id, i.attempt::integer, i.is_backfilled, i.about::text
$$;

-- Keeps the stores' answers about events: ids that may be users' ids, and further identifiers of the purchases. If an answer has anything
-- new, the event is examined at once. `failed`: a store could not be asked. That does not count as a try in the event's first three days,
-- which is how long Google keeps an unacknowledged sale; the store is asked again at growing intervals.
CREATE OR REPLACE FUNCTION keep_answers(ids bigint[], attempts integer[], found_users text[], found_purchases text[], failed boolean[])
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    WITH answer AS MATERIALIZED (
        SELECT i.id, a.attempt, a.failed,
               jsonb_build_object(
                   'users', (SELECT coalesce(jsonb_agg(DISTINCT n.value), '[]')
                               FROM jsonb_array_elements(i.about -> 'users' || a.users::jsonb) AS n(value)),
                   'purchases', (SELECT coalesce(jsonb_agg(DISTINCT n.value), '[]')
                                   FROM jsonb_array_elements(i.about -> 'purchases' || a.purchases::jsonb) AS n(value)))
                   AS found
          FROM unnest(ids, attempts, found_users, found_purchases, failed)
                   AS a(id, attempt, users, purchases, failed)
          JOIN inbox AS i ON i.id = a.id
         WHERE i.state = 'waiting' ORDER BY i.id FOR UPDATE OF i
    )
    UPDATE inbox AS i
       SET ask_due = CASE WHEN i.attempt = a.attempt THEN NULL ELSE i.ask_due END,
           about   = i.about || a.found,
           attempt = CASE WHEN a.failed AND i.attempt = a.attempt AND i.received_at > now() - interval '3 days'
                          THEN greatest(i.attempt - 1, 0) ELSE i.attempt END,
           due     = CASE WHEN NOT (i.about -> 'users' @> (a.found -> 'users')
                                    AND i.about -> 'purchases' @> (a.found -> 'purchases'))
                          THEN clock_timestamp()
                          WHEN a.failed AND i.attempt = a.attempt AND i.received_at > now() - interval '3 days'
                          THEN clock_timestamp() + least(greatest((clock_timestamp() - i.received_at) / 2, interval '2 seconds'),
                                                         interval '30 minutes')
                          ELSE i.due END
      FROM answer AS a WHERE i.id = a.id
$$;

-- Locks up to `most` due events, the longest overdue first; skips events that another transaction has locked.
CREATE OR REPLACE FUNCTION lock_due_events(most integer) RETURNS bigint[]
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT ARRAY(SELECT i.id FROM inbox AS i
                  WHERE i.state IN ('received', 'waiting') AND i.due <= clock_timestamp()
                  ORDER BY i.due LIMIT most FOR UPDATE SKIP LOCKED)
$$;

-- The ids of users in events, as the store or RevenueCat spells them.
CREATE OR REPLACE FUNCTION user_ids_in(events bigint[]) RETURNS text[]
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT ARRAY(SELECT DISTINCT n.name FROM inbox AS i
                  CROSS JOIN LATERAL jsonb_array_elements_text(i.about -> 'users') AS n(name)
                  WHERE i.id = ANY (events))
$$;

-- Rewrites the ids of users in due events as the host spells them. It writes nothing if the host compares ids byte by byte.
CREATE OR REPLACE FUNCTION spell_inbox(most integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    picked bigint[];
    names  text[];
    found  text[];
    spelt  text[];
BEGIN
    picked := lock_due_events(most);
    IF picked = '{}' THEN
        RETURN;
    END IF;
    names := user_ids_in(picked);
    found := ARRAY(SELECT h.id FROM entitlement_sync_host.read_users(names) AS h);
    IF found <@ names THEN
        RETURN;
    END IF;
    -- One call per id, because only so the result shows which id the host spells in another way.
    names := ARRAY(SELECT n.name FROM unnest(names) AS n(name) WHERE n.name <> ALL (found));
    spelt := ARRAY(SELECT coalesce(host_id(n.name), n.name) FROM unnest(names) WITH ORDINALITY AS n(name, place)
                    ORDER BY n.place);
    UPDATE inbox AS i
       SET about = jsonb_set(i.about, '{users}', (
               SELECT jsonb_agg(coalesce(s.spelt, n.name) ORDER BY n.place)
                 FROM jsonb_array_elements_text(i.about -> 'users') WITH ORDINALITY AS n(name, place)
                 LEFT JOIN unnest(names, spelt) AS s(name, spelt) ON s.name = n.name))
     WHERE i.id = ANY (picked)
       AND EXISTS (SELECT 1 FROM unnest(names, spelt) AS s(name, spelt)
                    WHERE s.spelt <> s.name AND i.about -> 'users' ? s.name);
END
$$;

-- Deletes bodies, and what ended events name, after `bodies_days`, and events after `events_days`. An event that comes again later is
-- examined again, which does no harm. A call deletes at most `most` rows of each kind, and returns whether more may be left.
CREATE OR REPLACE FUNCTION forget_events(bodies_days integer, events_days integer, most integer DEFAULT 10000) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    bodies bigint;
    events bigint;
    gone   bigint := 0;
    sender text;
BEGIN
    DELETE FROM inbox_body AS b
     WHERE b.id IN (SELECT x.id FROM inbox_body AS x
                     WHERE x.received_at < now() - bodies_days * interval '1 day' ORDER BY x.id LIMIT most);
    GET DIAGNOSTICS bodies = ROW_COUNT;
    UPDATE inbox AS i SET about = NULL
     WHERE i.id IN (SELECT x.id FROM inbox AS x
                     WHERE x.about IS NOT NULL AND x.state IN ('parked', 'done')
                       AND x.received_at < now() - bodies_days * interval '1 day' ORDER BY x.received_at LIMIT most);
    GET DIAGNOSTICS gone = ROW_COUNT;
    FOREACH sender IN ARRAY ARRAY['revenuecat', 'app_store', 'google_play'] LOOP
        DELETE FROM inbox AS i
         WHERE i.id IN (SELECT x.id FROM inbox AS x
                         WHERE x.source = sender AND x.received_at < now() - events_days * interval '1 day'
                         ORDER BY x.received_at LIMIT most);
        GET DIAGNOSTICS events = ROW_COUNT;
        gone := greatest(gone, events);
    END LOOP;
    RETURN greatest(bodies, gone) >= most;
END
$$;
