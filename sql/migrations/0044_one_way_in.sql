-- compatible_from: 44
-- One set of rules takes restores, alone or many at once.

DROP FUNCTION app_restore(text, jsonb, text, text[], text, text, integer);
DROP FUNCTION app_restores(text[], text[], text[], text[], text[], text[], integer, text);
DROP FUNCTION plain_restores(text[], text[], integer, integer[], text);
DROP FUNCTION restore_of(bigint, jsonb, text, text[], text, text, integer);

-- Puts a job into a user's row, or joins the one that is queued. Answers the job that does the work.
CREATE OR REPLACE FUNCTION enqueue(
    for_user bigint,
    job_kind smallint,
    job_lane smallint,
    fresh    uuid,
    says     boolean DEFAULT false
) RETURNS uuid
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at          timestamptz := clock_timestamp();
    answered_by uuid;
BEGIN
    IF job_kind <> 0 THEN
        SELECT e.answered_by INTO answered_by FROM enqueue_reconciles(ARRAY[for_user], job_lane, ARRAY[fresh], says) AS e;
        RETURN answered_by;
    END IF;
    INSERT INTO queue AS q (user_key, due, lane, restore_id, restore_due, said) VALUES (for_user, at, 0, fresh, at, says)
    ON CONFLICT (user_key) DO UPDATE SET
        restore_id   = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0 THEN q.restore_id
                            ELSE coalesce(q.restore_id, excluded.restore_id) END,
        restore_due  = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0 THEN q.restore_due
                            ELSE least(q.restore_due, at) END,
        restore_next = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0
                            THEN coalesce(q.restore_next, excluded.restore_id) ELSE q.restore_next END,
        said         = q.said OR says,
        lane         = CASE WHEN q.owner IS NOT NULL OR q.lane = 9 THEN q.lane ELSE 0 END,
        -- Of those that wait for a sweep the restore is due now: claims look for restores from where the last one ended.
        due          = CASE WHEN q.owner IS NOT NULL THEN q.due WHEN q.lane IN (1, 2) THEN at ELSE least(q.due, at) END
    RETURNING CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0 THEN q.restore_next ELSE q.restore_id END
         INTO answered_by;
    RETURN answered_by;
END
$$;
DROP FUNCTION enqueue_restores(bigint[], uuid[], boolean);

-- What `request_restore` and `app_restores` do once the user is known; see there for `daily` and `asker`.
CREATE FUNCTION restore_of(
    known           bigint,
    proofs          jsonb,
    client_error    text,
    product_ids     text[],
    idempotency_key text,
    origin          text,
    daily           integer,
    asker           text DEFAULT '',
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
        ELSIF EXISTS (SELECT 1 FROM queue AS q WHERE q.user_key = known AND q.said) THEN
            -- Every product is wanted now. A change opens every day's requests, and most have said nothing.
            UPDATE job_request AS r SET product_ids = NULL WHERE r.id = job AND r.product_ids IS NOT NULL;
        END IF;
        IF idempotency_key IS NOT NULL THEN
            UPDATE idempotency AS i SET job_id = job WHERE i.user_key = known AND i.key = idempotency_key;
        END IF;
    ELSIF says THEN
        INSERT INTO job_request (id, proofs, client_error, product_ids, origin)
        VALUES (fresh, kept, client_error, product_ids, origin);
    END IF;
    PERFORM pg_notify('entitlement_sync_wake', asker);
END
$$;

-- Restores as apps ask for them, in one transaction: each is taken as `request_restore` takes it, but whoever asked `daily`
-- times within a day and shows nothing new is answered from the last result. `proofs` and `product_ids` are JSON. Whoever is
-- refused spoils nothing for the others: `state`, `message` and `hint` say why. Who is held by somebody else for longer than
-- `patience`, in milliseconds, is refused with 55P03, and after four of them nobody waits any more. `asker` goes into the
-- notification: whose process it is need not hear it. `is_new`: the job was queued just now.
CREATE FUNCTION app_restores(
    user_ids         text[],
    proofs           text[],
    client_errors    text[],
    product_ids      text[],
    idempotency_keys text[],
    origins          text[],
    daily            integer DEFAULT 10,
    asker            text DEFAULT '',
    patience         integer DEFAULT 10
) RETURNS TABLE (place integer, id uuid, is_new boolean, state text, message text, hint text)
-- Plans are kept: over the partitions of the history, to make one takes longer than to run it. With `lock_timeout` named
-- here, what is set below ends with the call.
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '10ms'
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_variable
DECLARE
    wish  record;
    tries integer := 0;
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true);
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
                              wish.idempotency_key, wish.origin, daily, asker) AS r;
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

REVOKE ALL ON FUNCTION restore_of, app_restores FROM PUBLIC;
SELECT grant_to('entitlement_sync_api', ARRAY['GRANT EXECUTE ON FUNCTION app_restores TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION app_restores TO %I']);
DELETE FROM role_privilege WHERE kind = 'function' AND object IN ('app_restore', 'enqueue_restores');
