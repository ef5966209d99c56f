-- What people wait for costs the database less: restores that are asked for at once are queued together, and of the history
-- those days alone are opened that can hold what is looked for (the days to come have their partitions already).

-- The smallest id of an instant, for range bounds. Planned once a session: as a function of SQL that can't be inlined it was
-- planned for every statement.
CREATE OR REPLACE FUNCTION first_id_at(at timestamptz) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (encode(substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3), 'hex')
            || '00000000000000000000')::uuid;
END
$$;

-- The last restore's id, where it answers a user who asks again: one who asked `daily` times within a day, shows nothing new,
-- has none queued, and was not put off by a store. Remembers what is shown.
CREATE OR REPLACE FUNCTION last_result(known bigint, kept jsonb, daily integer) RETURNS uuid
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    added  bigint := 0;
    -- Bounds and not expressions: what stands in a statement is worked out for each partition.
    since  uuid := first_id_at(now() - interval '1 day');
    until  uuid := first_id_at(clock_timestamp() + interval '1 minute');
    queued uuid;
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
    -- Not asked with a condition: the index of that condition would be read from end to end where the statistics are old.
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
               -- What has happened since would make it untrue.
               AND NOT EXISTS (SELECT 1 FROM decision AS d
                                WHERE d.user_key = known AND d.at > h.finished_at AND d.type_before <> d.type_after)
               AND NOT EXISTS (SELECT 1 FROM user_sync AS u
                                WHERE u.user_key = known AND u.promised_at > h.finished_at));
END
$$;

-- Puts a restore into each user's row, or joins the one that is queued, as `enqueue` does for one: `fresh` holds an id for
-- each.
CREATE FUNCTION enqueue_restores(keys bigint[], fresh uuid[], says boolean DEFAULT false)
RETURNS TABLE (user_key bigint, answered_by uuid)
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO queue AS q (user_key, due, lane, restore_id, restore_due, said)
    -- In one order, or two that queue the same users wait for each other.
    SELECT w.key, at, 0, w.id, at, says FROM unnest(keys, fresh) AS w(key, id) ORDER BY w.key
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
    RETURNING q.user_key, CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0 THEN q.restore_next
                               ELSE q.restore_id END;
END
$$;

-- As before; what is done for one user is what is done for many.
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
BEGIN
    IF job_kind = 0 THEN
        SELECT e.answered_by INTO answered_by FROM enqueue_restores(ARRAY[for_user], ARRAY[fresh], says) AS e;
    ELSE
        SELECT e.answered_by INTO answered_by FROM enqueue_reconciles(ARRAY[for_user], job_lane, ARRAY[fresh], says) AS e;
    END IF;
    RETURN answered_by;
END
$$;

-- The restores that say nothing but who asks, at the given places of `user_ids`, all at once. Left out is whoever has to be
-- looked at alone: who is no user or was never heard of, asks twice, has asked too often, or repeats an idempotency key.
CREATE FUNCTION plain_restores(user_ids text[], idempotency_keys text[], daily integer, places integer[])
RETURNS TABLE (place integer, id uuid, is_new boolean)
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    since uuid := first_id_at(now() - interval '1 day');
    until uuid := first_id_at(clock_timestamp() + interval '1 minute');
    spots integer[];
    keys  bigint[];
    fresh uuid[];
    apart bigint[];
    ids   uuid[];
    -- The jobs that were joined, and bounds of theirs, by which the days that can hold none of them are left alone.
    met   uuid[];
    low   uuid;
    high  uuid;
BEGIN
    IF cardinality(places) = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(p.place), array_agg(u.user_key), array_agg(new_id()) INTO spots, keys, fresh
      FROM unnest(places) AS p(place)
      JOIN user_sync AS u ON u.user_id = user_ids[p.place]
     WHERE (SELECT count(*) FROM unnest(user_ids) AS x(user_id) WHERE x.user_id = u.user_id) = 1
       AND u.user_id IN (SELECT h.id FROM entitlement_sync_host.read_users(user_ids) AS h)
       AND coalesce(length(idempotency_keys[p.place]), 0) <= 255;
    apart := ARRAY(SELECT w.key FROM unnest(keys) AS w(key)
                    WHERE (SELECT count(*) FROM job_history AS h
                            WHERE h.user_key = w.key AND h.kind = 0 AND h.id >= since AND h.id < until) >= daily);
    WITH remembered AS (
        INSERT INTO idempotency AS i (user_key, key, request, job_id)
        SELECT w.key, idempotency_keys[w.place],
               sha256(convert_to(jsonb_build_array('[]'::jsonb, NULL, NULL, NULL)::text, 'UTF8')), w.id
          FROM unnest(spots, keys, fresh) AS w(place, key, id)
         WHERE idempotency_keys[w.place] IS NOT NULL AND w.key <> ALL (apart)
         ORDER BY w.key
        ON CONFLICT (user_key, key) DO NOTHING
        RETURNING user_key
    )
    SELECT array_agg(w.place), array_agg(w.key), array_agg(w.id) INTO spots, keys, fresh
      FROM unnest(spots, keys, fresh) AS w(place, key, id)
     WHERE w.key <> ALL (apart)
       AND (idempotency_keys[w.place] IS NULL OR EXISTS (SELECT 1 FROM remembered AS r WHERE r.user_key = w.key));
    IF keys IS NULL THEN
        RETURN;
    END IF;
    ids := ARRAY(SELECT e.answered_by FROM unnest(keys) WITH ORDINALITY AS w(key, n)
                   JOIN enqueue_restores(keys, fresh) AS e ON e.user_key = w.key ORDER BY w.n);
    met := ARRAY(SELECT m.id FROM unnest(ids) AS m(id) WHERE m.id <> ALL (fresh) ORDER BY m.id);
    IF met <> '{}' THEN
        low := met[1];
        high := met[cardinality(met)];
        -- Joined: every product is wanted now, and the keys answer with the job that was there. A change opens every day's
        -- requests, and most have said nothing.
        IF EXISTS (SELECT 1 FROM queue AS q WHERE q.user_key = ANY (keys) AND q.said) THEN
            UPDATE job_request AS r SET product_ids = NULL
             WHERE r.id = ANY (met) AND r.id >= low AND r.id <= high AND r.product_ids IS NOT NULL;
        END IF;
        UPDATE idempotency AS i SET job_id = w.id
          FROM unnest(spots, keys, ids, fresh) AS w(place, key, id, fresh)
         WHERE i.user_key = w.key AND i.key = idempotency_keys[w.place] AND w.id <> w.fresh;
    END IF;
    PERFORM pg_notify('entitlement_sync_wake', '');
    RETURN QUERY SELECT w.place, w.id, w.id = w.fresh FROM unnest(spots, ids, fresh) AS w(place, id, fresh);
END
$$;

-- Several restores in one transaction, each as `app_restore` takes it; `proofs` and `product_ids` are JSON. Whoever is
-- refused spoils nothing for the others: `state`, `message` and `hint` say why. Who is held by somebody else for longer
-- than a moment is refused with 55P03, and after four of them nobody waits any more.
CREATE OR REPLACE FUNCTION app_restores(
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
    taken integer[] := '{}';
BEGIN
    BEGIN
        FOR place, id, is_new IN
            SELECT r.place, r.id, r.is_new FROM plain_restores(
                user_ids, idempotency_keys, daily,
                ARRAY(SELECT w.place::integer FROM unnest(user_ids, proofs, client_errors, product_ids, origins)
                             WITH ORDINALITY AS w(user_id, proofs, client_error, product_ids, origin, place)
                       WHERE w.proofs = '[]' AND w.client_error IS NULL AND w.product_ids IS NULL AND w.origin IS NULL)) AS r
        LOOP
            taken := taken || place;
            RETURN NEXT;
        END LOOP;
    EXCEPTION
        -- One of them is held, or no id that the host's tables can hold: each by itself, to find out who. Nobody was
        -- returned, as whoever is comes after the work.
        WHEN lock_not_available OR deadlock_detected OR data_exception THEN NULL;
    END;
    FOR wish IN
        SELECT w.* FROM unnest(user_ids, proofs, client_errors, product_ids, idempotency_keys, origins) WITH ORDINALITY
                        AS w(user_id, proofs, client_error, product_ids, idempotency_key, origin, place)
         WHERE w.place <> ALL (taken)
         -- In one order; where two wait for each other all the same, by those above, `lock_timeout` parts them.
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

-- Restores as the app sees them; ids that are no restore's are left out. `age`: seconds since it was asked for.
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
    -- One by one: a statement that looks for one id opens one day.
    FOREACH wanted IN ARRAY ids LOOP
        -- Most are asked about because they have ended.
        SELECT h.id, h.user_key, u.user_id, h.state, h.outcome, h.message_key
          INTO id, known, user_id, state, outcome, message_key
          FROM job_history AS h JOIN user_sync AS u ON u.user_key = h.user_key
         WHERE h.id = wanted AND h.kind = 0;
        IF NOT FOUND THEN
            SELECT s.id, s.user_id, s.state, s.outcome, s.message_key INTO id, user_id, state, outcome, message_key
              FROM job_status AS s WHERE s.id = wanted AND s.kind = 'restore' LIMIT 1;
            CONTINUE WHEN NOT FOUND;
        END IF;
        age := extract(epoch FROM clock_timestamp() - id_time(id))::double precision;
        -- Of whoever is erased nothing is told.
        products := CASE WHEN user_id IS NOT NULL AND outcome IN ('restored', 'already_subscriber')
                         THEN restored_products(known, id) ELSE '[]' END;
        RETURN NEXT;
    END LOOP;
END
$$;

-- A few of many are looked for: merging reads an index from its beginning, however large the table is.
ALTER FUNCTION drain_inbox(integer) SET enable_mergejoin = off;

REVOKE ALL ON FUNCTION enqueue_restores, plain_restores FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT EXECUTE ON FUNCTION enqueue_restores, restored_products, entitlement_names TO %I']);
