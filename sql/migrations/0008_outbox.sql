-- What others must hear, written with what it tells of, and delivered at least once, in order for each user.

-- Who it is about stands in one place alone: the identity is filled in at the delivery.
CREATE TABLE outbox (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uid        uuid        NOT NULL DEFAULT new_id(),
    user_key   bigint      NOT NULL,
    topic      text        NOT NULL,
    data       jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    due        timestamptz NOT NULL DEFAULT now(),
    attempt    smallint    NOT NULL DEFAULT 0,
    is_dead    boolean     NOT NULL DEFAULT false,
    last_error text
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX outbox_due ON outbox (due) WHERE NOT is_dead;
CREATE INDEX outbox_user ON outbox (user_key, id) WHERE NOT is_dead;
COMMENT ON COLUMN outbox.uid IS 'the message''s own id: the same at every try';
COMMENT ON COLUMN outbox.is_dead IS 'given up after three days; deliver it again by setting is_dead to false and due to now()';

-- Takes the next message of each user for a while: whoever dies meanwhile has its messages taken by others.
CREATE FUNCTION take_outbox(most integer, hold_seconds integer)
RETURNS TABLE (id bigint, uid uuid, user_id text, topic text, data text, created_at timestamptz, attempt smallint,
               age double precision)
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH next AS MATERIALIZED (
        SELECT o.id FROM outbox AS o
         WHERE NOT o.is_dead AND o.due <= clock_timestamp()
           AND NOT EXISTS (SELECT 1 FROM outbox AS e WHERE e.user_key = o.user_key AND e.id < o.id AND NOT e.is_dead)
         ORDER BY o.due LIMIT most FOR NO KEY UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE outbox AS o
           SET due = clock_timestamp() + hold_seconds * interval '1 second', attempt = least(o.attempt, 30000) + 1
          FROM next AS n WHERE o.id = n.id
        RETURNING o.*
    )
    SELECT t.id, t.uid, u.user_id, t.topic, t.data::text, t.created_at, t.attempt,
           extract(epoch FROM clock_timestamp() - t.created_at)::double precision
      FROM taken AS t LEFT JOIN user_sync AS u ON u.user_key = t.user_key
     ORDER BY t.id;
END
$$;

-- Forgets who a user is, in all our records: what was decided stands, with nobody's name to it. The purchases stay with
-- the account that there was, so that nobody else can claim them. Returns what was changed; no row for an unknown user.
CREATE FUNCTION erase_user(wanted text)
RETURNS TABLE (purchases bigint, tickets bigint, events bigint, messages bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    known bigint;
    jobs  uuid[];
BEGIN
    -- Whoever writes assets holds these rows in the same order.
    DELETE FROM asset_run AS r USING user_sync AS u WHERE u.user_id = wanted AND r.user_key = u.user_key;
    SELECT u.user_key INTO known FROM user_sync AS u WHERE u.user_id = wanted FOR UPDATE;
    DELETE FROM sandbox_user AS s WHERE s.user_id = wanted;
    -- Events may name somebody who never was a user here. Each by its own index.
    DELETE FROM inbox_body AS b
     WHERE b.id = ANY (ARRAY(SELECT i.id FROM inbox AS i WHERE i.user_keys @> ARRAY[known]
                             UNION
                             SELECT i.id FROM inbox AS i WHERE i.about IS NOT NULL AND i.about -> 'users' ? wanted));
    GET DIAGNOSTICS events = ROW_COUNT;
    UPDATE inbox AS i SET about = NULL, state = CASE WHEN i.state = 'done' THEN i.state ELSE 'parked' END
     WHERE i.about IS NOT NULL AND i.about -> 'users' ? wanted;
    IF known IS NULL THEN
        IF events > 0 THEN
            purchases := 0;
            tickets := 0;
            messages := 0;
            RETURN NEXT;
        END IF;
        RETURN;
    END IF;
    UPDATE user_sync AS u SET user_id = NULL, next_look = NULL, promised_at = NULL WHERE u.user_key = known;
    DELETE FROM idempotency AS i WHERE i.user_key = known;
    DELETE FROM shown_proof AS s WHERE s.user_key = known;
    UPDATE "grant" AS g SET reason = '(erased)' WHERE g.user_key = known;

    jobs := ARRAY(SELECT h.id FROM job_history AS h WHERE h.user_key = known)
         || ARRAY(SELECT x.id FROM queue AS q
                   CROSS JOIN LATERAL unnest(ARRAY[q.restore_id, q.restore_next, q.reconcile_id, q.reconcile_next]) AS x(id)
                   WHERE q.user_key = known AND x.id IS NOT NULL);
    UPDATE job_request AS r SET proofs = NULL, client_error = NULL, product_ids = NULL, reason = NULL
     WHERE r.id = ANY (jobs);

    DELETE FROM outbox AS o WHERE o.user_key = known;
    GET DIAGNOSTICS messages = ROW_COUNT;
    SELECT count(*) INTO purchases FROM purchase AS p WHERE p.owner_key = known AND p.merged_into IS NULL;
    SELECT count(*) INTO tickets FROM ticket AS t WHERE known IN (t.claimant_key, t.owner_key);
    RETURN NEXT;
END
$$;

-- Forgets what was only needed for a while.
CREATE FUNCTION forget_requests() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    DELETE FROM request_count AS c WHERE c.began < now() - interval '5 minutes';
    DELETE FROM shown_proof AS s WHERE s.shown_at < now() - interval '2 days';
$$;

REVOKE ALL ON FUNCTION take_outbox, erase_user, forget_requests FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT SELECT, INSERT, UPDATE, DELETE ON outbox TO %I',
    'GRANT USAGE ON SEQUENCE outbox_id_seq TO %I',
    'GRANT EXECUTE ON FUNCTION take_outbox, erase_user, forget_requests TO %I']);
SELECT grant_to('entitlement_sync_support', ARRAY['GRANT SELECT ON outbox TO %I']);
SELECT grant_to('entitlement_sync_auditor', ARRAY['GRANT SELECT ON outbox TO %I']);
