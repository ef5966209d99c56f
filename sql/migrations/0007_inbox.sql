-- Stores' events: each is kept once, and its users are looked at again. An event decides nothing.

ALTER TABLE inbox
    ADD COLUMN kind        text,
    ADD COLUMN occurred_at timestamptz,
    ADD COLUMN due         timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN attempt     smallint    NOT NULL DEFAULT 0,
    ADD COLUMN promises    boolean     NOT NULL DEFAULT false,
    ADD COLUMN about       jsonb,
    ADD COLUMN user_keys   bigint[];
ALTER TABLE inbox SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
COMMENT ON COLUMN inbox.state IS 'received; waiting: its user is not known yet; done; ignored: it is about nobody; parked';
COMMENT ON COLUMN inbox.promises IS 'it speaks of access that begins or goes on';
COMMENT ON COLUMN inbox.about IS 'whom it may be about, until they are known: users, purchases, blocked';
CREATE INDEX inbox_due ON inbox (due) WHERE state IN ('received', 'waiting');
CREATE INDEX inbox_users ON inbox USING gin (user_keys) WHERE user_keys IS NOT NULL;
CREATE INDEX inbox_about ON inbox (received_at) WHERE about IS NOT NULL;
CREATE INDEX inbox_received ON inbox (source, received_at);

-- The words of an event, for a while: what support reads, and nothing decides by.
CREATE TABLE inbox_body (
    id          bigint      PRIMARY KEY,
    received_at timestamptz NOT NULL DEFAULT now(),
    body        bytea       NOT NULL
);
CREATE INDEX inbox_body_received ON inbox_body USING brin (received_at);

ALTER TABLE user_sync ADD COLUMN promised_at timestamptz;
COMMENT ON COLUMN user_sync.promised_at IS 'the newest event that spoke of access: what is read within minutes may not show it yet';

-- Keeps events; those that were kept before are left as they are. `names`: the ids that may be users', a line each;
-- `abouts`: what else is known of whom they are about, as JSON. Returns how many are new.
CREATE FUNCTION accept_events(
    source      text,
    event_ids   text[],
    kinds       text[],
    occurred    timestamptz[],
    promising   boolean[],
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
        -- In one order, or two that keep the same events wait for each other.
        SELECT DISTINCT ON (e.event_id) e.*
          FROM unnest(event_ids, kinds, occurred, promising, names, abouts, bodies)
               AS e(event_id, kind, occurred_at, promises, names, about, body)
         ORDER BY e.event_id
    ), kept AS (
        INSERT INTO inbox (source, event_id, kind, occurred_at, promises, about, state)
        SELECT source, s.event_id, s.kind, s.occurred_at, s.promises,
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
         -- What is about nobody's access is nobody's business.
         WHERE s.names IS NOT NULL OR s.about IS NOT NULL
    )
    SELECT count(*) INTO added FROM kept;
    RETURN added;
END
$$;

-- Queues a reconcile for each user, or joins the one that is queued, as `enqueue` does for one: `fresh` holds an id for each.
CREATE FUNCTION enqueue_reconciles(keys bigint[], job_lane smallint, fresh uuid[], says boolean DEFAULT false)
RETURNS TABLE (user_key bigint, answered_by uuid)
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO queue AS q (user_key, due, lane, reconcile_id, reconcile_due, reconcile_lane, said)
    -- In one order, or two that queue the same users wait for each other.
    SELECT w.key, at, job_lane, w.id, at, job_lane, says FROM unnest(keys, fresh) AS w(key, id) ORDER BY w.key
    ON CONFLICT (user_key) DO UPDATE SET
        reconcile_id   = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1 THEN q.reconcile_id
                              ELSE coalesce(q.reconcile_id, excluded.reconcile_id) END,
        reconcile_due  = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1 THEN q.reconcile_due
                              ELSE least(q.reconcile_due, at) END,
        reconcile_lane = least(q.reconcile_lane, job_lane),
        reconcile_next = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1
                              THEN coalesce(q.reconcile_next, excluded.reconcile_id) ELSE q.reconcile_next END,
        due            = CASE WHEN q.owner IS NOT NULL THEN q.due ELSE least(q.due, at) END,
        said           = q.said OR says,
        lane           = CASE WHEN q.owner IS NOT NULL OR q.lane = 9 THEN q.lane ELSE least(q.lane, job_lane) END
    RETURNING q.user_key, CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1 THEN q.reconcile_next
                               ELSE q.reconcile_id END;
END
$$;

-- Has users read again for what an event told.
CREATE FUNCTION reread(keys bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at     timestamptz := clock_timestamp();
    fresh  uuid[] := ARRAY(SELECT new_id() FROM unnest(keys));
    queued bigint[];
BEGIN
    queued := ARRAY(SELECT e.user_key FROM enqueue_reconciles(keys, 1::smallint, fresh) AS e
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

-- As before, for restores; reconciles are `enqueue_reconciles`' for one user.
CREATE OR REPLACE FUNCTION enqueue(
    for_user bigint,
    job_kind smallint,
    job_lane smallint,
    fresh    uuid,
    says     boolean DEFAULT false
) RETURNS uuid
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    answered_by uuid;
    at          timestamptz := clock_timestamp();
BEGIN
    IF job_kind = 0 THEN
        INSERT INTO queue AS q (user_key, due, lane, restore_id, restore_due, said)
        VALUES (for_user, at, 0, fresh, at, says)
        ON CONFLICT (user_key) DO UPDATE SET
            restore_id   = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0 THEN q.restore_id ELSE coalesce(q.restore_id, fresh) END,
            restore_due  = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0 THEN q.restore_due ELSE least(q.restore_due, at) END,
            restore_next = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0 THEN coalesce(q.restore_next, fresh) ELSE q.restore_next END,
            said         = q.said OR says,
            lane         = CASE WHEN q.owner IS NOT NULL OR q.lane = 9 THEN q.lane ELSE 0 END,
            due          = CASE WHEN q.owner IS NOT NULL THEN q.due ELSE least(q.due, at) END
        RETURNING CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0 THEN q.restore_next ELSE q.restore_id END INTO answered_by;
    ELSE
        SELECT e.answered_by INTO answered_by FROM enqueue_reconciles(ARRAY[for_user], job_lane, ARRAY[fresh], says) AS e;
    END IF;
    RETURN answered_by;
END
$$;

-- Looks into events that are due: whoever is known by them is read again soon, one job a user. `looked`: events that were
-- looked into; `queued`: users. Rows that another session holds for longer than a moment are left for the next time.
CREATE FUNCTION drain_inbox(most integer DEFAULT 500)
RETURNS TABLE (looked bigint, queued bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = entitlement_sync, pg_temp SET lock_timeout = '50ms' SET enable_seqscan = off SET jit = off AS $$
DECLARE
    picked   bigint[];
    names    text[];
    one_name text;
    events   bigint[];
    keys     bigint[];
    todo     bigint[];
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
    BEGIN
        PERFORM reread(todo);
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
                    PERFORM reread(ARRAY[one_key]);
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
           attempt = CASE WHEN n.is_held THEN i.attempt ELSE i.attempt + 1 END,
           due = clock_timestamp() + CASE WHEN n.is_held THEN interval '1 second' ELSE
                 (ARRAY['10 seconds', '1 minute', '5 minutes', '30 minutes', '2 hours']::interval[])
                     [least(i.attempt + 1, 5)] END
      FROM (SELECT x.id, w.user_keys, coalesce(w.user_keys && held, false) AS is_held,
                   CASE WHEN w.user_keys && held THEN 'received'
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

-- Forgets events' words after `bodies_days`, and events after `events_days`: one that is sent again so much later is looked
-- into again, which harms nobody. A bounded number at a time; whether there is more.
CREATE FUNCTION forget_events(bodies_days integer, events_days integer, most integer DEFAULT 10000) RETURNS boolean
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
    -- Whom a parked event was about is forgotten with its words.
    UPDATE inbox AS i SET about = NULL
     WHERE i.id IN (SELECT x.id FROM inbox AS x
                     WHERE x.about IS NOT NULL AND x.state = 'parked'
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

REVOKE ALL ON FUNCTION accept_events, enqueue_reconciles, reread, drain_inbox, forget_events FROM PUBLIC;
SELECT grant_to('entitlement_sync_api', ARRAY['GRANT EXECUTE ON FUNCTION accept_events TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT EXECUTE ON FUNCTION accept_events, enqueue_reconciles, drain_inbox, forget_events TO %I',
    'GRANT SELECT, INSERT, UPDATE, DELETE ON inbox, inbox_body TO %I']);
-- Events' words hold tokens and signed transactions, which can be shown by anybody who has them: people see that there was
-- an event, and of whom.
SELECT grant_to(r.name, ARRAY[
           'REVOKE SELECT ON inbox FROM %I',
           'GRANT SELECT (id, source, event_id, received_at, state, kind, occurred_at, due, attempt, promises, user_keys)
               ON inbox TO %I'])
  FROM unnest(ARRAY['entitlement_sync_support', 'entitlement_sync_auditor']) AS r(name);
