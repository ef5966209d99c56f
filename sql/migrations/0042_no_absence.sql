-- compatible_from: 11
-- A store that suddenly does not know its customers: what is on record of purchases, types and credentials, so that no demotion
-- rests on it.

-- Users before purchases, as batches lock them; and nothing that reads or writes whole tables while they are locked.
ALTER TABLE user_sync ADD COLUMN decided_subscriber boolean;
ALTER TABLE purchase ADD COLUMN carried text[];
COMMENT ON COLUMN purchase.carried IS
    'the entitlements that last gave access, where the store lists others by now or none; null: those that it lists';
COMMENT ON COLUMN user_sync.decided_subscriber IS
    'whether the type that our last decision gave the user or found right is subscriber; null: none has settled it yet';

ALTER TABLE control ADD COLUMN cause text;
COMMENT ON COLUMN control.cause IS 'why the product paused it by itself (absences, credentials); null where a person did';

-- Answers about purchases that gave access, by store and ten minutes: in how many the store knew them.
CREATE TABLE store_knowledge (
    store text        NOT NULL,
    at    timestamptz NOT NULL,
    known bigint      NOT NULL,
    PRIMARY KEY (store, at)
);
COMMENT ON TABLE store_knowledge IS 'how many users'' purchases each store knew, by ten minutes; kept for two days';

-- Users whose purchases a store did not list: once each, until the store knows the user again.
CREATE TABLE store_absence (
    store    text        NOT NULL,
    user_key bigint      NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    unknown  boolean     NOT NULL,
    PRIMARY KEY (store, user_key)
);
CREATE INDEX store_absence_at ON store_absence (store, at);
COMMENT ON COLUMN store_absence.unknown IS 'a purchase that has to exist; otherwise a first absence';

-- By which credentials each store was asked last: a digest under a salt of its own, which tells nothing of them.
CREATE TABLE store_credential (
    store  text        PRIMARY KEY,
    salt   bytea       NOT NULL DEFAULT uuid_send(gen_random_uuid()),
    digest bytea,
    state  text        NOT NULL DEFAULT 'confirmed' CHECK (state IN ('confirmed', 'unchecked', 'doubted')),
    since  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN store_credential.state IS
    'unchecked: changed, and no known customer was asked for yet; doubted: the store knew none of those who were asked for';

-- Pauses demotions without a person; what a person paused stays as it is. Answers whether this call did it.
CREATE FUNCTION pause_demotions(why text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- Absences outrank credentials: only a person ends that pause.
    UPDATE control AS c SET paused = true, since = clock_timestamp(), by = 'entitlement-sync', cause = why
     WHERE c.name = 'demotions' AND (NOT c.paused OR c.cause = 'credentials' AND why = 'absences');
    RETURN FOUND;
END
$$;

-- Counts in how many answers the stores knew purchases that gave access.
CREATE FUNCTION note_known(names text[], counts bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO store_knowledge AS k (store, at, known)
    SELECT n.name, date_bin('10 minutes', now(), '2000-01-01'), n.known
      FROM unnest(names, counts) AS n(name, known) ORDER BY n.name
    ON CONFLICT (store, at) DO UPDATE SET known = k.known + excluded.known
$$;

-- Notes users whose purchases stores do not list. Pauses demotions where those are too many: five users at least, and more than
-- a tenth of the users that the store was known to know and that were read in the last hour, or in the last day. Five, because
-- fewer are no pattern. A tenth, because stores lose sight of far fewer in their worst hours, and wrong credentials lose all. The
-- hour is for many users, the day for few: both end before a margin does. What was counted before the switch was last set is
-- settled. `hints`: what to check, by place. Answers the alarms that it raised.
CREATE FUNCTION note_absences(names text[], users bigint[], unknowns boolean[], hints text[]) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    switch control%ROWTYPE;
    item   record;
BEGIN
    INSERT INTO store_absence AS a (store, user_key, unknown)
    SELECT n.name, n.who, bool_or(n.unknown) FROM unnest(names, users, unknowns) AS n(name, who, unknown)
     GROUP BY n.name, n.who ORDER BY n.name, n.who
    ON CONFLICT (store, user_key) DO UPDATE SET unknown = true WHERE NOT a.unknown AND excluded.unknown;
    FOR item IN SELECT n.name, min(n.hint) AS hint FROM unnest(names, unknowns, hints) AS n(name, unknown, hint)
                 WHERE n.unknown GROUP BY n.name ORDER BY n.name LOOP
        INSERT INTO alarm AS a (name, detail)
        SELECT 'unknown_to_store.' || item.name, format(item.hint, count(*))
          FROM (SELECT 1 FROM store_absence AS s
                 WHERE s.store = item.name AND s.unknown LIMIT 10000) AS s
        ON CONFLICT (name) DO UPDATE SET detail = excluded.detail, last_at = now(), count = a.count + 1;
        RETURN NEXT 'unknown_to_store.' || item.name;
    END LOOP;
    SELECT * INTO switch FROM control AS c WHERE c.name = 'demotions';
    -- It is paused and alarmed about: counting goes on once a person has resumed.
    IF switch.paused AND switch.cause = 'absences' THEN
        RETURN;
    END IF;
    FOR item IN
        SELECT s.store, w.span, count(*) AS absent,
               (SELECT coalesce(sum(k.known), 0) FROM store_knowledge AS k
                 WHERE k.store = s.store AND k.at >= date_bin('10 minutes', greatest(now() - w.span, switch.since), '2000-01-01')) AS known
          FROM store_absence AS s
         CROSS JOIN (VALUES (interval '1 hour'), (interval '1 day')) AS w(span)
         WHERE s.store = ANY (names) AND s.at >= greatest(now() - w.span, switch.since)
         GROUP BY s.store, w.span ORDER BY s.store, w.span
    LOOP
        CONTINUE WHEN item.absent < 5 OR item.absent * 10 <= item.absent + item.known;
        INSERT INTO alarm AS a (name, detail)
        VALUES ('absences', format('%s does not list purchases of %s of %s users that it knew before: demotions are paused. Check its '
                                   'variables and its status page, then entitlement-sync resume demotions.',
                                   item.store, item.absent, item.absent + item.known))
        ON CONFLICT (name) DO UPDATE SET detail = excluded.detail, last_at = now(), count = a.count + 1;
        PERFORM pause_demotions('absences');
        RETURN NEXT 'absences';
        RETURN;
    END LOOP;
END
$$;

-- Forgets users that their store knows again, and what is too old to count; and keeps the alarm of a pause without a person
-- raised for as long as it lasts.
CREATE FUNCTION forget_absences() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    UPDATE alarm AS a SET last_at = now(), count = a.count + 1
      FROM control AS c
     WHERE c.name = 'demotions' AND c.paused AND a.last_at < now() - interval '10 minutes'
       AND (c.cause = 'absences' AND a.name = 'absences'
            OR c.cause = 'credentials' AND a.name LIKE 'credentials\_unknown.%');
    DELETE FROM store_knowledge AS k WHERE k.at < now() - interval '2 days';
    -- User by user: a join might read all users for the few that are missed.
    DELETE FROM store_absence AS a
     WHERE a.ctid = ANY (ARRAY(
           SELECT x.ctid FROM store_absence AS x
            CROSS JOIN LATERAL (SELECT y.read_at, y.absent_since FROM user_sync AS y
                                 WHERE y.user_key = x.user_key OFFSET 0) AS u
            WHERE u.read_at > x.at AND u.absent_since IS NULL OR x.at < now() - interval '30 days'
            LIMIT 1000 FOR UPDATE OF x SKIP LOCKED))
$$;

-- Notes by which credentials a store is asked. Answers their state; `unchecked` where they differ from those on record.
CREATE FUNCTION note_credentials(which text, used bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    known store_credential%ROWTYPE;
BEGIN
    SELECT * INTO known FROM store_credential AS c WHERE c.store = which FOR UPDATE;
    IF known.digest IS NULL THEN
        -- There is nothing yet that they could differ from.
        UPDATE store_credential AS c SET digest = used, state = 'confirmed', since = now() WHERE c.store = which;
        RETURN 'confirmed';
    END IF;
    IF known.digest <> used THEN
        UPDATE store_credential AS c SET digest = used, state = 'unchecked', since = now() WHERE c.store = which;
        RETURN 'unchecked';
    END IF;
    RETURN known.state;
END
$$;

-- Settles whether the credentials in use know our customers: an alarm and a pause where they know none, an end of both where
-- they know one. Answers whether that changed something.
CREATE FUNCTION judge_credentials(which text, used bytea, knows boolean, detail text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- As a person who resumes demotions takes the locks.
    PERFORM FROM control AS c WHERE c.name = 'demotions' FOR NO KEY UPDATE;
    UPDATE store_credential AS c SET state = CASE WHEN knows THEN 'confirmed' ELSE 'doubted' END, since = now()
     WHERE c.store = which AND c.digest = used
       AND (knows AND c.state <> 'confirmed' OR NOT knows AND c.state = 'unchecked');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF knows THEN
        DELETE FROM alarm AS a WHERE a.name = 'credentials_unknown.' || which;
        UPDATE control AS c SET paused = false, since = now(), by = 'entitlement-sync', cause = NULL
         WHERE c.name = 'demotions' AND c.paused AND c.cause = 'credentials'
           AND NOT EXISTS (SELECT 1 FROM store_credential AS x WHERE x.state = 'doubted');
    ELSE
        INSERT INTO alarm AS a (name, detail) VALUES ('credentials_unknown.' || which, detail)
        ON CONFLICT (name) DO UPDATE SET detail = excluded.detail, last_at = now(), count = a.count + 1;
        PERFORM pause_demotions('credentials');
    END IF;
    RETURN true;
END
$$;

-- A person who resumes demotions has seen to what paused them.
CREATE FUNCTION accept_credentials() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    UPDATE store_credential AS c SET state = 'confirmed', since = now() WHERE c.state = 'doubted';
    RETURN NULL;
END
$$;
CREATE TRIGGER accept_credentials AFTER UPDATE OF paused ON control FOR EACH ROW
    WHEN (NEW.name = 'demotions' AND OLD.paused AND NOT NEW.paused AND NEW.by <> 'entitlement-sync')
    EXECUTE FUNCTION accept_credentials();

-- What the app shows at its launch; no row where the id is no user's. `until`: the end of the access that is known, null where
-- there is none or it has no end. A restore is suggested to a user who is no subscriber where the store may say otherwise:
-- nothing was ever read, the last restore failed, or a purchase is known that should give access.
CREATE OR REPLACE FUNCTION entitlement_answer(wanted text)
RETURNS TABLE (type text, until text, restore_suggested boolean, tickets jsonb, stores jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT h.type,
           CASE WHEN a.endless IS NOT TRUE
                THEN to_char(a.until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') END,
           h.type <> 'subscriber' AND h.status IN ('active', 'onboarding')
               AND (u.full_read_at IS NULL OR coalesce(l.failed, false) OR coalesce(a.endless OR a.until > now(), false)),
           -- By the restore that first told of a case: which tickets there are inside, and since when, depends on what was
           -- found, and nobody may learn from it whether an id exists.
           coalesce((SELECT jsonb_build_array(jsonb_build_object(
                                'reference', reference_of('R', f.id),
                                'state', CASE WHEN EXISTS (
                                    SELECT 1 FROM ticket AS t
                                     WHERE t.claimant_key = u.user_key AND t.visible
                                       AND t.state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate'))
                                         THEN 'open' ELSE 'closed' END,
                                'created_at', to_char(f.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
                       FROM (SELECT j.id, j.finished_at FROM job_history AS j
                              WHERE j.user_key = u.user_key AND j.outcome = 'store_account_mismatch'
                              ORDER BY j.id LIMIT 1) AS f), '[]'),
           coalesce((SELECT jsonb_agg(jsonb_build_object(
                                'store', s.store,
                                'state', CASE WHEN s.last_error_at > now() - interval '5 minutes'
                                                   AND s.last_error_at > coalesce(s.last_answer_at, '-infinity')
                                              THEN 'down'
                                              WHEN s.latency_seconds > 2
                                                   AND s.last_answer_at > now() - interval '5 minutes'
                                              THEN 'slow' ELSE 'ok' END) ORDER BY s.store)
                       FROM store_health AS s), '[]')
      FROM entitlement_sync_host.read_users(ARRAY[wanted]) AS h
      LEFT JOIN user_sync AS u ON u.user_id = h.id
      LEFT JOIN LATERAL (
            SELECT max(x.until) AS until, bool_or(x.until IS NULL OR x.until = 'infinity') AS endless
              FROM (SELECT CASE WHEN p.environment = 'production' THEN p.period_ends_at
                                -- A tester's access ends with the permission, whatever the store's sandbox says.
                                ELSE least(p.period_ends_at, s.until) END AS until
                      FROM purchase AS p
                      LEFT JOIN sandbox_user AS s
                             ON s.user_id = h.id AND s.until > now() AND p.environment <> 'production'
                     WHERE p.owner_key = u.user_key AND p.merged_into IS NULL
                       AND coalesce(p.gives_access, p.status = 'owned')
                       AND (p.environment = 'production' OR s.user_id IS NOT NULL)
                       -- Stickers are no access, however long they last.
                       AND means_access(p.entitlements)
                    UNION ALL
                    SELECT g.until FROM "grant" AS g
                     WHERE g.user_key = u.user_key AND g.revoked_at IS NULL AND g.until > now()) AS x) AS a ON true
      LEFT JOIN LATERAL (
            SELECT j.state = 'dead' OR j.outcome = 'store_unavailable' AS failed FROM job_history AS j
             WHERE j.user_key = u.user_key AND j.kind = 0 ORDER BY j.id DESC LIMIT 1) AS l ON true;
END
$$;

REVOKE ALL ON FUNCTION pause_demotions, note_known, note_absences, forget_absences, note_credentials, judge_credentials,
                       accept_credentials FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT SELECT ON store_absence, store_knowledge TO %I',
    'GRANT SELECT, INSERT ON store_credential TO %I',
    'GRANT EXECUTE ON FUNCTION note_known, note_absences, forget_absences, note_credentials, judge_credentials TO %I']);
SELECT grant_to(r.name, ARRAY['GRANT SELECT ON store_absence, store_knowledge TO %I',
                              'GRANT SELECT (store, state, since) ON store_credential TO %I'])
  FROM unnest(ARRAY['entitlement_sync_support', 'entitlement_sync_auditor']) AS r(name);

-- What a store does not know it will not know in five minutes either: a confirmed demotion has no further turn in its run.
DO $$
DECLARE
    body text := pg_get_functiondef('close_parts(bigint, integer)'::regprocedure);
    same text := replace(body, $w$'rejected', 'user_id_unusable'$w$, $w$'rejected', 'unknown_to_store', 'user_id_unusable'$w$);
BEGIN
    IF same = body THEN
        RAISE EXCEPTION 'close_parts: another version than the one that 0023_runs.sql made';
    END IF;
    EXECUTE same;
END
$$;
