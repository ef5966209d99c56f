-- The ids that claimants and agents name for a case: workers look them up while they collect its evidence. An id proves nothing about
-- who named it; it may say which purchase is meant, and one that no store knows speaks against whoever named it.

-- Apart from the events, so that an erasure can take it away: anything may have been typed.
CREATE TABLE ticket_claim (
    ticket_id bigint      NOT NULL REFERENCES ticket,
    kind      text        NOT NULL CHECK (kind IN ('order_id', 'transaction_id', 'onside_order_id')),
    value     text        NOT NULL CHECK (length(value) BETWEEN 1 AND 255),
    store     text,
    by_claimant boolean   NOT NULL,
    by_agent_at timestamptz,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (ticket_id, kind, value)
);
CREATE INDEX ticket_claim_at ON ticket_claim (at);
COMMENT ON TABLE ticket_claim IS 'ids that a claimant sent with a restore, or an agent read in a mail; what looking them up found stands in the evidence';
COMMENT ON COLUMN ticket_claim.by_claimant IS 'the claimant sent it: what they never sent does not speak against them';
COMMENT ON COLUMN ticket_claim.by_agent_at IS 'when an agent gave it last: the newest of these says which purchase is meant; absent: none did';
COMMENT ON COLUMN ticket_claim.store IS 'which the app named; absent: what the id looks like decides who is asked';

CREATE FUNCTION forget_claims() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    WITH about AS MATERIALIZED (
        SELECT t.id FROM ticket AS t WHERE t.claimant_key = NEW.user_key
         UNION
        SELECT t.id FROM ticket AS t WHERE t.owner_key = NEW.user_key
    ), forgotten AS (
        DELETE FROM ticket_claim AS c USING about AS a WHERE c.ticket_id = a.id
    )
    -- Where an agent opened the ticket, or touched it, it stands there as well.
    UPDATE ticket AS t SET original_id = NULL
      FROM about AS a
     WHERE t.id = a.id AND t.original_id IS NOT NULL
       AND (EXISTS (SELECT 1 FROM ticket_event AS e
                     WHERE e.ticket_id = t.id AND e.kind IN ('opened', 'touched') AND e.operator_id IS NOT NULL)
            OR EXISTS (SELECT 1 FROM ticket_claim AS c WHERE c.ticket_id = t.id AND c.value = t.original_id));
    RETURN NEW;
END
$$;
CREATE TRIGGER forget_claims BEFORE UPDATE OF user_id ON user_sync FOR EACH ROW
    WHEN (NEW.user_id IS NULL AND OLD.user_id IS NOT NULL) EXECUTE FUNCTION forget_claims();

-- A restore's proofs are forgotten with its end; what was merely typed stays with the ticket that it opened or touched. Of very many
-- the first stay: none that was found false is pushed out by others.
CREATE FUNCTION keep_claims() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    INSERT INTO ticket_claim (ticket_id, kind, value, store, by_claimant)
    SELECT n.id, n.kind, n.value, n.store, true
      FROM (SELECT DISTINCT ON (p.proof ->> 'kind', p.proof ->> 'value')
                   t.id, p.proof ->> 'kind' AS kind, p.proof ->> 'value' AS value, p.proof ->> 'store' AS store
              FROM ticket AS t
              JOIN job_request AS r ON r.id = NEW.job_id
             CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(r.proofs) WHEN 'array' THEN r.proofs ELSE '[]' END) AS p(proof)
             WHERE t.id = NEW.ticket_id AND t.kind IN ('owner_mismatch', 'paid_no_access', 'needs_proof')
               AND p.proof ->> 'kind' IN ('order_id', 'transaction_id', 'onside_order_id')
               AND length(p.proof ->> 'value') BETWEEN 1 AND 255
               AND NOT EXISTS (SELECT 1 FROM ticket_claim AS c
                                WHERE c.ticket_id = t.id AND c.kind = p.proof ->> 'kind' AND c.value = p.proof ->> 'value'
                                  AND c.by_claimant)) AS n
     LIMIT (SELECT greatest(10 - count(*), 0) FROM ticket_claim AS c WHERE c.ticket_id = NEW.ticket_id AND c.by_claimant)
    ON CONFLICT (ticket_id, kind, value) DO UPDATE SET by_claimant = true;
    IF FOUND AND NEW.kind = 'touched' THEN
        UPDATE ticket AS t
           SET evidence_due = least(t.evidence_due, clock_timestamp() + interval '10 seconds')
         WHERE t.id = NEW.ticket_id AND is_open(t.state) AND t.state <> 'executing';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER keep_claims AFTER INSERT ON ticket_event FOR EACH ROW
    WHEN (NEW.job_id IS NOT NULL AND NEW.kind IN ('opened', 'touched')) EXECUTE FUNCTION keep_claims();

-- Keeps an order's number that an agent gave for a ticket, also one that the ticket shows no more because it had another before.
CREATE FUNCTION note_order(session bytea, which bigint, order_id text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'open');
    t   ticket;
BEGIN
    IF which IS NULL OR order_id IS NULL THEN
        RETURN;
    END IF;
    IF NOT order_id ~ '^[!-~]{1,255}$' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'order_id: 1 to 255 visible ASCII characters',
            HINT = 'Copy it as the store''s mail shows it.';
    END IF;
    -- Users before tickets, as everywhere. An erasure that has begun is waited for: no number comes after it.
    PERFORM FROM user_sync AS u
      WHERE u.user_key = (SELECT x.claimant_key FROM ticket AS x WHERE x.id = which) AND u.user_id IS NOT NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which FOR NO KEY UPDATE;
    IF NOT is_open(t.state) OR is_own_case(who.id, t) THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM ticket_claim AS c WHERE c.ticket_id = which AND c.value = order_id AND c.by_agent_at IS NOT NULL)
       AND (SELECT count(*) FROM ticket_claim AS c WHERE c.ticket_id = which AND c.by_agent_at IS NOT NULL) >= 10 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'order_id: agents gave ten for this ticket already',
            HINT = 'Write it in a note, with what the store''s own pages say of it.';
    END IF;
    -- Given once more it is the newest, which is the one that counts.
    INSERT INTO ticket_claim (ticket_id, kind, value, by_claimant, by_agent_at)
    VALUES (which, 'order_id', order_id, false, clock_timestamp())
    ON CONFLICT (ticket_id, kind, value) DO UPDATE SET by_agent_at = clock_timestamp();
    UPDATE ticket AS x SET evidence_due = clock_timestamp(), evidence_tries = 0 WHERE x.id = which AND x.state <> 'executing';
END
$$;

-- Whether it is a number alone, which somebody named, that says what a ticket is about: no store's word about the claimant has led to
-- it, and nobody has agreed since that it is the one.
CREATE FUNCTION is_named_by_id(which bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (
        SELECT 1 FROM ticket AS t
          JOIN ticket_event AS n ON n.ticket_id = t.id
         WHERE t.id = which AND coalesce(t.purchase_id, t.subject_id) IS NOT NULL
           AND CASE WHEN t.purchase_id IS NULL THEN n.kind = 'named' AND n.detail ->> 'reason' = 'order_id'
                    ELSE n.kind = 'opened' AND n.operator_id IS NOT NULL END
           AND NOT EXISTS (SELECT 1 FROM ticket_event AS e
                            WHERE e.ticket_id = t.id AND e.id > n.id
                              AND (e.kind = 'approved' OR t.purchase_id IS NOT NULL AND e.kind = 'touched' AND e.job_id IS NOT NULL)))
$$;

-- Lets a ticket be about the purchase that an id has led to, where nothing else says which one is meant. Returns whether it does.
-- Who named the id has proved nothing: it does not decide a case, so that neither a purchase of the claimant's own, which would close
-- the ticket, nor one that another ticket of theirs is about becomes its subject; and another number takes its place, as long as
-- nobody has agreed to anything.
CREATE FUNCTION name_found(which bigint, item bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- Somebody at work on a ticket is not waited for.
SET lock_timeout = '50ms' AS $$
BEGIN
    PERFORM check_isolation();
    PERFORM FROM ticket AS x
      WHERE x.claimant_key = (SELECT t.claimant_key FROM ticket AS t WHERE t.id = which) AND is_open(x.state)
      ORDER BY x.id FOR NO KEY UPDATE;
    UPDATE ticket AS t SET subject_id = p.id
      FROM purchase AS p
     WHERE t.id = which AND t.purchase_id IS NULL
       AND (t.subject_id IS NULL
            OR is_named_by_id(which) AND living(t.subject_id) <> item
               AND t.state IN ('new', 'claimed', 'waiting_claimant'))
       AND is_open(t.state) AND t.state <> 'executing'
       AND p.id = item AND p.merged_into IS NULL AND p.owner_key IS DISTINCT FROM t.claimant_key
       AND NOT EXISTS (SELECT 1 FROM ticket AS x
                        WHERE x.claimant_key = t.claimant_key AND x.id <> t.id AND is_open(x.state)
                          AND living(coalesce(x.purchase_id, x.subject_id)) = p.id);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO ticket_event (ticket_id, kind, detail) VALUES (which, 'named', '{"reason": "order_id"}');
    RETURN true;
END
$$;

-- That something was found false stays among what happened to a ticket, whatever is found out later.
CREATE FUNCTION note_doubt() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    INSERT INTO ticket_event (ticket_id, kind, detail)
    SELECT NEW.ticket_id, 'doubted', '{"reason": "proof_failed"}'
     WHERE NOT EXISTS (SELECT 1 FROM ticket_event AS e WHERE e.ticket_id = NEW.ticket_id AND e.kind = 'doubted');
    RETURN NULL;
END
$$;
CREATE TRIGGER note_doubt AFTER INSERT ON ticket_evidence FOR EACH ROW
    WHEN ('proof_failed' = ANY (NEW.facts)) EXECUTE FUNCTION note_doubt();

REVOKE ALL ON FUNCTION forget_claims, keep_claims, note_order, is_named_by_id, name_found, note_doubt FROM PUBLIC;
SELECT grant_to('entitlement_sync_support', ARRAY['GRANT EXECUTE ON FUNCTION note_order TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT SELECT ON ticket_claim TO %I',
    'GRANT EXECUTE ON FUNCTION is_named_by_id, name_found TO %I']);
SELECT grant_to('entitlement_sync_auditor', ARRAY['GRANT SELECT ON ticket_claim TO %I']);
