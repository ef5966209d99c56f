-- Evidence of a ticket: how it is requested, what follows when it has changed, and which purchase the ticket is about. Each function that
-- changes a case calls `request_evidence`.

-- Has the evidence collected again. Returns null, or the reason for the refusal.
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
    PERFORM request_evidence(which);
    RETURN NULL;
END
$$;

-- Has a ticket's evidence collected, at once or when it is due, unless it is due sooner. A running transfer collects its own; of closed
-- tickets only a refused one can be opened again.
CREATE OR REPLACE FUNCTION request_evidence(which bigint, due timestamptz DEFAULT clock_timestamp()) RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO evidence_request AS r (ticket_id, due_at, requests)
    SELECT t.id, due, 1 FROM ticket AS t WHERE t.id = which AND (is_open(t.state) AND t.state <> 'executing' OR t.state = 'refused')
    ON CONFLICT (ticket_id) DO UPDATE SET due_at = least(r.due_at, excluded.due_at), tries = 0, requests = r.requests + 1
$$;

-- Stores evidence. If its hash is another, the ticket's approvals and the question to the owner end. If the cause has gone away, the ticket
-- is closed. A refused ticket is opened again; a running transfer only stores it. Returns the evidence's id; null: newer evidence exists,
-- or the ticket was closed other than by a refusal.
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
    -- A proof that was found false stays on record, whatever later evidence says.
    IF 'proof_failed' = ANY (facts) AND NOT EXISTS (SELECT 1 FROM ticket_event AS e WHERE e.ticket_id = which AND e.kind = 'doubted') THEN
        INSERT INTO ticket_event (ticket_id, kind, detail) VALUES (which, 'doubted', '{"reason": "proof_failed"}');
    END IF;
    UPDATE ticket AS x SET evidence_id = kept WHERE x.id = which;
    -- A request stays if it came after this collection began, or if another worker has taken it since: this evidence does not answer it.
    -- Otherwise the evidence is collected again in six hours, as long as approvals stand.
    UPDATE evidence_request AS r
       SET tries = 0, error = NULL,
           due_at = coalesce(CASE WHEN t.state <> 'executing' AND (r.requests > r.answers OR r.taken_at > asked) THEN r.due_at END,
                             CASE WHEN t.state IN ('needs_second', 'waiting_owner', 'approved')
                                  THEN clock_timestamp() + interval '6 hours' END),
           taken_at = CASE WHEN r.taken_at > asked THEN r.taken_at END
     WHERE r.ticket_id = which;
    PERFORM settle_window(which);
    -- The owner sees each ticket in which their consent counts, so that they can take it back.
    IF 'owner_consented' = ANY (facts) THEN
        PERFORM note_owner_knows(which);
    END IF;
    -- A refused ticket is opened again when the evidence has changed: operators have something else to decide on. The first evidence
    -- changes nothing if it was being collected when they refused.
    IF t.state = 'refused' THEN
        IF hindrance <> 'closes' AND (t.evidence_id IS NOT NULL OR asked > t.decided_at)
           AND NOT EXISTS (SELECT 1 FROM ticket_evidence AS e WHERE e.id = t.evidence_id AND e.hash = keep_evidence.hash)
           AND NOT EXISTS (SELECT 1 FROM ticket AS x
                            WHERE x.claimant_key = t.claimant_key AND coalesce(x.purchase_id, 0) = coalesce(t.purchase_id, 0)
                              AND is_open(x.state)) THEN
            PERFORM move_ticket(which, 'reopen');
            -- The owner was asked on other evidence.
            PERFORM end_owner_question(which);
            INSERT INTO ticket_event (ticket_id, kind) VALUES (which, 'reopened');
        END IF;
        RETURN kept;
    END IF;
    -- A running transfer decides by itself, in the transaction that continues it.
    IF t.state = 'executing' THEN
        RETURN kept;
    END IF;
    -- The new owner has not been asked.
    UPDATE ticket AS x SET owner_key = owner
     WHERE x.id = which AND x.owner_key IS DISTINCT FROM owner AND owner IS DISTINCT FROM x.claimant_key;
    IF FOUND THEN
        DELETE FROM owner_window AS w WHERE w.ticket_id = which;
        IF 'owner_consented' = ANY (facts) THEN
            PERFORM note_owner_knows(which);
        END IF;
        IF hindrance <> 'closes' THEN
            PERFORM void_approvals(which, 'evidence_changed');
        END IF;
    END IF;
    -- The owner was asked, and may have agreed, on other evidence: the question ends, even if no operator has approved.
    IF EXISTS (SELECT 1 FROM ticket_evidence AS e WHERE e.id = t.evidence_id AND e.hash <> keep_evidence.hash) THEN
        PERFORM end_owner_question(which);
    END IF;
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

-- Finds the purchase that a ticket is about, if only its store's id is known. Returns true: all is known that can be; false: the owner is
-- being read, which brings the purchase into our records. The worker reads the owner only while the ticket is assigned.
CREATE OR REPLACE FUNCTION name_purchase(which bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- Waits 50 ms at most for a host's transaction that has locked its user's row.
SET lock_timeout = '50ms' AS $$
DECLARE
    t     ticket;
    ids   bigint[];
    -- A claimant or agent typed the id: it may be wrong.
    typed boolean;
BEGIN
    PERFORM check_isolation();
    -- Locks all open tickets of the claimant, as `name_found` does: of two at once, each would miss the other's purchase.
    PERFORM FROM ticket AS x
      WHERE x.claimant_key = (SELECT y.claimant_key FROM ticket AS y
                               WHERE y.id = which AND y.original_id IS NOT NULL AND coalesce(y.purchase_id, y.subject_id) IS NULL)
        AND is_open(x.state)
      ORDER BY x.id FOR NO KEY UPDATE;
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which;
    IF t.id IS NULL OR coalesce(t.purchase_id, t.subject_id) IS NOT NULL OR t.original_id IS NULL OR NOT is_open(t.state) THEN
        RETURN true;
    END IF;
    ids := ARRAY(SELECT DISTINCT surviving_purchase(i.purchase_id) FROM purchase_identifier AS i
                  WHERE i.value = t.original_id AND (t.store IS NULL OR i.store IN (t.store, 'revenuecat')));
    IF cardinality(ids) = 1 THEN
        typed := EXISTS (SELECT 1 FROM ticket_reported_id AS c WHERE c.ticket_id = which AND c.value = t.original_id)
                 OR EXISTS (SELECT 1 FROM ticket_event AS e
                             WHERE e.ticket_id = which AND e.kind = 'opened' AND e.operator_id IS NOT NULL);
        -- A reported id proves nothing: it does not make the claimant's own purchase the subject, which would close the ticket.
        UPDATE ticket AS x SET subject_id = ids[1]
         WHERE x.id = which
           AND NOT EXISTS (SELECT 1 FROM ticket AS o
                            WHERE o.claimant_key = x.claimant_key AND o.id <> x.id AND is_open(o.state)
                              AND purchase_of(o) = ids[1])
           AND NOT (typed AND EXISTS (SELECT 1 FROM purchase AS p WHERE p.id = ids[1] AND p.owner_key = x.claimant_key));
        IF FOUND AND typed THEN
            INSERT INTO ticket_event (ticket_id, kind, detail) VALUES (which, 'named', '{"reason": "order_id"}');
        END IF;
    END IF;
    IF cardinality(ids) > 0 OR t.owner_key IS NULL OR NOT coalesce(t.assigned_until > clock_timestamp(), false) THEN
        RETURN true;
    END IF;
    -- At most once a day; the read may take a minute.
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

-- Makes a ticket about the purchase to which a reported id led, if nothing else says which one is meant. Returns whether it did. A
-- reported id proves nothing: the subject is neither the claimant's own purchase, which would close the ticket, nor one that another
-- open ticket of theirs is about. Until an operator approves, a later id can change the subject.
CREATE OR REPLACE FUNCTION name_found(which bigint, item bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- Waits 50 ms at most for a transaction that has locked a ticket's row.
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
            OR is_named_by_reported_id(which) AND surviving_purchase(t.subject_id) <> item
               AND t.state IN ('new', 'claimed', 'waiting_claimant'))
       AND is_open(t.state) AND t.state <> 'executing'
       AND p.id = item AND p.merged_into IS NULL AND p.owner_key IS DISTINCT FROM t.claimant_key
       AND NOT EXISTS (SELECT 1 FROM ticket AS x
                        WHERE x.claimant_key = t.claimant_key AND x.id <> t.id AND is_open(x.state)
                          AND purchase_of(x) = p.id);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO ticket_event (ticket_id, kind, detail) VALUES (which, 'named', '{"reason": "order_id"}');
    RETURN true;
END
$$;

-- Whether only a reported id says which purchase a ticket is about: since then no operator has approved, and no restore has led a
-- worker to the purchase.
CREATE OR REPLACE FUNCTION is_named_by_reported_id(which bigint) RETURNS boolean
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

-- Stores an order id that an agent typed, at most ten a ticket. Ignores closed tickets, erased claimants and the operator's own cases.
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
    -- Locks users before tickets, as every function does. An erasure that has begun ends first: no id is stored after it.
    PERFORM FROM user_sync AS u
      WHERE u.user_key = (SELECT x.claimant_key FROM ticket AS x WHERE x.id = which) AND u.user_id IS NOT NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which FOR NO KEY UPDATE;
    IF NOT is_open(t.state) OR is_own_case(who.id, t) THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM ticket_reported_id AS c WHERE c.ticket_id = which AND c.value = order_id AND c.by_agent_at IS NOT NULL)
       AND (SELECT count(*) FROM ticket_reported_id AS c WHERE c.ticket_id = which AND c.by_agent_at IS NOT NULL) >= 10 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'order_id: agents gave ten for this ticket already',
            HINT = 'Write it in a note, with what the store''s own pages say of it.';
    END IF;
    -- An id that is given again becomes the newest, and the newest counts.
    INSERT INTO ticket_reported_id (ticket_id, kind, value, by_claimant, by_agent_at)
    VALUES (which, 'order_id', order_id, false, clock_timestamp())
    ON CONFLICT (ticket_id, kind, value) DO UPDATE SET by_agent_at = clock_timestamp();
    PERFORM request_evidence(which);
END
$$;

-- Does what follows for tickets that jobs have opened or touched: by when the desk has to act, the request for evidence, and the restores'
-- reported ids, because a restore's proofs are deleted at its end. The first ten ids stay, so that later ones displace none that was found
-- false.
CREATE OR REPLACE FUNCTION note_touched(tickets bigint[], jobs uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    n record;
BEGIN
    FOR n IN SELECT x.ticket, x.job FROM unnest(tickets, jobs) AS x(ticket, job) ORDER BY x.ticket LOOP
        UPDATE ticket AS t SET due_at = due_of(t) WHERE t.id = n.ticket;
        INSERT INTO ticket_reported_id (ticket_id, kind, value, store, by_claimant)
        SELECT i.id, i.kind, i.value, i.store, true
          FROM (SELECT DISTINCT ON (p.proof ->> 'kind', p.proof ->> 'value')
                       t.id, p.proof ->> 'kind' AS kind, p.proof ->> 'value' AS value, p.proof ->> 'store' AS store
                  FROM ticket AS t
                  JOIN job_request AS r ON r.id = n.job
                 CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(r.proofs) WHEN 'array' THEN r.proofs ELSE '[]' END) AS p(proof)
                 WHERE t.id = n.ticket AND t.kind IN ('owner_mismatch', 'first_seen_elsewhere', 'paid_no_access', 'needs_proof')
                   AND p.proof ->> 'kind' IN ('order_id', 'transaction_id', 'onside_order_id')
                   AND length(p.proof ->> 'value') BETWEEN 1 AND 255
                   AND NOT EXISTS (SELECT 1 FROM ticket_reported_id AS c
                                    WHERE c.ticket_id = t.id AND c.kind = p.proof ->> 'kind' AND c.value = p.proof ->> 'value'
                                      AND c.by_claimant)) AS i
         LIMIT (SELECT greatest(10 - count(*), 0) FROM ticket_reported_id AS c WHERE c.ticket_id = n.ticket AND c.by_claimant)
        ON CONFLICT (ticket_id, kind, value) DO UPDATE SET by_claimant = true;
        -- If a claimant taps several times in a row, the evidence is collected once.
        IF FOUND OR NOT EXISTS (SELECT 1 FROM evidence_request AS r WHERE r.ticket_id = n.ticket)
           OR EXISTS (SELECT 1 FROM ticket AS t WHERE t.id = n.ticket AND t.state = 'refused') THEN
            PERFORM request_evidence(n.ticket, clock_timestamp() + interval '10 seconds');
        END IF;
    END LOOP;
END
$$;
