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

-- Looks into events that are due: whoever is known by them is read again soon, one job a user. `looked`: events that were
-- looked into; `queued`: users. Rows that another session holds for longer than a moment are left for the next time.
CREATE FUNCTION drain_inbox(most integer DEFAULT 500)
RETURNS TABLE (looked bigint, queued bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = entitlement_sync, pg_temp SET lock_timeout = '50ms' SET enable_seqscan = off AS $$
DECLARE
    picked   bigint[];
    names    text[];
    one_name text;
    one_key  bigint;
    fresh    uuid;
    held     bigint[] := '{}';
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

    -- Who each event is about.
    UPDATE inbox AS i
       SET user_keys = nullif(ARRAY(
               SELECT u.user_key FROM jsonb_array_elements_text(i.about -> 'users') AS n(name)
                 JOIN user_sync AS u ON u.user_id = n.name
                WHERE n.name = ANY (names)
                UNION
               SELECT p.owner_key
                 FROM jsonb_to_recordset(i.about -> 'purchases') AS n(store text, environment text, value text)
                 JOIN purchase_identifier AS x ON x.value = n.value AND x.store = n.store
                  AND x.environment = coalesce(n.environment, x.environment)
                 JOIN purchase AS f ON f.id = x.purchase_id
                 JOIN purchase AS p ON p.id = coalesce(f.merged_into, f.id)
                WHERE p.owner_key IS NOT NULL
                ORDER BY 1), '{}')
     WHERE i.id = ANY (picked);

    -- Before the queue's rows, as whoever writes verdicts does, and without waiting for them.
    WITH promised AS MATERIALIZED (
        -- From when it came, for the sender's own reads may lag behind it; an old one promises nothing new.
        SELECT k.key, max(CASE WHEN i.occurred_at < i.received_at - interval '10 minutes' THEN i.occurred_at
                               ELSE i.received_at END) AS at
          FROM inbox AS i CROSS JOIN LATERAL unnest(i.user_keys) AS k(key)
         WHERE i.id = ANY (picked) AND i.promises GROUP BY 1
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

    FOR one_key IN
        SELECT DISTINCT k.key FROM inbox AS i CROSS JOIN LATERAL unnest(i.user_keys) AS k(key)
         WHERE i.id = ANY (picked) AND k.key <> ALL (held) ORDER BY 1
    LOOP
        -- A host that speaks of many users in one transaction holds many: to wait for each would take minutes.
        IF tries >= 4 THEN
            held := held || one_key;
            CONTINUE;
        END IF;
        BEGIN
            fresh := new_id();
            IF enqueue(one_key, 1::smallint, 1::smallint, fresh) = fresh THEN
                -- Events about one purchase come in bursts: whoever was read a moment ago is read again when it is over.
                UPDATE queue AS q
                   SET reconcile_due = u.read_at + interval '2 seconds',
                       due = CASE WHEN q.restore_id IS NULL THEN u.read_at + interval '2 seconds' ELSE q.due END
                  FROM user_sync AS u
                 WHERE q.user_key = one_key AND q.owner IS NULL AND q.reconcile_id = fresh
                   AND u.user_key = one_key AND u.read_at > clock_timestamp() - interval '2 seconds';
            END IF;
            queued := queued + 1;
        EXCEPTION
            WHEN lock_not_available THEN
                held := held || one_key;
                tries := tries + 1;
        END;
    END LOOP;

    IF EXISTS (SELECT 1 FROM inbox AS i WHERE i.id = ANY (picked) AND i.attempt = 0 AND i.about ? 'blocked'
                  AND NOT coalesce(i.user_keys && held, false)) THEN
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
       SET state = n.state,
           about = CASE WHEN n.state = 'done' THEN NULL ELSE i.about END,
           attempt = CASE WHEN n.is_held THEN i.attempt ELSE i.attempt + 1 END,
           due = clock_timestamp() + CASE WHEN n.is_held THEN interval '1 second' ELSE
                 (ARRAY['10 seconds', '1 minute', '5 minutes', '30 minutes', '2 hours']::interval[])
                     [least(i.attempt + 1, 5)] END
      FROM (SELECT x.id, coalesce(x.user_keys && held, false) AS is_held,
                   CASE WHEN x.user_keys && held THEN 'received'
                        WHEN x.user_keys IS NOT NULL THEN 'done'
                        WHEN x.attempt >= 5 OR x.about -> 'users' = '[]' AND x.about -> 'purchases' = '[]' THEN 'parked'
                        ELSE 'waiting' END AS state
              FROM inbox AS x WHERE x.id = ANY (picked)) AS n
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

REVOKE ALL ON FUNCTION accept_events, drain_inbox, forget_events FROM PUBLIC;
SELECT grant_to('entitlement_sync_api', ARRAY['GRANT EXECUTE ON FUNCTION accept_events TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT EXECUTE ON FUNCTION accept_events, drain_inbox, forget_events TO %I',
    'GRANT SELECT, INSERT, UPDATE, DELETE ON inbox, inbox_body TO %I']);
-- Events' words hold tokens and signed transactions, which can be shown by anybody who has them: people see that there was
-- an event, and of whom.
SELECT grant_to(r.name, ARRAY[
           'REVOKE SELECT ON inbox FROM %I',
           'GRANT SELECT (id, source, event_id, received_at, state, kind, occurred_at, due, attempt, promises, user_keys)
               ON inbox TO %I'])
  FROM unnest(ARRAY['entitlement_sync_support', 'entitlement_sync_auditor']) AS r(name);
