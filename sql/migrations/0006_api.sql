-- What the API needs: counted requests, restores as the app asks for them, and answers that say only what concerns the
-- caller.

ALTER TABLE store_health ADD COLUMN latency_seconds double precision;
COMMENT ON COLUMN store_health.latency_seconds IS 'how long the store''s answers took lately, the newest counting most';

-- Requests of an address or a user within a minute that begins with its first request. Unlogged: a crash forgets a minute.
-- The key is a digest: nobody learns from here who called.
CREATE UNLOGGED TABLE request_count (
    key   bytea       PRIMARY KEY,
    began timestamptz NOT NULL,
    taken integer     NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX request_count_began ON request_count USING brin (began);

-- Takes up to `wanted` of the `allowed` requests of a minute; `wait`: seconds until the next minute begins.
CREATE FUNCTION take_requests(counted bytea, allowed integer, wanted integer)
RETURNS TABLE (given integer, wait double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO request_count AS c (key, began, taken) VALUES (counted, at, wanted)
    ON CONFLICT (key) DO UPDATE
       SET began = CASE WHEN c.began <= at - interval '1 minute' THEN at ELSE c.began END,
           taken = CASE WHEN c.began <= at - interval '1 minute' THEN wanted
                        ELSE least(c.taken, allowed) + wanted END
    RETURNING greatest(0, least(wanted, allowed - (c.taken - wanted))),
              greatest(0, 60 - extract(epoch FROM at - c.began))::double precision;
END
$$;

-- Proofs that a user's app has shown within a day, by digest: a restore that shows nothing new can be told from one that does.
CREATE TABLE shown_proof (
    user_key bigint      NOT NULL,
    digest   bytea       NOT NULL,
    shown_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_key, digest)
);
CREATE INDEX shown_proof_at ON shown_proof USING brin (shown_at);

-- The last restore's id, where it answers a user who asks again: one who asked `daily` times within a day, shows nothing new,
-- has none queued, and was not put off by a store. Remembers what is shown.
CREATE FUNCTION last_result(known bigint, kept jsonb, daily integer) RETURNS uuid
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    added  bigint := 0;
    newest record;
BEGIN
    IF kept <> '[]' THEN
        -- Ids that anybody can type show nothing, and nobody has a hundred proofs of their own in a day.
        INSERT INTO shown_proof AS s (user_key, digest)
        SELECT DISTINCT known, sha256(convert_to(p.proof::text, 'UTF8')) FROM jsonb_array_elements(kept) AS p(proof)
         WHERE p.proof ->> 'kind' IN ('storekit_jws', 'app_receipt', 'purchase_token', 'onside_history')
           AND (SELECT count(*) FROM (SELECT 1 FROM shown_proof AS x WHERE x.user_key = known LIMIT 100) AS x) < 100
         ORDER BY 2
        ON CONFLICT (user_key, digest) DO UPDATE SET shown_at = now()
         WHERE s.shown_at < now() - interval '1 day';
        GET DIAGNOSTICS added = ROW_COUNT;
    END IF;
    IF added > 0 OR EXISTS (SELECT 1 FROM queue AS q WHERE q.user_key = known AND q.restore_id IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    SELECT count(*) AS asked, max(h.id::text)::uuid AS id INTO newest FROM job_history AS h
     WHERE h.user_key = known AND h.kind = 0 AND h.id >= first_id_at(now() - interval '1 day');
    IF newest.asked < daily THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT h.id FROM job_history AS h
             WHERE h.id = newest.id AND h.state = 'done' AND h.outcome <> 'store_unavailable'
               -- What has happened since would make it untrue.
               AND NOT EXISTS (SELECT 1 FROM decision AS d
                                WHERE d.user_key = known AND d.at > h.finished_at AND d.type_before <> d.type_after)
               AND NOT EXISTS (SELECT 1 FROM user_sync AS u
                                WHERE u.user_key = known AND u.promised_at > h.finished_at));
END
$$;

-- What `request_restore` does once the user is known. `daily`: see `app_restore`.
CREATE FUNCTION restore_of(
    known           bigint,
    proofs          jsonb,
    client_error    text,
    product_ids     text[],
    idempotency_key text,
    origin          text,
    daily           integer,
    OUT job         uuid,
    OUT is_new      boolean
)
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    kept       jsonb;
    fresh      uuid := new_id();
    request    bytea;
    says       boolean;
    remembered idempotency%ROWTYPE;
BEGIN
    IF length(idempotency_key) > 255 THEN
        RAISE EXCEPTION USING ERRCODE = 'ES003', MESSAGE = 'idempotency_key: longer than 255',
            HINT = 'Use a random id of at most 255 characters.';
    END IF;
    IF length(client_error) > 500 THEN
        RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = 'client_error: longer than 500',
            HINT = 'Send the code or the name of the error, not its text.';
    END IF;
    IF cardinality(product_ids) > 100 THEN
        RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = 'product_ids: at most 100 are taken',
            HINT = 'Leave product_ids out to list every product.';
    END IF;
    IF EXISTS (SELECT 1 FROM unnest(product_ids) AS p(id) WHERE p.id IS NULL OR length(p.id) > 255) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = 'product_ids: an id is null or longer than 255',
            HINT = 'Product ids are the store''s own, each at most 255 characters.';
    END IF;
    IF origin IS NOT NULL AND origin NOT IN ('profile', 'paywall') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'origin: must be profile, paywall or null',
            HINT = 'Leave origin out where it is not known.';
    END IF;
    kept := checked_proofs(proofs);
    IF idempotency_key IS NOT NULL THEN
        request := sha256(convert_to(jsonb_build_array(kept, client_error, to_jsonb(product_ids), origin)::text, 'UTF8'));
        INSERT INTO idempotency AS i (user_key, key, request, job_id) VALUES (known, idempotency_key, request, fresh)
        ON CONFLICT (user_key, key) DO UPDATE
           SET request = excluded.request, job_id = excluded.job_id, created_at = now()
         WHERE i.created_at < now() - interval '7 days';
        SELECT i.* INTO remembered FROM idempotency AS i
         WHERE i.user_key = known AND i.key = idempotency_key;
        IF remembered.request <> request THEN
            RAISE EXCEPTION USING ERRCODE = 'ES004', MESSAGE = 'idempotency_key: used before with other content',
                HINT = 'Use a new key for a new request; keys are remembered for 7 days.';
        END IF;
        IF remembered.job_id <> fresh THEN
            job := remembered.job_id;
            is_new := false;
            RETURN;
        END IF;
    END IF;
    IF daily IS NOT NULL THEN
        job := last_result(known, kept, daily);
        IF job IS NOT NULL THEN
            UPDATE idempotency AS i SET job_id = job WHERE i.user_key = known AND i.key = idempotency_key;
            is_new := false;
            RETURN;
        END IF;
    END IF;
    says := kept <> '[]' OR client_error IS NOT NULL OR product_ids IS NOT NULL OR origin IS NOT NULL;
    job := enqueue(known, 0::smallint, 0::smallint, fresh, says);
    is_new := job = fresh;
    IF NOT is_new THEN
        -- Joined: what the earlier tap said and what this one says are one request now.
        INSERT INTO job_request AS r (id, proofs, client_error, product_ids, origin)
        SELECT job, kept, client_error, CASE WHEN EXISTS (SELECT 1 FROM job_request AS x WHERE x.id = job)
                                                THEN product_ids END, origin
        ON CONFLICT (id) DO UPDATE SET
            proofs       = united_proofs(r.proofs, excluded.proofs),
            client_error = coalesce(excluded.client_error, r.client_error),
            product_ids  = CASE WHEN r.product_ids IS NULL OR excluded.product_ids IS NULL THEN NULL
                                ELSE ARRAY(SELECT DISTINCT p.id FROM unnest(r.product_ids || excluded.product_ids) AS p(id)
                                            ORDER BY p.id LIMIT 100) END,
            origin       = coalesce(excluded.origin, r.origin);
        IF idempotency_key IS NOT NULL THEN
            UPDATE idempotency AS i SET job_id = job WHERE i.user_key = known AND i.key = idempotency_key;
        END IF;
    ELSIF says THEN
        INSERT INTO job_request (id, proofs, client_error, product_ids, origin)
        VALUES (fresh, kept, client_error, product_ids, origin);
    END IF;
    PERFORM pg_notify('entitlement_sync_wake', '');
END
$$;

CREATE OR REPLACE FUNCTION request_restore(
    user_id         text,
    proofs          jsonb  DEFAULT '[]',
    client_error    text   DEFAULT NULL,
    product_ids     text[] DEFAULT NULL,
    idempotency_key text   DEFAULT NULL,
    origin          text   DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    RETURN (restore_of(user_key_of(user_id), proofs, client_error, product_ids, idempotency_key, origin, NULL)).job;
END
$$;

-- A restore as the app asks for it: `request_restore`, but whoever asked `daily` times within a day and shows nothing new
-- is answered from the last result: apps that restore at every launch cost the stores' budgets what people wait for.
-- `is_new`: the job was queued just now, and nothing else is to be said of it yet.
CREATE FUNCTION app_restore(
    user_id         text,
    proofs          jsonb,
    client_error    text,
    product_ids     text[],
    idempotency_key text,
    origin          text,
    daily           integer DEFAULT 10
) RETURNS TABLE (id uuid, is_new boolean)
-- A user whom somebody else holds must not keep a connection that others wait for.
-- Plans are kept: over the partitions of the history, to make one takes longer than to run it.
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '500ms'
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_variable
BEGIN
    SELECT r.job, r.is_new INTO id, is_new
      FROM restore_of(user_key_of(user_id), proofs, client_error, product_ids, idempotency_key, origin, daily) AS r;
    RETURN NEXT;
END
$$;

-- Several restores in one transaction, each as `app_restore` takes it; `proofs` and `product_ids` are JSON. Whoever is
-- refused spoils nothing for the others: `state`, `message` and `hint` say why. Who is held by somebody else for longer
-- than a moment is refused with 55P03, and after four of them nobody waits any more.
CREATE FUNCTION app_restores(
    user_ids         text[],
    proofs           text[],
    client_errors    text[],
    product_ids      text[],
    idempotency_keys text[],
    origins          text[],
    daily            integer DEFAULT 10
) RETURNS TABLE (place integer, id uuid, is_new boolean, state text, message text, hint text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '10ms'
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_variable
DECLARE
    wish  record;
    tries integer := 0;
BEGIN
    FOR wish IN
        SELECT w.* FROM unnest(user_ids, proofs, client_errors, product_ids, idempotency_keys, origins) WITH ORDINALITY
                        AS w(user_id, proofs, client_error, product_ids, idempotency_key, origin, place)
         -- In one order, or two that ask for the same users wait for each other.
         ORDER BY (SELECT u.user_key FROM user_sync AS u WHERE u.user_id = w.user_id), w.user_id, w.place
    LOOP
        place := wish.place;
        id := NULL;
        is_new := NULL;
        IF tries >= 4 THEN
            state := '55P03';
            message := 'the user is held by another transaction';
            hint := NULL;
            RETURN NEXT;
            CONTINUE;
        END IF;
        state := NULL;
        message := NULL;
        hint := NULL;
        BEGIN
            SELECT r.job, r.is_new INTO id, is_new
              FROM restore_of(user_key_of(wish.user_id), wish.proofs::jsonb, wish.client_error,
                              CASE WHEN wish.product_ids IS NOT NULL
                                   THEN ARRAY(SELECT jsonb_array_elements_text(wish.product_ids::jsonb)) END,
                              wish.idempotency_key, wish.origin, daily) AS r;
        EXCEPTION
            WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
                -- What ails the server or the session is no answer to one of them.
                IF NOT (state LIKE 'ES%' OR state LIKE '22%' OR state IN ('55P03', '40P01')) THEN
                    RAISE;
                END IF;
                id := NULL;
                is_new := NULL;
                tries := tries + (state = '55P03')::integer;
        END;
        RETURN NEXT;
    END LOOP;
END
$$;

-- The team's words for what purchases carry: the ledger has keys of products and of RevenueCat's entitlements.
CREATE FUNCTION entitlement_names(keys text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    RETURN (
        SELECT coalesce(array_agg(DISTINCT p.entitlement ORDER BY p.entitlement), '{}')
          FROM (SELECT x.entitlement, x.base_plan_id,
                       CASE WHEN x.store = 'revenuecat' THEN x.product_id
                            ELSE concat_ws(':', CASE x.store WHEN 'play_store' THEN 'google_play' ELSE x.store END,
                                           x.product_id, x.base_plan_id) END AS key
                  FROM product AS x WHERE x.grants_access) AS p
         WHERE EXISTS (SELECT 1 FROM unnest(keys) AS k(key)
                        WHERE k.key = p.key OR p.base_plan_id IS NULL AND starts_with(k.key, p.key || ':')));
END
$$;

-- The user's own purchases that give access, and their ends, for the app to deliver again; those alone that were asked for.
CREATE FUNCTION restored_products(known bigint, job uuid) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    wanted text[];
BEGIN
    SELECT r.product_ids INTO wanted FROM job_request AS r WHERE r.id = job;
    RETURN coalesce((
        SELECT jsonb_agg(jsonb_build_object(
                   'store', p.store, 'product_id', p.product_id, 'entitlements', to_jsonb(entitlement_names(p.entitlements)),
                   'ends_at', to_char(p.period_ends_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
                   ORDER BY p.id)
          FROM (SELECT x.* FROM purchase AS x
                 WHERE x.owner_key = known AND x.merged_into IS NULL AND cardinality(x.entitlements) > 0
                   AND coalesce(x.gives_access, x.status = 'owned')
                   AND (x.environment = 'production'
                        OR EXISTS (SELECT 1 FROM sandbox_user AS s JOIN user_sync AS u ON u.user_id = s.user_id
                                    WHERE u.user_key = known AND s.until > now()))
                   AND (wanted IS NULL OR x.product_id = ANY (wanted))
                 ORDER BY x.id DESC LIMIT 100) AS p), '[]');
END
$$;

-- Restores as the app sees them; ids that are no restore's are left out. `age`: seconds since it was asked for.
CREATE FUNCTION restore_answers(ids uuid[])
RETURNS TABLE (id uuid, user_id text, state text, outcome text, message_key text,
               age double precision, products jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT s.id, s.user_id, s.state, s.outcome, s.message_key,
           extract(epoch FROM clock_timestamp() - s.created_at)::double precision,
           CASE WHEN s.outcome IN ('restored', 'already_subscriber')
                THEN coalesce((SELECT restored_products(u.user_key, s.id) FROM user_sync AS u
                                WHERE u.user_id = s.user_id), '[]')
                ELSE '[]' END
      FROM unnest(ids) AS w(id)
     -- One by one, whatever the planner thinks of how many there are.
     CROSS JOIN LATERAL (SELECT j.* FROM job_status AS j WHERE j.id = w.id AND j.kind = 'restore' LIMIT 1) AS s;
END
$$;

-- How many seconds a restore that waits will take, by its own wait, by those before it and by what the stores' limits
-- leave; null: nobody can say, as everything is paused.
CREATE FUNCTION estimated_wait(job uuid) RETURNS double precision
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
    mine   timestamptz;
    ahead  bigint;
    budget double precision;
BEGIN
    IF EXISTS (SELECT 1 FROM control AS c WHERE c.name = 'all' AND c.paused) THEN
        RETURN NULL;
    END IF;
    SELECT q.restore_due INTO mine FROM queue AS q WHERE q.restore_id = job
     UNION ALL SELECT q.restore_due FROM queue AS q WHERE q.restore_next = job;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    SELECT count(*) INTO ahead
      FROM (SELECT 1 FROM queue AS q WHERE q.lane = 0 AND q.owner IS NULL AND q.due < least(mine, now()) LIMIT 10000) AS q;
    -- A full read costs two requests at most.
    SELECT max(greatest(extract(epoch FROM b.blocked_until - now()),
                        CASE WHEN l.cap > 0 THEN (2 * (ahead + 1) - greatest(b.tokens, 0)) * 60 / l.cap END))
      INTO budget
      FROM rate_budget AS b
     CROSS JOIN LATERAL (SELECT CASE WHEN b.per_minute = 0 OR b.seen_limit IS NULL THEN b.per_minute
                                     ELSE least(b.per_minute, b.seen_limit) END AS cap) AS l
     WHERE (b.refilled_at > now() - interval '10 minutes' OR b.blocked_until > now())
       -- Where RevenueCat is asked, it is asked of everybody; the others of few.
       AND (b.credential = 'revenuecat'
            OR NOT EXISTS (SELECT 1 FROM rate_budget AS x WHERE x.credential = 'revenuecat'));
    RETURN greatest(1, extract(epoch FROM mine - clock_timestamp()), budget);
END
$$;

-- What the app shows at its launch; no row for whoever is no user. `until`: the end of the access that is known, null where
-- there is none or it has no end. A restore is suggested to whoever is no subscriber where the store may say otherwise:
-- nothing was ever read, the last restore failed, or a purchase is known that should give access.
CREATE FUNCTION entitlement_answer(wanted text)
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
            SELECT max(x.until) AS until, bool_or(x.until IS NULL) AS endless
              FROM (SELECT p.period_ends_at AS until FROM purchase AS p
                     WHERE p.owner_key = u.user_key AND p.merged_into IS NULL AND cardinality(p.entitlements) > 0
                       AND p.environment = 'production' AND coalesce(p.gives_access, p.status = 'owned')
                    UNION ALL
                    SELECT g.until FROM "grant" AS g
                     WHERE g.user_key = u.user_key AND g.revoked_at IS NULL AND g.until > now()) AS x) AS a ON true
      LEFT JOIN LATERAL (
            SELECT j.state = 'dead' OR j.outcome = 'store_unavailable' AS failed FROM job_history AS j
             WHERE j.user_key = u.user_key AND j.kind = 0 ORDER BY j.id DESC LIMIT 1) AS l ON true;
END
$$;

REVOKE ALL ON FUNCTION take_requests, last_result, restore_of, app_restore, app_restores, entitlement_names, restored_products, restore_answers,
                       estimated_wait,                       entitlement_answer FROM PUBLIC;
SELECT grant_to('entitlement_sync_api', ARRAY[
    'GRANT SELECT ON schema_migration TO %I',
    'GRANT EXECUTE ON FUNCTION take_requests, app_restore, app_restores, restore_answers, estimated_wait, entitlement_answer TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT EXECUTE ON FUNCTION take_requests, app_restore, app_restores, restore_answers, estimated_wait, entitlement_answer TO %I',
    'GRANT SELECT, INSERT, UPDATE, DELETE ON request_count, shown_proof TO %I']);
