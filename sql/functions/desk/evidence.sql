-- Evidence of a ticket: when it is collected, what it says, and which purchase a ticket is about.

-- Has the evidence collected anew.
CREATE OR REPLACE FUNCTION refresh_evidence(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who     operator := acting(session, 'work');
    t       ticket;
    got     record;
BEGIN
    SELECT f.* INTO got FROM ticket_for(who, which, 'refresh', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF NOT is_open(t.state) OR t.state = 'executing' THEN
        RETURN refuse_act(who, which, 'refresh', 'state');
    END IF;
    UPDATE ticket AS x SET evidence_due = clock_timestamp(), evidence_tries = 0 WHERE x.id = which;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION count_request() RETURNS trigger
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    NEW.evidence_asks := OLD.evidence_asks + 1;
    RETURN NEW;
END
$$;

-- Evidence that was asked for while it was being collected is collected once more: what was said meanwhile is not in it.
CREATE OR REPLACE FUNCTION keep_request() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    e ticket_evidence;
BEGIN
    SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = NEW.evidence_id;
    -- What an older collection found answers none of the requests that a newer one has taken.
    IF NEW.state <> 'executing' AND (OLD.evidence_asks > OLD.evidence_seen OR OLD.evidence_taken_at > e.asked_at) THEN
        NEW.evidence_due := coalesce(OLD.evidence_due, NEW.evidence_due);
    END IF;
    IF OLD.evidence_taken_at <= e.asked_at THEN
        NEW.evidence_taken_at := NULL;
    END IF;
    -- Owners see the cases in which a release of theirs counts: it can be taken back.
    IF 'owner_released' = ANY (e.facts) AND NEW.owner_key IS NOT NULL THEN
        NEW.owner_heard_at := coalesce(NEW.owner_heard_at, clock_timestamp());
    END IF;
    RETURN NEW;
END
$$;

-- Keeps what was found out about a case: approvals on other evidence end, as does what the owner was asked, and a ticket whose cause
-- has gone away is closed. Returns the evidence's id; null: the ticket is closed by now, or newer evidence is there.
CREATE OR REPLACE FUNCTION keep_evidence(which bigint, asked timestamptz, hash bytea, facts text[], hindrance text, suggested text,
                              reason text, approvals smallint, also_moves text[], owner_window bigint, holds bigint,
                              document text, owner bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    t    ticket;
    kept bigint;
BEGIN
    PERFORM check_isolation();
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which FOR NO KEY UPDATE;
    IF t.id IS NULL OR NOT is_open(t.state) AND t.state <> 'refused'
       OR EXISTS (SELECT 1 FROM ticket_evidence AS e WHERE e.id = t.evidence_id AND e.asked_at > asked) THEN
        RETURN NULL;
    END IF;
    INSERT INTO ticket_evidence (ticket_id, asked_at, hash, facts, hindrance, suggested, reason, approvals, also_moves,
                                 owner_window, holds, document)
    VALUES (which, asked, hash, facts, hindrance, suggested, reason, approvals, also_moves, owner_window * interval '1 second',
            holds * interval '1 second', document::jsonb)
    RETURNING id INTO kept;
    UPDATE ticket AS x
       SET evidence_id = kept, evidence_tries = 0, evidence_error = NULL,
           evidence_due = CASE WHEN x.state IN ('needs_second', 'waiting_owner', 'approved')
                               THEN clock_timestamp() + interval '6 hours' END
     WHERE x.id = which;
    -- One that was refused is opened again where there is something else to decide on than there was.
    IF t.state = 'refused' THEN
        IF hindrance <> 'closes'
           AND NOT EXISTS (SELECT 1 FROM ticket_evidence AS e WHERE e.id = t.evidence_id AND e.hash = keep_evidence.hash)
           AND NOT EXISTS (SELECT 1 FROM ticket AS x
                            WHERE x.claimant_key = t.claimant_key AND coalesce(x.purchase_id, 0) = coalesce(t.purchase_id, 0)
                              AND is_open(x.state)) THEN
            PERFORM move_ticket(which, 'reopen');
            -- What the owner was asked before was about something else.
            UPDATE ticket AS x SET verdict = NULL, decided_at = NULL, owner_asked_at = NULL, owner_until = NULL WHERE x.id = which;
            INSERT INTO ticket_event (ticket_id, kind) VALUES (which, 'reopened');
        END IF;
        RETURN kept;
    END IF;
    -- One that is being carried out decides by itself, in the transaction that goes on with it.
    IF t.state = 'executing' THEN
        RETURN kept;
    END IF;
    -- Another owner has been asked nothing.
    UPDATE ticket AS x SET owner_key = owner, owner_asked_at = NULL, owner_until = NULL, owner_no_at = NULL
     WHERE x.id = which AND x.owner_key IS DISTINCT FROM owner AND owner IS DISTINCT FROM x.claimant_key;
    IF FOUND AND hindrance <> 'closes' THEN
        PERFORM void_approvals(which, 'evidence_changed');
    END IF;
    -- What the owner was asked before, and agreed to, was about something else; whether anybody had agreed to it or not.
    UPDATE ticket AS x SET owner_asked_at = NULL, owner_until = NULL
     WHERE x.id = which AND x.owner_asked_at IS NOT NULL
       AND EXISTS (SELECT 1 FROM ticket_evidence AS e WHERE e.id = t.evidence_id AND e.hash <> keep_evidence.hash);
    IF hindrance = 'closes' THEN
        PERFORM end_approvals(which, 'stopped');
        PERFORM move_ticket(which, 'cause_gone');
        INSERT INTO ticket_event (ticket_id, kind, detail) VALUES (which, 'closed', jsonb_build_object('reason', reason));
    ELSIF EXISTS (SELECT 1 FROM ticket_approval AS a
                   WHERE a.ticket_id = which AND a.ended_at IS NULL AND a.hash <> keep_evidence.hash) THEN
        PERFORM void_approvals(which, 'evidence_changed');
    END IF;
    RETURN kept;
END
$$;

-- That something was found false stays among what happened to a ticket, whatever is found out later.
CREATE OR REPLACE FUNCTION note_doubt() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    INSERT INTO ticket_event (ticket_id, kind, detail)
    SELECT NEW.ticket_id, 'doubted', '{"reason": "proof_failed"}'
     WHERE NOT EXISTS (SELECT 1 FROM ticket_event AS e WHERE e.ticket_id = NEW.ticket_id AND e.kind = 'doubted');
    RETURN NULL;
END
$$;

-- Finds out which purchase of our records a ticket is about, where only its store's id is known. Returns whether all is known that
-- can be; else its owner is being read, which brings the purchase into our records: that is done where somebody works on it.
CREATE OR REPLACE FUNCTION name_purchase(which bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- A host's transaction that has just asked for its user is not waited for.
SET lock_timeout = '50ms' AS $$
DECLARE
    t     ticket;
    ids   bigint[];
    -- Somebody typed it: it may be the wrong one.
    typed boolean;
BEGIN
    PERFORM check_isolation();
    -- As whoever is named by a number, with all of the claimant's: of two at once each would leave the other out.
    PERFORM FROM ticket AS x
      WHERE x.claimant_key = (SELECT y.claimant_key FROM ticket AS y
                               WHERE y.id = which AND y.original_id IS NOT NULL AND coalesce(y.purchase_id, y.subject_id) IS NULL)
        AND is_open(x.state)
      ORDER BY x.id FOR NO KEY UPDATE;
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which;
    IF t.id IS NULL OR coalesce(t.purchase_id, t.subject_id) IS NOT NULL OR t.original_id IS NULL OR NOT is_open(t.state) THEN
        RETURN true;
    END IF;
    ids := ARRAY(SELECT DISTINCT living(i.purchase_id) FROM purchase_identifier AS i
                  WHERE i.value = t.original_id AND (t.store IS NULL OR i.store IN (t.store, 'revenuecat')));
    IF cardinality(ids) = 1 THEN
        typed := EXISTS (SELECT 1 FROM ticket_claim AS c WHERE c.ticket_id = which AND c.value = t.original_id)
                 OR EXISTS (SELECT 1 FROM ticket_event AS e
                             WHERE e.ticket_id = which AND e.kind = 'opened' AND e.operator_id IS NOT NULL);
        -- What was typed has proved nothing: it makes nobody's own purchase, which would close the case, its subject.
        UPDATE ticket AS x SET subject_id = ids[1]
         WHERE x.id = which
           AND NOT EXISTS (SELECT 1 FROM ticket AS o
                            WHERE o.claimant_key = x.claimant_key AND o.id <> x.id AND is_open(o.state)
                              AND living(coalesce(o.purchase_id, o.subject_id)) = ids[1])
           AND NOT (typed AND EXISTS (SELECT 1 FROM purchase AS p WHERE p.id = ids[1] AND p.owner_key = x.claimant_key));
        IF FOUND AND typed THEN
            INSERT INTO ticket_event (ticket_id, kind, detail) VALUES (which, 'named', '{"reason": "order_id"}');
        END IF;
    END IF;
    IF cardinality(ids) > 0 OR t.owner_key IS NULL OR NOT coalesce(t.holder_until > clock_timestamp(), false) THEN
        RETURN true;
    END IF;
    -- Once a day, and a minute is what it may take.
    IF NOT EXISTS (SELECT 1 FROM ticket_event AS e
                    WHERE e.ticket_id = which AND e.kind = 'owner_read' AND e.at > clock_timestamp() - interval '1 day') THEN
        PERFORM reread(ARRAY[t.owner_key]);
        INSERT INTO ticket_event (ticket_id, kind) VALUES (which, 'owner_read');
        RETURN false;
    END IF;
    RETURN NOT EXISTS (SELECT 1 FROM ticket_event AS e
                        WHERE e.ticket_id = which AND e.kind = 'owner_read' AND e.at > clock_timestamp() - interval '1 minute');
END
$$;

-- Lets a ticket be about the purchase that an id has led to, where nothing else says which one is meant. Returns whether it does.
-- Who named the id has proved nothing: it does not decide a case, so that neither a purchase of the claimant's own, which would close
-- the ticket, nor one that another ticket of theirs is about becomes its subject; and another number takes its place, as long as
-- nobody has agreed to anything.
CREATE OR REPLACE FUNCTION name_found(which bigint, item bigint) RETURNS boolean
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

-- Whether it is a number alone, which somebody named, that says what a ticket is about: no store's word about the claimant has led to
-- it, and nobody has agreed since that it is the one.
CREATE OR REPLACE FUNCTION is_named_by_id(which bigint) RETURNS boolean
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

-- Keeps an order's number that an agent gave for a ticket, also one that the ticket shows no more because it had another before.
CREATE OR REPLACE FUNCTION note_order(session bytea, which bigint, order_id text) RETURNS void
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

-- A restore's proofs are forgotten with its end; what was merely typed stays with the ticket that it opened or touched. Of very many the
-- first stay: none that was found false is pushed out by others.
CREATE OR REPLACE FUNCTION keep_claims() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    INSERT INTO ticket_claim (ticket_id, kind, value, store, by_claimant)
    SELECT n.id, n.kind, n.value, n.store, true
      FROM (SELECT DISTINCT ON (p.proof ->> 'kind', p.proof ->> 'value')
                   t.id, p.proof ->> 'kind' AS kind, p.proof ->> 'value' AS value, p.proof ->> 'store' AS store
              FROM ticket AS t
              JOIN job_request AS r ON r.id = NEW.job_id
             CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(r.proofs) WHEN 'array' THEN r.proofs ELSE '[]' END) AS p(proof)
             WHERE t.id = NEW.ticket_id AND t.kind IN ('owner_mismatch', 'first_seen_elsewhere', 'paid_no_access', 'needs_proof')
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

-- Purchases with all that was merged into them, and what they were merged into.
CREATE OR REPLACE FUNCTION lineage(items bigint[]) RETURNS SETOF bigint
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
    WITH RECURSIVE l AS (
        SELECT living(i.id) AS id FROM unnest(items) AS i(id)
         UNION
        SELECT p.id FROM l JOIN purchase AS p ON p.merged_into = l.id
    )
    SELECT l.id FROM l WHERE l.id IS NOT NULL
$$;
