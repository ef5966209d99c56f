-- What others call: requests, and views that answer. Callable inside the host's own transaction, from any language.

CREATE UNIQUE INDEX queue_restore ON queue (restore_id) WHERE restore_id IS NOT NULL;
CREATE UNIQUE INDEX queue_reconcile ON queue (reconcile_id) WHERE reconcile_id IS NOT NULL;
CREATE UNIQUE INDEX queue_restore_next ON queue (restore_next) WHERE restore_next IS NOT NULL;
CREATE UNIQUE INDEX queue_reconcile_next ON queue (reconcile_next) WHERE reconcile_next IS NOT NULL;

-- The key of a user who exists in the host's tables; ES001 otherwise.
CREATE FUNCTION user_key_of(wanted text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    found_key bigint;
BEGIN
    IF wanted IS NULL OR NOT EXISTS (SELECT 1 FROM entitlement_sync_host.read_users(ARRAY[wanted])) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES001', MESSAGE = 'user_id: no such user',
            HINT = 'Create the user first, and pass the id that stands in the users table.';
    END IF;
    SELECT u.user_key INTO found_key FROM user_sync AS u WHERE u.user_id = wanted;
    IF found_key IS NULL THEN
        -- Not DO UPDATE: it would hold the row of a user whom another tap made known for as long as this transaction lasts.
        INSERT INTO user_sync (user_id) VALUES (wanted) ON CONFLICT (user_id) DO NOTHING;
        SELECT u.user_key INTO found_key FROM user_sync AS u WHERE u.user_id = wanted;
    END IF;
    RETURN found_key;
END
$$;

-- Proofs as they are kept: checked, without repeats, in their order. ES002 names the index and the field.
CREATE FUNCTION checked_proofs(proofs jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    n     integer := 0;
    proof jsonb;
    field text;
    kept  jsonb := '[]';
BEGIN
    IF proofs IS NULL OR proofs = '[]' THEN
        RETURN '[]';
    END IF;
    IF jsonb_typeof(proofs) <> 'array' THEN
        RAISE EXCEPTION USING ERRCODE = 'ES002', MESSAGE = 'proofs: must be a JSON array',
            HINT = 'Pass [{"store": …, "kind": …, "value": …}], or [].';
    END IF;
    IF jsonb_array_length(proofs) > 20 THEN
        RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = 'proofs: at most 20 are taken',
            HINT = 'Send the newest proof of each purchase.';
    END IF;
    FOR proof IN SELECT * FROM jsonb_array_elements(proofs) LOOP
        IF jsonb_typeof(proof) <> 'object' THEN
            RAISE EXCEPTION USING ERRCODE = 'ES002', MESSAGE = format('proofs[%s]: must be an object', n),
                HINT = 'Each proof has the fields store, kind and value.';
        END IF;
        FOREACH field IN ARRAY ARRAY['store', 'kind', 'value'] LOOP
            IF jsonb_typeof(proof -> field) IS DISTINCT FROM 'string' OR proof ->> field = '' THEN
                RAISE EXCEPTION USING ERRCODE = 'ES002',
                    MESSAGE = format('proofs[%s].%s: must be a string that is not empty', n, field),
                    HINT = 'Each proof has the fields store, kind and value.';
            END IF;
        END LOOP;
        -- RevenueCat's name of the store, which the app may have at hand.
        IF proof ->> 'store' = 'play_store' THEN
            proof := jsonb_set(proof, '{store}', '"google_play"');
        END IF;
        IF proof ->> 'store' NOT IN ('app_store', 'google_play', 'onside') THEN
            RAISE EXCEPTION USING ERRCODE = 'ES002', MESSAGE = format('proofs[%s].store: unknown store', n),
                HINT = 'Use app_store, google_play or onside.';
        END IF;
        IF proof ->> 'kind' NOT IN ('storekit_jws', 'app_receipt', 'purchase_token', 'onside_history',
                                    'onside_order_id', 'transaction_id', 'order_id') THEN
            RAISE EXCEPTION USING ERRCODE = 'ES002', MESSAGE = format('proofs[%s].kind: unknown kind', n),
                HINT = 'Use storekit_jws, app_receipt, purchase_token, onside_history, onside_order_id, '
                       'transaction_id or order_id.';
        END IF;
        IF (proof ->> 'kind' IN ('storekit_jws', 'app_receipt') AND proof ->> 'store' <> 'app_store')
           OR (proof ->> 'kind' = 'purchase_token' AND proof ->> 'store' <> 'google_play')
           OR (proof ->> 'kind' IN ('onside_history', 'onside_order_id') AND proof ->> 'store' <> 'onside') THEN
            RAISE EXCEPTION USING ERRCODE = 'ES002',
                MESSAGE = format('proofs[%s].store: this kind is not one of that store', n),
                HINT = 'storekit_jws and app_receipt are app_store''s, purchase_token is google_play''s, onside_… onside''s.';
        END IF;
        IF length(proof ->> 'value') > 1048576 THEN
            RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = format('proofs[%s].value: longer than 1 MiB', n),
                HINT = 'Send the signed transaction in place of the whole receipt.';
        END IF;
        IF proof ->> 'kind' IN ('transaction_id', 'order_id', 'onside_order_id') AND length(proof ->> 'value') > 255 THEN
            RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = format('proofs[%s].value: longer than 255', n),
                HINT = 'An order or transaction id is a short text.';
        END IF;
        proof := jsonb_build_object('store', proof -> 'store', 'kind', proof -> 'kind', 'value', proof -> 'value');
        IF NOT kept @> jsonb_build_array(proof) THEN
            kept := kept || jsonb_build_array(proof);
        END IF;
        n := n + 1;
    END LOOP;
    RETURN kept;
END
$$;

-- Puts a restore (kind 0) or reconcile (kind 1) into the user's row and returns the id that will answer:
-- that of the job already queued, or `fresh`. While one runs, the id of its one successor; so also while a job whose
-- cancellation was asked for waits to be ended after its worker died. `says`: the job has a row in job_request.
CREATE FUNCTION enqueue(
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
        INSERT INTO queue AS q (user_key, due, lane, reconcile_id, reconcile_due, reconcile_lane, said)
        VALUES (for_user, at, job_lane, fresh, at, job_lane, says)
        ON CONFLICT (user_key) DO UPDATE SET
            reconcile_id   = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1 THEN q.reconcile_id ELSE coalesce(q.reconcile_id, fresh) END,
            reconcile_due  = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1 THEN q.reconcile_due ELSE least(q.reconcile_due, at) END,
            reconcile_lane = least(q.reconcile_lane, job_lane),
            reconcile_next = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1 THEN coalesce(q.reconcile_next, fresh) ELSE q.reconcile_next END,
            due            = CASE WHEN q.owner IS NOT NULL THEN q.due ELSE least(q.due, at) END,
            said           = q.said OR says,
            lane           = CASE WHEN q.owner IS NOT NULL OR q.lane = 9 THEN q.lane ELSE least(q.lane, job_lane) END
        RETURNING CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1 THEN q.reconcile_next ELSE q.reconcile_id END INTO answered_by;
    END IF;
    RETURN answered_by;
END
$$;

CREATE FUNCTION request_restore(
    user_id         text,
    proofs          jsonb  DEFAULT '[]',
    client_error    text   DEFAULT NULL,
    product_ids     text[] DEFAULT NULL,
    idempotency_key text   DEFAULT NULL,
    origin          text   DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    known      bigint;
    kept       jsonb;
    fresh      uuid := new_id();
    answer     uuid;
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
    known := user_key_of(user_id);
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
            RETURN remembered.job_id;
        END IF;
    END IF;
    says := kept <> '[]' OR client_error IS NOT NULL OR product_ids IS NOT NULL OR origin IS NOT NULL;
    answer := enqueue(known, 0::smallint, 0::smallint, fresh, says);
    IF answer <> fresh THEN
        -- Joined: what the earlier tap said and what this one says are one request now.
        INSERT INTO job_request AS r (id, proofs, client_error, product_ids, origin)
        SELECT answer, kept, client_error, CASE WHEN EXISTS (SELECT 1 FROM job_request AS x WHERE x.id = answer)
                                                THEN product_ids END, origin
        ON CONFLICT (id) DO UPDATE SET
            proofs       = united_proofs(r.proofs, excluded.proofs),
            client_error = coalesce(excluded.client_error, r.client_error),
            product_ids  = CASE WHEN r.product_ids IS NULL OR excluded.product_ids IS NULL THEN NULL
                                ELSE ARRAY(SELECT DISTINCT p.id FROM unnest(r.product_ids || excluded.product_ids) AS p(id)
                                            ORDER BY p.id LIMIT 100) END,
            origin       = coalesce(excluded.origin, r.origin);
        IF idempotency_key IS NOT NULL THEN
            UPDATE idempotency AS i SET job_id = answer WHERE i.user_key = known AND i.key = idempotency_key;
        END IF;
    ELSIF says THEN
        INSERT INTO job_request (id, proofs, client_error, product_ids, origin)
        VALUES (fresh, kept, client_error, product_ids, origin);
    END IF;
    PERFORM pg_notify('entitlement_sync_wake', '');
    RETURN answer;
END
$$;

-- The newest proofs of both, without repeats, at most 20.
CREATE FUNCTION united_proofs(earlier jsonb, later jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT coalesce(jsonb_agg(kept.proof ORDER BY kept.place), '[]')
      FROM (SELECT each.proof, max(each.place) AS place
              FROM (SELECT e.proof, e.n AS place FROM jsonb_array_elements(coalesce(earlier, '[]')) WITH ORDINALITY AS e(proof, n)
                    UNION ALL
                    SELECT l.proof, 1000 + l.n FROM jsonb_array_elements(coalesce(later, '[]')) WITH ORDINALITY AS l(proof, n)
                   ) AS each
             GROUP BY each.proof
             ORDER BY 2 DESC
             LIMIT 20) AS kept
$$;

CREATE FUNCTION request_reconcile(user_id text, reason text DEFAULT 'manual') RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    fresh  uuid := new_id();
    answer uuid;
BEGIN
    IF length(reason) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = 'reason: longer than 200', HINT = 'Say it in a few words.';
    END IF;
    answer := enqueue(user_key_of(user_id), 1::smallint, 2::smallint, fresh);
    IF answer = fresh AND reason IS DISTINCT FROM 'manual' THEN
        INSERT INTO job_request (id, reason) VALUES (fresh, reason);
    END IF;
    RETURN answer;
END
$$;

-- Every id that a request returned. A live row outranks history: a dead job that was retried lives again.
CREATE VIEW job_status AS
SELECT j.id, reference_of('R', j.id) AS reference,
       CASE j.kind WHEN 0 THEN 'restore' ELSE 'reconcile' END AS kind,
       u.user_id, j.state, j.outcome, j.message_key, j.ticket_id, j.attempt::integer,
       id_time(j.id) AS created_at, j.finished_at, j.last_error
  FROM (
    SELECT q.restore_id AS id, q.user_key, 0::smallint AS kind,
           CASE WHEN q.owner IS NOT NULL AND q.active = 0 THEN 'running' ELSE 'queued' END AS state,
           NULL::text AS outcome, (SELECT 'still_checking' FROM control AS c WHERE c.name = 'all' AND c.paused) AS message_key, NULL::bigint AS ticket_id,
           q.restore_attempt AS attempt, NULL::timestamptz AS finished_at, q.restore_error AS last_error
      FROM queue AS q
    UNION ALL
    SELECT q.reconcile_id, q.user_key, 1::smallint, CASE WHEN q.owner IS NOT NULL AND q.active = 1 THEN 'running' ELSE 'queued' END,
           NULL, NULL, NULL, q.reconcile_attempt, NULL, q.reconcile_error
      FROM queue AS q
    UNION ALL
    SELECT q.restore_next, q.user_key, 0::smallint, 'queued', NULL,
           (SELECT 'still_checking' FROM control AS c WHERE c.name = 'all' AND c.paused), NULL, 0::smallint, NULL, NULL
      FROM queue AS q
    UNION ALL
    SELECT q.reconcile_next, q.user_key, 1::smallint, 'queued', NULL, NULL, NULL, 0::smallint, NULL, NULL
      FROM queue AS q
    UNION ALL
    SELECT h.id, h.user_key, h.kind, h.state, h.outcome, h.message_key, h.ticket_id, h.attempt, h.finished_at, h.last_error
      FROM job_history AS h
  ) AS j
  JOIN user_sync AS u ON u.user_key = j.user_key
 -- Here and not in the branches: a condition there would keep the planner from reaching each by its index.
 WHERE j.id IS NOT NULL;

CREATE VIEW ticket_status AS
SELECT t.id, reference_of('T', t.uid) AS reference, c.user_id, o.user_id AS purchase_owner_id,
       t.store, t.original_id, t.kind, t.state, t.touches, t.created_at
  FROM ticket AS t
  JOIN user_sync AS c ON c.user_key = t.claimant_key
  LEFT JOIN user_sync AS o ON o.user_key = t.owner_key;

CREATE VIEW decision_log AS
SELECT d.id, u.user_id, d.job_id, d.at, d.rule, d.outcome, d.type_before, d.type_after,
       d.assets_changed + coalesce((SELECT sum(b.changed) FROM asset_batch AS b WHERE b.decision_id = d.id), 0)::integer
           AS assets_changed,
       CASE WHEN d.observed THEN d.explanation || ' (observed only: nothing was written)' ELSE d.explanation END
           AS explanation
  FROM decision AS d
  JOIN user_sync AS u ON u.user_key = d.user_key;

CREATE VIEW inbox_log AS
SELECT i.source, i.event_id, i.received_at, i.state FROM inbox AS i;

-- Puts dead jobs back into the queue under their own ids; those whose user has such a job queued already stay.
CREATE FUNCTION requeue_dead(ids uuid[]) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    old   record;
    moved integer := 0;
BEGIN
    FOR old IN SELECT h.id, h.user_key, h.kind FROM job_history AS h
                WHERE h.id = ANY (ids) AND h.state = 'dead' ORDER BY h.user_key, h.id
                  FOR UPDATE LOOP
        IF enqueue(old.user_key, old.kind, 2::smallint, old.id, true) = old.id THEN
            DELETE FROM job_history AS h WHERE h.id = old.id AND h.state = 'dead';
            moved := moved + 1;
        END IF;
    END LOOP;
    IF moved > 0 THEN
        PERFORM pg_notify('entitlement_sync_wake', '');
    END IF;
    RETURN moved;
END
$$;

CREATE FUNCTION product_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    PERFORM requeue_dead(ARRAY(SELECT h.id FROM job_history AS h
                                WHERE h.state = 'dead' AND h.last_error = 'product_unmapped'));
    -- Also where the user's other job is due or runs already.
    UPDATE queue AS q
       SET due = CASE WHEN q.owner IS NULL THEN least(q.due, at) ELSE q.due END,
           restore_due = CASE WHEN q.restore_error = 'product_unmapped' THEN least(q.restore_due, at)
                              ELSE q.restore_due END,
           reconcile_due = CASE WHEN q.reconcile_error = 'product_unmapped' THEN least(q.reconcile_due, at)
                                ELSE q.reconcile_due END
     WHERE 'product_unmapped' IN (q.restore_error, q.reconcile_error)
       AND greatest(q.restore_due, q.reconcile_due) > at;
    DELETE FROM alarm AS a WHERE a.name = 'product_unmapped';
    RETURN NULL;
END
$$;
CREATE TRIGGER product_changed AFTER INSERT OR UPDATE OR DELETE ON product
    FOR EACH STATEMENT EXECUTE FUNCTION product_changed();
