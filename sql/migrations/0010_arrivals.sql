-- Restores that a process takes itself are not announced to it: it knows before the notification comes. And what is the same
-- for all of them is asked once.

DROP FUNCTION app_restores(text[], text[], text[], text[], text[], text[], integer);
DROP FUNCTION plain_restores(text[], text[], integer, integer[]);

-- The restores that say nothing but who asks, at the given places of `user_ids`, all at once. Left out is whoever has to be
-- looked at alone: who is no user or was never heard of, asks twice, has asked too often, or repeats an idempotency key.
-- `asker` goes into the notification: whose process it is need not hear it.
CREATE FUNCTION plain_restores(
    user_ids         text[],
    idempotency_keys text[],
    daily            integer,
    places           integer[],
    asker            text DEFAULT ''
) RETURNS TABLE (place integer, id uuid, is_new boolean)
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    since uuid := first_id_at(now() - interval '1 day');
    until uuid := first_id_at(clock_timestamp() + interval '1 minute');
    spots integer[];
    keys  bigint[];
    fresh uuid[];
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
     CROSS JOIN LATERAL (SELECT x.* FROM user_sync AS x WHERE x.user_id = user_ids[p.place] OFFSET 0) AS u
     WHERE (SELECT count(*) FROM unnest(user_ids) AS x(user_id) WHERE x.user_id = u.user_id) = 1
       AND u.user_id IN (SELECT h.id FROM entitlement_sync_host.read_users(user_ids) AS h)
       AND coalesce(length(idempotency_keys[p.place]), 0) <= 255
       AND (SELECT count(*) FROM job_history AS h
             WHERE h.user_key = u.user_key AND h.kind = 0 AND h.id >= since AND h.id < until) < daily;
    IF array_remove(idempotency_keys, NULL) <> '{}' THEN
        WITH remembered AS (
            INSERT INTO idempotency AS i (user_key, key, request, job_id)
            SELECT w.key, idempotency_keys[w.place],
                   sha256(convert_to(jsonb_build_array('[]'::jsonb, NULL, NULL, NULL)::text, 'UTF8')), w.id
              FROM unnest(spots, keys, fresh) AS w(place, key, id)
             WHERE idempotency_keys[w.place] IS NOT NULL
             ORDER BY w.key
            ON CONFLICT (user_key, key) DO NOTHING
            RETURNING user_key
        )
        SELECT array_agg(w.place), array_agg(w.key), array_agg(w.id) INTO spots, keys, fresh
          FROM unnest(spots, keys, fresh) AS w(place, key, id)
         WHERE idempotency_keys[w.place] IS NULL OR EXISTS (SELECT 1 FROM remembered AS r WHERE r.user_key = w.key);
    END IF;
    IF keys IS NULL THEN
        RETURN;
    END IF;
    ids := ARRAY(SELECT e.answered_by FROM unnest(keys) WITH ORDINALITY AS w(key, n)
                   JOIN enqueue_restores(keys, fresh) AS e ON e.user_key = w.key ORDER BY w.n);
    IF ids <> fresh THEN
        met := ARRAY(SELECT m.id FROM unnest(ids) AS m(id) WHERE m.id <> ALL (fresh) ORDER BY m.id);
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
    PERFORM pg_notify('entitlement_sync_wake', asker);
    RETURN QUERY SELECT w.place, w.id, w.id = w.fresh FROM unnest(spots, ids, fresh) AS w(place, id, fresh);
END
$$;

-- Several restores in one transaction, each as `app_restore` takes it; `proofs` and `product_ids` are JSON. Whoever is
-- refused spoils nothing for the others: `state`, `message` and `hint` say why. Who is held by somebody else for longer
-- than a moment is refused with 55P03, and after four of them nobody waits any more. `asker`: see `plain_restores`.
CREATE FUNCTION app_restores(
    user_ids         text[],
    proofs           text[],
    client_errors    text[],
    product_ids      text[],
    idempotency_keys text[],
    origins          text[],
    daily            integer DEFAULT 10,
    asker            text DEFAULT ''
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
                       WHERE w.proofs = '[]' AND w.client_error IS NULL AND w.product_ids IS NULL AND w.origin IS NULL),
                asker) AS r
        LOOP
            taken := taken || place;
            RETURN NEXT;
        END LOOP;
    EXCEPTION
        -- One of them is held, or no id that the host's tables can hold: each by itself, to find out who. Nobody was
        -- returned, as whoever is comes after the work.
        WHEN lock_not_available OR deadlock_detected OR data_exception THEN NULL;
    END;
    IF cardinality(taken) = cardinality(user_ids) THEN
        RETURN;
    END IF;
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

REVOKE ALL ON FUNCTION plain_restores, app_restores FROM PUBLIC;
SELECT grant_to('entitlement_sync_api', ARRAY['GRANT EXECUTE ON FUNCTION app_restores TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION app_restores TO %I']);
