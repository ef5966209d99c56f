-- How operators refuse a ticket (close it without a transfer), and which approvals access until the paid period's end needs.

-- Closes a ticket without a transfer. Returns null, or the reason for refusal; `second_needed`: the access needs further approvals.
--
--   how    `refuse`, `guide_to_login`, `store_refund`, or `grant_until_end`: access until the paid period ends
--   shown  for `grant_until_end`: the hash of the evidence that the operator read
CREATE OR REPLACE FUNCTION refuse_ticket(session bytea, which bigint, how text, words text, shown bytea DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who     operator := acting(session, 'refuse');
    t       ticket;
    e       ticket_evidence;
    got     record;
    item    bigint;
    ends    timestamptz;
    agreed  record;
BEGIN
    IF how IS NULL OR how NOT IN ('refuse', 'guide_to_login', 'store_refund', 'grant_until_end') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'how: refuse, guide_to_login, store_refund or grant_until_end',
            HINT = 'Choose one of the four.';
    END IF;
    words := nullif(btrim(words, E' \t\r\n'), '');
    IF words IS NOT NULL THEN
        PERFORM check_words('note', words, 'Leave it out, or write a shorter one.');
    END IF;
    PERFORM lock_participants(which);
    SELECT f.* INTO got FROM ticket_for(who, which, 'refuse', true) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    -- A ticket that has approvals is refused by an operator with the permission `approve`.
    IF t.state IN ('needs_second', 'waiting_owner', 'approved')
       AND NOT role_may(who.role, 'approve') THEN
        RETURN refuse_act(who, which, 'refuse', 'approved');
    END IF;
    -- Access for weeks needs the permission `approve`, as a transfer does; the purchase stays with its owner.
    IF how = 'grant_until_end' THEN
        PERFORM acting(session, 'approve', interval '10 minutes');
        IF NOT is_open(t.state) OR t.state = 'executing' THEN
            RETURN refuse_act(who, which, 'refuse', 'state');
        END IF;
        SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
        item := purchase_of(t);
        SELECT least(p.period_ends_at, clock_timestamp() + interval '400 days') INTO ends
          FROM purchase AS p
         -- The evidence has to be about this purchase: the ticket may have got another one since.
         WHERE p.id = item AND surviving_purchase((e.document ->> 'purchase')::bigint) = item AND p.gives_access
             AND p.period_ends_at > clock_timestamp()
           AND e.collected_at > clock_timestamp() - e.holds AND NOT forbids_access(e);
        IF ends IS NULL THEN
            RETURN refuse_act(who, which, 'refuse', 'no_period');
        END IF;
        IF e.hash IS DISTINCT FROM shown THEN
            RETURN refuse_act(who, which, 'refuse', 'evidence_changed');
        END IF;
        INSERT INTO grant_approval AS a (ticket_id, operator_id, hash, purchase_id, until) VALUES (which, who.id, e.hash, item, ends)
        ON CONFLICT (ticket_id, operator_id) DO UPDATE
           SET hash = EXCLUDED.hash, purchase_id = EXCLUDED.purchase_id, until = EXCLUDED.until, at = EXCLUDED.at;
        PERFORM note_event(who, which, 'grant_agreed', jsonb_build_object('evidence', e.id));
        SELECT g.* INTO agreed FROM agreed_grant(t, e, item) AS g;
        IF agreed.until IS NULL THEN
            RETURN 'second_needed';
        END IF;
    END IF;
    IF move_ticket(which, 'refuse', how) IS NULL THEN
        RETURN refuse_act(who, which, 'refuse', 'state');
    END IF;
    PERFORM end_approvals(which, 'decided');
    -- A ticket that is opened again starts without these approvals.
    DELETE FROM grant_approval AS a WHERE a.ticket_id = which;
    PERFORM note_event(who, which, 'refused', jsonb_build_object('verdict', how));
    IF how = 'grant_until_end' THEN
        INSERT INTO "grant" (user_key, until, reason, granted_by)
        VALUES (t.claimant_key, agreed.until, format('decided in ticket %s', reference_of('T', t.uid)), agreed.people);
        PERFORM reread(ARRAY[t.claimant_key]);
    END IF;
    IF words IS NOT NULL THEN
        PERFORM add_note(who, which, words);
    END IF;
    RETURN NULL;
END
$$;

-- Until when operators agree to give the claimant access, and their names; null: too few. It takes as many as a transfer, two at least;
-- one of them neither opened the ticket nor was the first to be assigned. The caller holds the lock on the ticket's row.
CREATE OR REPLACE FUNCTION agreed_grant(t ticket, e ticket_evidence, item bigint, OUT until timestamptz, OUT people text)
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    first_hands bigint[] := ARRAY(
        SELECT (SELECT v.operator_id FROM ticket_event AS v
                 WHERE v.ticket_id = t.id AND v.kind = k.kind AND v.operator_id IS NOT NULL ORDER BY v.id LIMIT 1)
          FROM unnest('{opened,claimed}'::text[]) AS k(kind));
BEGIN
    -- Locks the operators' rows, so that no operator role changes between this check and the commit.
    PERFORM FROM operator AS o WHERE o.id IN (SELECT a.operator_id FROM grant_approval AS a WHERE a.ticket_id = t.id)
      ORDER BY o.id FOR SHARE;
    SELECT min(a.until), 'operators ' || string_agg(o.name, ', ' ORDER BY o.name) INTO agreed_grant.until, people
      FROM grant_approval AS a JOIN operator AS o ON o.id = a.operator_id
     WHERE a.ticket_id = t.id AND a.hash = e.hash AND surviving_purchase(a.purchase_id) = item AND a.at > clock_timestamp() - e.holds
       AND may_decide(a.operator_id, a.at, t, 'approve')
    HAVING count(*) >= greatest(e.approvals, 2) AND bool_or(a.operator_id = ANY (first_hands) IS NOT TRUE);
END
$$;
