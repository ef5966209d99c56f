-- compatible_from: 11
-- Purchases whose money was taken back as fraud. Stores say so in their lists of voided purchases alone: a reading shows no more
-- than that a purchase was refunded, or nothing at all once it was bought again. Who shows such a purchase is moved nothing.

CREATE TABLE chargeback (
    purchase_id bigint      PRIMARY KEY REFERENCES purchase ON DELETE CASCADE,
    at          timestamptz NOT NULL,
    noted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    entries     bytea[]     NOT NULL DEFAULT '{}',
    lifted_at   timestamptz,
    lifted_by   text,
    lifted_for  text        CHECK (length(lifted_for) <= 200)
);
COMMENT ON COLUMN chargeback.entries IS 'of chargeback_name: what the list gave it under';
COMMENT ON TABLE chargeback IS 'purchases whose money was taken back as fraud or by a chargeback, as a store''s list says';
COMMENT ON COLUMN chargeback.at IS 'when, by the store''s word; the last one';
COMMENT ON COLUMN chargeback.lifted_at IS 'a person said that it does not count; the next one does';

-- A purchase may become known after it was charged back: names that a list gave are kept, as hashes. A token can't be found by
-- its hash; an order's number could be by somebody with much time, so the desk's roles see no hash.
CREATE TABLE chargeback_name (
    hash       bytea       PRIMARY KEY CHECK (octet_length(hash) = 32),
    entry      bytea       NOT NULL,
    at         timestamptz NOT NULL,
    noted_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    lifted_at  timestamptz,
    lifted_by  text,
    lifted_for text        CHECK (length(lifted_for) <= 200)
);
CREATE INDEX chargeback_name_entry ON chargeback_name (entry);
COMMENT ON TABLE chargeback_name IS 'tokens and orders that a store''s list gave as charged back';
COMMENT ON COLUMN chargeback_name.hash IS 'SHA-256 of the store, a space, and the token or order';
COMMENT ON COLUMN chargeback_name.entry IS 'the hash of the first name that stood in the same place, the token: they are lifted together';
COMMENT ON COLUMN chargeback_name.lifted_at IS 'a person said that it does not count; the next one does';

CREATE FUNCTION name_hash(store text, value text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN sha256(convert_to(store || ' ' || value, 'UTF8'));

-- Purchases with all that was merged into them, and what they were merged into.
CREATE FUNCTION lineage(items bigint[]) RETURNS SETOF bigint
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
    WITH RECURSIVE l AS (
        SELECT living(i.id) AS id FROM unnest(items) AS i(id)
         UNION
        SELECT p.id FROM l JOIN purchase AS p ON p.merged_into = l.id
    )
    SELECT l.id FROM l WHERE l.id IS NOT NULL
$$;

-- When money was last taken back as fraud that was paid for one of the purchases, under any name that they ever had; null:
-- never, or a person has said that it does not count.
CREATE FUNCTION charged_back(items bigint[]) RETURNS timestamptz
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

-- Says that a chargeback does not count, for the owner of the schema: by a token or an order, with the purchase that it names,
-- all that was merged into it, and all names that were listed with it. `words`: why, without anybody's name. Returns how many
-- marks were lifted.
CREATE FUNCTION lift_chargeback(name text, words text) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    items   bigint[] := ARRAY(SELECT l.id FROM lineage(ARRAY(SELECT x.purchase_id FROM purchase_identifier AS x WHERE x.value = name)) AS l(id));
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

-- Notes what a page gives as charged back: the purchases that are known by it, and all names. Evidence of open tickets about them
-- is due at once.
CREATE FUNCTION note_chargebacks(abouts text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
DECLARE
    n    record;
    news integer[];
    held bigint[];
BEGIN
    -- Of each name: its entry's place in the page, and when, by the store's word; where the list does not say when, it is 0.
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
    -- What was never listed under one of its names.
    news := ARRAY(SELECT DISTINCT u.place FROM unnest(n.places, n.hashes) AS u(place, hash)
                   WHERE NOT EXISTS (SELECT 1 FROM chargeback_name AS k WHERE k.hash = u.hash));
    INSERT INTO chargeback_name AS k (hash, entry, at)
    SELECT t.hash, t.entry, coalesce(t.at, now())
      FROM (SELECT u.hash, (array_agg(u.entry))[1] AS entry, max(u.at) AS at
              FROM unnest(n.hashes, n.entries, n.ats) AS u(hash, entry, at) GROUP BY u.hash) AS t
     -- Listed again, it is no later.
     WHERE t.at IS NOT NULL OR NOT EXISTS (SELECT 1 FROM chargeback_name AS y WHERE y.hash = t.hash)
     ORDER BY t.hash
        ON CONFLICT (hash) DO UPDATE SET at = excluded.at, lifted_at = NULL WHERE k.at < excluded.at;
    INSERT INTO chargeback AS c (purchase_id, at, entries)
    SELECT t.id, coalesce(t.at, now()), t.entries
      FROM (SELECT coalesce(living(x.purchase_id), x.purchase_id) AS id, max(u.at) AS at, array_agg(DISTINCT u.entry) AS entries
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
    -- It may have been told late: a person who lifted an earlier one knew nothing of it.
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
    WITH due AS MATERIALIZED (
        SELECT t.id FROM ticket AS t
         WHERE (t.purchase_id = ANY (held) OR t.subject_id = ANY (held)) AND is_open(t.state) AND t.state <> 'executing'
         ORDER BY t.id FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE ticket AS t SET evidence_due = clock_timestamp() FROM due AS d WHERE t.id = d.id;
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

-- What speaks against a transfer at this moment; null: nothing. Whoever asks holds the ticket's row.
CREATE OR REPLACE FUNCTION approvals_lack(which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    t ticket;
    e ticket_evidence;
    n record;
BEGIN
    SELECT x.* INTO STRICT t FROM ticket AS x WHERE x.id = which;
    SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
    IF e.id IS NULL THEN
        RETURN 'no_evidence';
    END IF;
    -- The evidence may have been collected before a list told of it, or by an earlier version.
    IF e.hindrance IN ('forbids', 'closes') OR charged_back(ARRAY[coalesce(t.purchase_id, t.subject_id)]) IS NOT NULL THEN
        RETURN 'hindrance';
    END IF;
    -- Locked, so that no role is lost between the question and the commit.
    PERFORM FROM operator AS o
      WHERE o.id = t.owner_waived_by
         OR o.id IN (SELECT a.operator_id FROM ticket_approval AS a WHERE a.ticket_id = which AND a.ended_at IS NULL)
      ORDER BY o.id FOR SHARE;
    SELECT count(*) AS agreed, bool_or(a.hash <> e.hash) AS changed, bool_or(a.expires_at <= clock_timestamp()) AS expired,
           count(*) FILTER (WHERE approval_counts(a, t, e, 'approve')) AS good,
           count(*) FILTER (WHERE approval_counts(a, t, e, 'approve') AND approval_counts(a, t, e, 'override')) AS seniors
      INTO n
      FROM ticket_approval AS a WHERE a.ticket_id = which AND a.ended_at IS NULL;
    IF n.changed THEN
        RETURN 'evidence_changed';
    END IF;
    -- A word that was said after the evidence was read counts as one that it leaves out.
    IF t.owner_no_at IS NOT NULL AND (NOT 'owner_objected' = ANY (e.facts) OR t.owner_no_at > e.asked_at) THEN
        RETURN 'owner_objected';
    END IF;
    IF 'owner_released' = ANY (e.facts) AND NOT is_released(which) THEN
        RETURN 'evidence_changed';
    END IF;
    IF n.good < e.approvals THEN
        RETURN CASE WHEN n.expired THEN 'expired' WHEN n.agreed > n.good THEN 'role_lost' ELSE 'approvals' END;
    END IF;
    IF e.hindrance = 'needs_senior' AND n.seniors = 0 THEN
        RETURN 'needs_senior';
    END IF;
    -- A time that would still run is over by a waiver that counts, and by nobody's alone.
    IF t.owner_waived_at IS NOT NULL AND t.owner_yes_at IS NULL AND t.owner_asked_at + e.owner_window > clock_timestamp() THEN
        IF waiver_counts(t, e) IS NOT TRUE THEN
            RETURN 'role_lost';
        END IF;
        IF NOT others_agree(t, e, t.owner_waived_by) THEN
            RETURN 'approvals';
        END IF;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION allow_transfer(which bigint, turn integer, fresh bigint, moving text[]) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    x    transfer;
    t    ticket;
    e    ticket_evidence;
    lack text;
BEGIN
    PERFORM check_isolation();
    SELECT y.* INTO STRICT x FROM transfer AS y WHERE y.id = which;
    SELECT y.* INTO STRICT t FROM ticket AS y WHERE y.id = x.ticket_id FOR NO KEY UPDATE;
    SELECT y.* INTO STRICT x FROM transfer AS y WHERE y.id = which FOR NO KEY UPDATE;
    SELECT y.* INTO e FROM ticket_evidence AS y WHERE y.id = t.evidence_id;
    IF x.step <> 'begun' OR x.tries <> turn OR t.state <> 'executing' OR e.id IS DISTINCT FROM fresh OR e.asked_at < x.begun_at
       OR e.asked_at < x.called_at OR e.collected_at < clock_timestamp() - interval '5 minutes' THEN
        RETURN 'step';
    END IF;
    IF EXISTS (SELECT 1 FROM control AS c WHERE c.name IN ('transfers', 'all') AND c.paused) THEN
        RETURN 'paused';
    END IF;
    -- A call may do its work after we have stopped to wait for its answer: nothing is called or given up before.
    IF x.called_at > clock_timestamp() - interval '10 minutes' THEN
        RETURN 'unsettled';
    END IF;
    -- Those that were used by an earlier call of this transfer count again: nothing came of that call.
    UPDATE ticket_approval AS a SET ended_at = NULL, ended_by = NULL
     WHERE x.calls > 0 AND a.ticket_id = t.id AND a.ended_by = 'used' AND a.at < x.begun_at;
    lack := approvals_lack(t.id);
    -- What moves along as well: the evidence may have been collected just before a list told of it.
    IF lack IS NULL
       AND charged_back(x.purchase_id || ARRAY(SELECT i.purchase_id FROM purchase_identifier AS i
                                                WHERE i.value = ANY (moving) AND i.kind = 'revenuecat_id')) IS NOT NULL THEN
        lack := 'hindrance';
    END IF;
    IF lack IS NULL AND cardinality(moving) > 0 AND x.calls >= 5 THEN
        lack := 'no_effect';
    END IF;
    IF lack IS NULL THEN
        PERFORM end_approvals(t.id, 'used');
        UPDATE transfer AS y
           SET evidence_id = fresh, moves = moving, step = CASE WHEN cardinality(moving) = 0 THEN 'confirmed' ELSE 'calling' END,
               calls = y.calls + CASE WHEN cardinality(moving) = 0 THEN 0 ELSE 1 END,
               called_at = CASE WHEN cardinality(moving) = 0 THEN y.called_at ELSE clock_timestamp() END,
               due = clock_timestamp() + interval '2 minutes'
         WHERE y.id = which;
        PERFORM note_step(which, CASE WHEN cardinality(moving) = 0 THEN 'confirmed' ELSE 'calling' END,
                          jsonb_build_object('evidence', fresh, 'moves', cardinality(moving)));
        RETURN NULL;
    END IF;
    PERFORM end_approvals(t.id, ending_for(lack));
    UPDATE transfer AS y SET step = 'stopped', last_error = lack, ended_at = clock_timestamp() WHERE y.id = which;
    PERFORM note_step(which, 'stopped', jsonb_build_object('reason', lack));
    PERFORM move_ticket(t.id, 'stopped');
    -- What has changed is looked at again, and closes the ticket where its cause has gone away.
    UPDATE ticket AS y SET verdict = NULL, decided_at = NULL, evidence_due = clock_timestamp() WHERE y.id = t.id;
    INSERT INTO ticket_event (ticket_id, kind, detail)
    VALUES (t.id, 'transfer_stopped', jsonb_build_object('reason', lack));
    RETURN lack;
END
$$;

-- Adapters keep the cursor before what somebody held; those before went on beyond it, and came back at the end.
UPDATE asset_run SET cursor = NULL WHERE cursor IS NOT NULL;

REVOKE ALL ON FUNCTION name_hash, lineage, charged_back, lift_chargeback, note_chargebacks FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION charged_back, name_hash TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT SELECT ON chargeback, chargeback_name TO %I']);
SELECT grant_to(r.name, ARRAY[
           'GRANT SELECT (purchase_id, at, noted_at, lifted_at, lifted_by, lifted_for) ON chargeback TO %I',
           'GRANT SELECT (at, noted_at, lifted_at, lifted_by, lifted_for) ON chargeback_name TO %I'])
  FROM unnest(ARRAY['entitlement_sync_support', 'entitlement_sync_auditor']) AS r(name);
