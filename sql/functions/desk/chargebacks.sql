-- Chargebacks: payments that were taken back as fraud. Such purchases are moved to no other account.

-- Records the chargebacks of a backfill page: for the purchases that are known by its names, and for all names. Evidence of open tickets
-- about an entry with a new name is due at once.
CREATE OR REPLACE FUNCTION note_chargebacks(abouts text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
DECLARE
    n    record;
    news integer[];
    held bigint[];
BEGIN
    -- For each name: its entry's place in the page, and when the payment was taken back; null: the store gave no time (0).
    SELECT array_agg(l.place) AS places, array_agg(l.hash) AS hashes, array_agg(l.entry) AS entries, array_agg(l.at) AS ats,
           array_agg(l.store) AS stores, array_agg(l.environment) AS environments, array_agg(l.value) AS names
      INTO n
      FROM (SELECT a.place::integer AS place, e.about, x.name ->> 'store' AS store, x.name ->> 'environment' AS environment,
                   x.name ->> 'value' AS value, name_hash(x.name ->> 'store', x.name ->> 'value') AS hash,
                   first_value(name_hash(x.name ->> 'store', x.name ->> 'value')) OVER (PARTITION BY a.place ORDER BY x.number) AS entry,
                   to_timestamp(nullif((e.about ->> 'charged_back')::double precision, 0) / 1000) AS at
              FROM unnest(abouts) WITH ORDINALITY AS a(about, place)
             CROSS JOIN LATERAL (SELECT a.about::jsonb AS about) AS e
             CROSS JOIN LATERAL jsonb_array_elements(e.about -> 'purchases') WITH ORDINALITY AS x(name, number)
             WHERE e.about ? 'charged_back') AS l
     WHERE l.hash IS NOT NULL;
    IF n.places IS NULL THEN
        RETURN;
    END IF;
    -- Entries with a name that is not on record.
    news := ARRAY(SELECT DISTINCT u.place FROM unnest(n.places, n.hashes) AS u(place, hash)
                   WHERE NOT EXISTS (SELECT 1 FROM chargeback_name AS k WHERE k.hash = u.hash));
    INSERT INTO chargeback_name AS k (hash, entry, at)
    SELECT t.hash, t.entry, coalesce(t.at, now())
      FROM (SELECT u.hash, (array_agg(u.entry))[1] AS entry, max(u.at) AS at
              FROM unnest(n.hashes, n.entries, n.ats) AS u(hash, entry, at) GROUP BY u.hash) AS t
     -- An entry without a time does not make a recorded chargeback later.
     WHERE t.at IS NOT NULL OR NOT EXISTS (SELECT 1 FROM chargeback_name AS y WHERE y.hash = t.hash)
     ORDER BY t.hash
        ON CONFLICT (hash) DO UPDATE SET at = excluded.at, lifted_at = NULL WHERE k.at < excluded.at;
    INSERT INTO chargeback AS c (purchase_id, at, entries)
    SELECT t.id, coalesce(t.at, now()), t.entries
      FROM (SELECT coalesce(surviving_purchase(x.purchase_id), x.purchase_id) AS id, max(u.at) AS at, array_agg(DISTINCT u.entry) AS entries
              FROM unnest(n.stores, n.environments, n.names, n.ats, n.entries) AS u(store, environment, name, at, entry)
              JOIN purchase_identifier AS x ON x.value = u.name AND x.store = u.store
               AND x.environment = coalesce(u.environment, x.environment)
             GROUP BY 1) AS t
     WHERE t.at IS NOT NULL OR NOT EXISTS (SELECT 1 FROM chargeback AS y WHERE y.purchase_id = t.id)
     ORDER BY t.id
        ON CONFLICT (purchase_id) DO UPDATE
       SET at = excluded.at, lifted_at = NULL, entries = ARRAY(SELECT DISTINCT e FROM unnest(c.entries || excluded.entries) AS e)
     WHERE c.at < excluded.at;
    IF news = '{}' THEN
        RETURN;
    END IF;
    -- The store may have reported it late: the schema's owner did not know of it when they lifted an earlier one.
    held := ARRAY(SELECT l.id FROM lineage(ARRAY(
                      SELECT x.purchase_id
                        FROM unnest(n.places, n.stores, n.environments, n.names) AS u(place, store, environment, name)
                        JOIN purchase_identifier AS x ON x.value = u.name AND x.store = u.store
                         AND x.environment = coalesce(u.environment, x.environment)
                       WHERE u.place = ANY (news))) AS l(id));
    UPDATE chargeback AS c SET lifted_at = NULL WHERE c.purchase_id = ANY (held) AND c.lifted_at IS NOT NULL;
    UPDATE chargeback_name AS k SET lifted_at = NULL
     WHERE k.hash = ANY (ARRAY(SELECT u.hash FROM unnest(n.places, n.hashes) AS u(place, hash) WHERE u.place = ANY (news)))
       AND k.lifted_at IS NOT NULL;
    PERFORM request_evidence(d.id)
       FROM (SELECT t.id FROM ticket AS t
              WHERE (t.purchase_id = ANY (held) OR t.subject_id = ANY (held)) AND is_open(t.state)
              ORDER BY t.id FOR NO KEY UPDATE SKIP LOCKED) AS d;
END
$$;

-- When a payment for one of the purchases was last charged back, under any name they ever had; null: never, or it was lifted.
CREATE OR REPLACE FUNCTION charged_back(items bigint[]) RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
    SELECT max(m.at)
      FROM (SELECT c.at FROM lineage(items) AS l(id) JOIN chargeback AS c ON c.purchase_id = l.id WHERE c.lifted_at IS NULL
             UNION ALL
            SELECT n.at
              FROM lineage(items) AS l(id)
              JOIN purchase_identifier AS x ON x.purchase_id = l.id
              JOIN chargeback_name AS n ON n.hash = name_hash(x.store, x.value)
             WHERE n.lifted_at IS NULL) AS m
$$;

-- Lifts a chargeback, for the schema's owner: by a token or an order id, for the purchase that it names, its surviving purchase, all that
-- was merged into that, and all names recorded with it. `words`: why, without the name of a user. Returns how many marks were lifted.
CREATE OR REPLACE FUNCTION lift_chargeback(name text, words text) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    items   bigint[] := ARRAY(
        SELECT l.id FROM lineage(ARRAY(SELECT x.purchase_id FROM purchase_identifier AS x WHERE x.value = name)) AS l(id));
    listed  bytea[];
    marks   integer;
    names   integer;
BEGIN
    IF length(btrim(words)) NOT BETWEEN 1 AND 200 IS NOT FALSE THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'words: have to have 1 to 200 characters',
            HINT = 'Say in a sentence why it does not count.';
    END IF;
    listed := ARRAY(SELECT n.entry FROM purchase_identifier AS x JOIN chargeback_name AS n ON n.hash = name_hash(x.store, x.value)
                      WHERE x.purchase_id = ANY (items)
                      UNION
                     SELECT n.entry FROM unnest(ARRAY['google_play', 'app_store', 'onside']) AS s(store)
                       JOIN chargeback_name AS n ON n.hash = name_hash(s.store, name));
    UPDATE chargeback AS c SET lifted_at = clock_timestamp(), lifted_by = session_user, lifted_for = words
     WHERE (c.purchase_id = ANY (items) OR c.entries && listed) AND c.lifted_at IS NULL;
    GET DIAGNOSTICS marks = ROW_COUNT;
    UPDATE chargeback_name AS n SET lifted_at = clock_timestamp(), lifted_by = session_user, lifted_for = words
     WHERE n.entry = ANY (listed) AND n.lifted_at IS NULL;
    GET DIAGNOSTICS names = ROW_COUNT;
    IF marks + names = 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: no chargeback that counts is known by it',
            HINT = 'Give the token or the order, as the store writes it.';
    END IF;
    RETURN marks + names;
END
$$;
