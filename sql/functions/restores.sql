-- Restores as apps request them, and what an app displays: answers, waiting times, products to deliver again, the entitlement.

-- Takes the restores of many users in one transaction, each as `request_restore` does. A user who had `daily` restores within a day and
-- submits no new proof gets the id of the last one. `proofs` and `product_ids` are JSON. `is_new`: the job was queued by this call.
-- A refused request does not affect the others: `state` (an SQLSTATE), `message` and `hint` say why. A user that stays locked for
-- `patience` milliseconds is refused with 55P03; after four, so is the rest. `asker`: the notification's payload, marks the own process.
-- `providers`, `signed_in_at`: how and when users had signed in to the app; kept for agents, and no part of the request.
CREATE OR REPLACE FUNCTION app_restores(
    user_ids         text[],
    proofs           text[],
    client_errors    text[],
    product_ids      text[],
    idempotency_keys text[],
    origins          text[],
    daily            integer DEFAULT 10,
    asker            text DEFAULT '',
    patience         integer DEFAULT 10,
    providers        text[] DEFAULT '{}',
    signed_in_at     timestamptz[] DEFAULT '{}'
) RETURNS TABLE (place integer, id uuid, is_new boolean, state text, message text, hint text)
-- Generic plans, because planning over the partitions of the history takes longer than running. `lock_timeout` is named here so that
-- the value set below ends with the call.
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '10ms'
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_variable
DECLARE
    wish  record;
    tries integer := 0;
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true);
    FOR wish IN
        SELECT w.* FROM unnest(user_ids, proofs, client_errors, product_ids, idempotency_keys, origins, providers, signed_in_at)
                        WITH ORDINALITY AS w(user_id, proofs, client_error, product_ids, idempotency_key, origin, provider,
                                             signed_in_at, place)
         -- Sorted, because two callers that lock the same users in different orders could deadlock.
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
                              wish.idempotency_key, wish.origin, daily, asker, wish.provider, wish.signed_in_at) AS r;
        EXCEPTION
            WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
                -- An error of the server or the session concerns the whole call.
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

-- What `request_restore` and `app_restores` do once the user's key is known. `daily` null: no limit; `asker`: as in `app_restores`;
-- `provider`, `signed_in`: how and when the user had signed in; null: not known.
-- Returns the job that answers the request, and whether it was queued by this call. The errors are those of `request_restore`.
CREATE OR REPLACE FUNCTION restore_of(
    known           bigint,
    proofs          jsonb,
    client_error    text,
    product_ids     text[],
    idempotency_key text,
    origin          text,
    daily           integer,
    asker           text DEFAULT '',
    provider        text DEFAULT NULL,
    signed_in       timestamptz DEFAULT NULL,
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
        -- The request joins a queued job: its content is added to that of the earlier request.
        IF says THEN
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
        ELSIF EXISTS (SELECT 1 FROM queue AS q WHERE q.user_key = known AND q.has_request) THEN
            -- Every product is wanted from here on. The condition on `has_request` saves an update that opens the partitions of all days.
            UPDATE job_request AS r SET product_ids = NULL WHERE r.id = job AND r.product_ids IS NOT NULL;
        END IF;
        IF idempotency_key IS NOT NULL THEN
            UPDATE idempotency AS i SET job_id = job WHERE i.user_key = known AND i.key = idempotency_key;
        END IF;
        -- The worker needs none of it, so `has_request` does not count it.
        IF provider IS NOT NULL OR signed_in IS NOT NULL THEN
            INSERT INTO job_request AS r (id, sign_in_provider, signed_in_at) VALUES (job, provider, signed_in)
            ON CONFLICT (id) DO UPDATE SET sign_in_provider = excluded.sign_in_provider, signed_in_at = excluded.signed_in_at
             WHERE r.signed_in_at IS DISTINCT FROM excluded.signed_in_at
                OR r.sign_in_provider IS DISTINCT FROM excluded.sign_in_provider;
        END IF;
    ELSIF says OR provider IS NOT NULL OR signed_in IS NOT NULL THEN
        INSERT INTO job_request (id, proofs, client_error, product_ids, origin, sign_in_provider, signed_in_at)
        VALUES (fresh, kept, client_error, product_ids, origin, provider, signed_in);
    END IF;
    PERFORM pg_notify('entitlement_sync_wake', asker);
END
$$;

-- The id of the user's last restore, if it answers the request: the user had `daily` restores within a day, submits no new proof and has
-- none queued or running; the last one read the stores, and nothing has changed since. Null otherwise. Remembers the submitted proofs.
CREATE OR REPLACE FUNCTION last_result(known bigint, kept jsonb, daily integer) RETURNS uuid
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    added  bigint := 0;
    -- Variables, because an expression in a statement would be evaluated for each partition.
    since  uuid := first_id_at(now() - interval '1 day');
    until  uuid := first_id_at(clock_timestamp() + interval '1 minute');
    queued uuid;
    newest record;
BEGIN
    IF kept <> '[]' THEN
        -- A reported id proves nothing, so it is not remembered. No user has more than a hundred proofs of their own in a day.
        INSERT INTO shown_proof AS s (user_key, digest)
        SELECT DISTINCT known, sha256(convert_to(p.proof::text, 'UTF8')) FROM jsonb_array_elements(kept) AS p(proof)
         WHERE p.proof ->> 'kind' IN ('storekit_jws', 'app_receipt', 'purchase_token', 'onside_history')
           AND (SELECT count(*) FROM (SELECT 1 FROM shown_proof AS x WHERE x.user_key = known LIMIT 100) AS x) < 100
         ORDER BY 2
        ON CONFLICT (user_key, digest) DO UPDATE SET shown_at = now()
         WHERE s.shown_at < now() - interval '1 day';
        GET DIAGNOSTICS added = ROW_COUNT;
    END IF;
    -- Without a condition on `restore_id`: with old statistics PostgreSQL would read the index of that condition from end to end.
    SELECT q.restore_id INTO queued FROM queue AS q WHERE q.user_key = known;
    IF added > 0 OR queued IS NOT NULL THEN
        RETURN NULL;
    END IF;
    SELECT count(*) AS asked, max(h.id::text)::uuid AS id INTO newest FROM job_history AS h
     WHERE h.user_key = known AND h.kind = 0 AND h.id >= since AND h.id < until;
    IF newest.asked < daily THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT h.id FROM job_history AS h
             WHERE h.id = newest.id AND h.state = 'done' AND h.outcome <> 'store_unavailable'
               -- A change of type or an event about access since then would make the result untrue.
               AND NOT EXISTS (SELECT 1 FROM decision AS d
                                WHERE d.user_key = known AND d.at > h.finished_at AND d.type_before <> d.type_after)
               AND NOT EXISTS (SELECT 1 FROM user_sync AS u
                                WHERE u.user_key = known AND u.access_event_at > h.finished_at));
END
$$;

-- Restores as the app sees them: `state` is `queued`, `running`, `done`, `dead` or `canceled`. Ids that are no restore's are left out.
-- `age`: seconds since the request.
CREATE OR REPLACE FUNCTION restore_answers(ids uuid[])
RETURNS TABLE (id uuid, user_id text, state text, outcome text, message_key text,
               age double precision, products jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    wanted uuid;
    known  bigint;
BEGIN
    -- One by one, because a statement with one id opens only the partition of one day.
    FOREACH wanted IN ARRAY ids LOOP
        -- History first, because most of the restores have ended.
        SELECT h.id, h.user_key, h.state, h.outcome, h.message_key INTO id, known, state, outcome, message_key
          FROM job_history AS h WHERE h.id = wanted AND h.kind = 0;
        IF NOT FOUND THEN
            -- The function has one snapshot, so a restore that is not in the history is in the queue. Not by `job_status`: that view would
            -- join every user while few are known.
            SELECT q.user_key, CASE WHEN q.restore_id = wanted AND q.owner IS NOT NULL AND q.active = 0
                                    THEN 'running' ELSE 'queued' END,
                   (SELECT 'still_checking' FROM control AS c WHERE c.name = 'all' AND c.paused)
              INTO known, state, message_key
              FROM queue AS q WHERE q.restore_id = wanted OR q.restore_next = wanted LIMIT 1;
            CONTINUE WHEN NOT FOUND;
            id := wanted;
            outcome := NULL;
        END IF;
        -- Not joined: a plan made while few users are known would read all users for each job.
        SELECT u.user_id INTO user_id FROM user_sync AS u WHERE u.user_key = known;
        age := extract(epoch FROM clock_timestamp() - id_time(id))::double precision;
        -- An erased user gets no products.
        products := CASE WHEN user_id IS NOT NULL AND outcome IN ('restored', 'already_subscriber')
                         THEN restored_products(known, id) ELSE '[]' END;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Estimates in how many seconds a queued restore is done: from its due time, the restores before it and the stores' rate limits.
-- 0: it is not queued; null: unknown, because everything is paused.
CREATE OR REPLACE FUNCTION estimated_wait(job uuid) RETURNS double precision
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
    -- A full read takes at most two requests.
    SELECT max(greatest(extract(epoch FROM b.blocked_until - now()),
                        CASE WHEN l.cap > 0 THEN (2 * (ahead + 1) - greatest(b.tokens, 0)) * 60 / l.cap END))
      INTO budget
      FROM rate_budget AS b
     CROSS JOIN LATERAL (SELECT CASE WHEN b.per_minute = 0 OR b.seen_limit IS NULL THEN b.per_minute
                                     ELSE least(b.per_minute, b.seen_limit) END AS cap) AS l
     WHERE (b.refilled_at > now() - interval '10 minutes' OR b.blocked_until > now())
       -- If RevenueCat is in use, every read asks it, and few reads ask another store.
       AND (b.credential ~ '^revenuecat([.]|$)'
            OR NOT EXISTS (SELECT 1 FROM rate_budget AS x WHERE x.credential ~ '^revenuecat([.]|$)'));
    RETURN greatest(1, extract(epoch FROM mine - clock_timestamp()), budget);
END
$$;

-- The products that a restore lets the app deliver again: `restored_products_of` for the user and the products that the job requested.
CREATE OR REPLACE FUNCTION restored_products(known bigint, job uuid) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    wanted text[];
BEGIN
    SELECT r.product_ids INTO wanted FROM job_request AS r WHERE r.id = job;
    RETURN (SELECT f.products FROM restored_products_of(ARRAY[known], ARRAY[to_jsonb(wanted)::text]) AS f);
END
$$;

-- The products that apps may deliver again, one row per place of `keys`: each user's own purchases that give access, with their ends.
-- `wanted`: the requested product ids as JSON; null: all. Entitlements have the team's names from `product`, because the ledger holds
-- keys of products and of RevenueCat's entitlements.
CREATE OR REPLACE FUNCTION restored_products_of(keys bigint[], wanted text[]) RETURNS TABLE (place integer, products jsonb)
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT w.place::integer, coalesce(f.products, '[]')
      FROM unnest(keys, wanted) WITH ORDINALITY AS w(known, wanted, place)
     CROSS JOIN LATERAL (
           SELECT jsonb_agg(jsonb_build_object(
                      'store', p.store, 'product_id', p.product_id,
                      'entitlements', to_jsonb(entitlement_names(p.entitlements)),
                      'ends_at', to_char(p.period_ends_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
                      ORDER BY p.id) AS products
             FROM (SELECT x.* FROM purchase AS x
                    WHERE x.owner_key = w.known AND x.merged_into IS NULL AND cardinality(x.entitlements) > 0
                      AND coalesce(x.gives_access, x.status = 'owned')
                      AND (x.environment = 'production'
                           OR EXISTS (SELECT 1 FROM sandbox_access AS s JOIN user_sync AS u ON u.user_id = s.user_id
                                       WHERE u.user_key = w.known AND s.until > now()))
                      AND (w.wanted IS NULL OR w.wanted::jsonb ? x.product_id)
                    ORDER BY x.id DESC LIMIT 100) AS p) AS f;
END
$$;

-- What the app displays at its launch; no row if the id is no user's. `until`: when the known access ends; null: there is none, or it has
-- no end. `restore_suggested`: the user is eligible and no subscriber, but the stores may say otherwise: no full read was ever made,
-- the last restore failed, or a purchase or grant should give access.
CREATE OR REPLACE FUNCTION entitlement_answer(wanted text)
RETURNS TABLE (type text, until text, restore_suggested boolean, tickets jsonb, stores jsonb, entitlements jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT h.type,
           CASE WHEN a.endless IS NOT TRUE
                THEN to_char(a.until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') END,
           h.type <> 'subscriber' AND is_eligible(h.status)
               AND (u.full_read_at IS NULL OR coalesce(l.failed, false) OR coalesce(a.endless OR a.until > now(), false)),
           -- One entry, under the restore that first led to a ticket. How many tickets there are, and since when, depends on what was
           -- found, and a user must not learn from it whether an id exists.
           coalesce((SELECT jsonb_build_array(jsonb_build_object(
                                'reference', reference_of('R', f.id),
                                'state', CASE WHEN EXISTS (
                                    SELECT 1 FROM ticket AS t
                                     WHERE t.claimant_key = u.user_key AND t.visible
                                       AND is_open(t.state))
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
                       FROM store_health AS s), '[]'),
           coalesce((SELECT jsonb_agg(jsonb_build_object(
                                'id', e.entitlement, 'store', e.store, 'source', e.source, 'product_id', e.product_id,
                                'ends_at', to_char(e.ends_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                                'will_renew', e.will_renew))
                       FROM entitlement_status AS e WHERE e.user_id = u.user_id), '[]')
      FROM entitlement_sync_host.read_users(ARRAY[wanted]) AS h
      -- OFFSET 0 keeps this apart: PostgreSQL assumes that a function returns many rows, and would read all users for them.
      LEFT JOIN LATERAL (SELECT x.* FROM user_sync AS x WHERE x.user_id = h.id OFFSET 0) AS u ON true
      LEFT JOIN LATERAL (
            SELECT max(x.until) AS until, bool_or(x.until IS NULL OR x.until = 'infinity') AS endless
              FROM (SELECT CASE WHEN p.environment = 'production' THEN p.period_ends_at
                                -- A tester's access ends with the row in `sandbox_user`, whatever the store's sandbox says.
                                ELSE least(p.period_ends_at, s.until) END AS until
                      FROM (SELECT o.* FROM purchase AS o WHERE o.owner_key = u.user_key AND o.merged_into IS NULL
                            UNION ALL
                            SELECT l.* FROM account_lines(u.user_key) AS l) AS p
                      LEFT JOIN sandbox_access AS s
                             ON s.user_id = h.id AND s.until > now() AND p.environment <> 'production'
                     WHERE coalesce(p.gives_access, p.status = 'owned')
                       AND (p.environment = 'production' OR s.user_id IS NOT NULL)
                       -- A purchase without such an entitlement, for example stickers, is no access.
                       AND means_access(p.entitlements)
                    UNION ALL
                    SELECT g.until FROM "grant" AS g
                     WHERE g.user_key = u.user_key AND g.revoked_at IS NULL AND g.until > now()) AS x) AS a ON true
      LEFT JOIN LATERAL (
            SELECT j.state = 'dead' OR j.outcome = 'store_unavailable' AS failed FROM job_history AS j
             WHERE j.user_key = u.user_key AND j.kind = 0 ORDER BY j.id DESC LIMIT 1) AS l ON true;
END
$$;

-- The team's names, from `product`, for the entitlements of purchases: the ledger holds keys of products and of RevenueCat's entitlements.
CREATE OR REPLACE FUNCTION entitlement_names(keys text[]) RETURNS text[]
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT coalesce(array_agg(DISTINCT n.name ORDER BY n.name), '{}')
      FROM unnest(keys) AS k(key) CROSS JOIN LATERAL product_access_of(k.key) AS a CROSS JOIN LATERAL unnest(a.entitlements) AS n(name)
$$;
