-- How a ticket is approved: which operators may give an approval, on which evidence, whether it counts, and when it ends. The rules for a
-- transfer stand here alone. Which operator role has the permission `approve` or `override` stands in the table `operator_permission`;
-- who may act on a ticket at all, in `ticket_for`; what else a transfer waits for, in `begin_transfer`; which approvals access until the
-- paid period's end needs, in refusals.sql.
-- What the facts of the case mean stands in TransferRules.swift alone: what hinders a transfer, how many approvals it needs, and what is
-- suggested. Evidence brings its answers here (`ticket_evidence.hindrance`, `.approvals`, `.suggested`).

-- Approves a transfer for an operator with the permission `approve`. Returns null, or the reason for the refusal.
--
--   shown      the hash of the evidence that the operator read
--   confirmed  the other purchases that the transfer moves, as the operator confirmed them
CREATE OR REPLACE FUNCTION approve_ticket(session bytea, which bigint, shown bytea, confirmed text[]) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who     operator := acting(session, 'approve', interval '10 minutes');
    t       ticket;
    e       ticket_evidence;
    got     record;
    made    bigint;
    lack    text;
    ends    timestamptz;
    was_asked boolean;
BEGIN
    SELECT f.* INTO got FROM ticket_for(who, which, 'approve', true) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF t.state NOT IN ('claimed', 'needs_second') THEN
        RETURN refuse_act(who, which, 'approve', 'state');
    END IF;
    SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
    IF e.id IS NULL THEN
        RETURN refuse_act(who, which, 'approve', 'no_evidence');
    END IF;
    IF e.hash IS DISTINCT FROM shown THEN
        RETURN refuse_act(who, which, 'approve', 'evidence_changed');
    END IF;
    IF e.collected_at < clock_timestamp() - e.holds THEN
        RETURN refuse_act(who, which, 'approve', 'evidence_old');
    END IF;
    IF e.hindrance IN ('forbids', 'closes') THEN
        RETURN refuse_act(who, which, 'approve', 'hindrance');
    END IF;
    -- A chargeback may be newer than this evidence: the approval is refused, the owner is not asked, and the evidence is collected again.
    IF charged_back(ARRAY[coalesce(t.purchase_id, t.subject_id)]) IS NOT NULL THEN
        PERFORM request_evidence(which);
        RETURN refuse_act(who, which, 'approve', 'hindrance');
    END IF;
    IF e.hindrance = 'needs_senior'
       AND NOT role_may(who.role, 'override') THEN
        RETURN refuse_act(who, which, 'approve', 'needs_senior');
    END IF;
    IF ARRAY(SELECT c FROM unnest(coalesce(confirmed, '{}')) AS c ORDER BY c)
       IS DISTINCT FROM ARRAY(SELECT m FROM unnest(e.also_moves) AS m ORDER BY m) THEN
        RETURN refuse_act(who, which, 'approve', 'not_confirmed');
    END IF;
    -- Ends approvals that no longer count: an operator can approve again only when their earlier approval has ended.
    UPDATE ticket_approval AS a
       SET ended_at = clock_timestamp(),
           ended_by = CASE WHEN a.hash <> e.hash THEN 'evidence_changed' WHEN a.expires_at <= clock_timestamp() THEN 'expired'
                           ELSE 'role_lost' END
     WHERE a.ticket_id = which AND a.ended_at IS NULL AND NOT approval_counts(a, t, e, 'approve');
    -- A transfer does not wait for an owner whose account was erased.
    IF t.owner_key IS NOT NULL AND NOT 'owner_erased' = ANY (e.facts) THEN
        was_asked := EXISTS (SELECT 1 FROM owner_window AS w WHERE w.ticket_id = which AND w.asked_at IS NOT NULL);
        ends := ask_owner(which, e.owner_window);
        IF NOT was_asked THEN
            INSERT INTO ticket_event (ticket_id, kind, detail) VALUES (which, 'owner_asked', jsonb_build_object('until', ends));
            -- The message names no claimant and gives no count. It is left out while another open question about the purchase, asked within
            -- the hour, waits for the owner's answer: the owner knows of the case already.
            IF ends > clock_timestamp()
               AND NOT EXISTS (SELECT 1 FROM ticket AS x JOIN owner_window AS w ON w.ticket_id = x.id
                                WHERE x.owner_key = t.owner_key AND x.id <> which AND is_open(x.state)
                                  AND w.ends_at > clock_timestamp() AND w.objected_at IS NULL
                                  AND w.asked_at > clock_timestamp() - interval '1 hour'
                                  AND NOT EXISTS (SELECT 1 FROM ticket_reply AS r
                                                   WHERE r.ticket_id = x.id AND r.side = 'owner' AND r.decision = 'agree'
                                                     AND r.at >= w.asked_at)
                                  AND purchase_of(x) = purchase_of(t)) THEN
                INSERT INTO ticket_news (user_key, topic, data)
                SELECT t.owner_key, 'ticket.owner_asked',
                       jsonb_build_object('id', owner_case_id(t.owner_key, p.id), 'role', 'owner', 'store', p.store,
                                          'product_id', p.product_id, 'until', moment(ends),
                                          'original_id', (SELECT i.value FROM purchase_identifier AS i
                                                           WHERE i.value = t.original_id
                                                               AND surviving_purchase(i.purchase_id) = p.id LIMIT 1))
                  FROM purchase AS p WHERE p.id = purchase_of(t);
            END IF;
        END IF;
    END IF;
    INSERT INTO ticket_approval (ticket_id, operator_id, evidence_id, hash, expires_at)
    VALUES (which, who.id, e.id, e.hash, greatest(clock_timestamp(), ends) + e.holds)
    ON CONFLICT DO NOTHING RETURNING id INTO made;
    IF made IS NOT NULL THEN
        PERFORM note_event(who, which, 'approved', jsonb_build_object('evidence', e.id, 'confirmed', coalesce(confirmed, '{}')));
    END IF;
    lack := approvals_lack(which);
    PERFORM move_ticket(which, CASE WHEN lack IS NOT NULL THEN 'approve_part'
                                    WHEN ends > clock_timestamp() THEN 'approve_early'
                                    ELSE 'approve_all' END);
    UPDATE ticket AS x
       SET verdict = CASE WHEN lack IS NULL THEN 'transfer' END, decided_at = CASE WHEN lack IS NULL THEN clock_timestamp() END
     WHERE x.id = which;
    -- The worker collects the evidence again within six hours, so that it notices when the ticket's cause has gone away.
    PERFORM request_evidence(which, clock_timestamp() + interval '6 hours');
    IF made IS NULL THEN
        RETURN refuse_act(who, which, 'approve', 'approved_already');
    END IF;
    RETURN NULL;
END
$$;

-- What the approvals of a ticket lack for its transfer, apart from the owner's time: `no_evidence`, `hindrance`, `evidence_changed`,
-- `owner_objected`, `expired`, `role_lost`, `approvals` or `needs_senior`; null: nothing. The caller holds the lock on the ticket's row.
CREATE OR REPLACE FUNCTION approvals_lack(which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    t ticket;
    e ticket_evidence;
    w owner_window;
    v owner_waiver;
    n record;
BEGIN
    SELECT x.* INTO STRICT t FROM ticket AS x WHERE x.id = which;
    SELECT x.* INTO w FROM owner_window AS x WHERE x.ticket_id = which;
    SELECT x.* INTO v FROM owner_waiver AS x WHERE x.ticket_id = which;
    SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
    IF e.id IS NULL THEN
        RETURN 'no_evidence';
    END IF;
    -- A chargeback may have been recorded after the evidence was collected, or an earlier version may have collected it.
    IF e.hindrance IN ('forbids', 'closes') OR charged_back(ARRAY[coalesce(t.purchase_id, t.subject_id)]) IS NOT NULL THEN
        RETURN 'hindrance';
    END IF;
    -- Locks the operators' rows, so that no operator role changes between this check and the commit.
    PERFORM FROM operator AS o
      WHERE o.id = v.operator_id
         OR o.id IN (SELECT a.operator_id FROM ticket_approval AS a WHERE a.ticket_id = which AND a.ended_at IS NULL)
      ORDER BY o.id FOR SHARE;
    SELECT count(*) AS agreed, bool_or(a.hash <> e.hash) AS changed, bool_or(a.expires_at <= clock_timestamp()) AS expired,
           count(*) FILTER (WHERE approval_counts(a, t, e, 'approve')) AS good,
           count(*) FILTER (WHERE approval_counts(a, t, e, 'approve') AND approval_counts(a, t, e, 'override')) AS seniors
      INTO n
      FROM ticket_approval AS a WHERE a.ticket_id = which AND a.ended_at IS NULL;
    IF n.changed THEN
        RETURN 'evidence_changed';
    END IF;
    -- An objection counts even if the evidence is older and does not contain it.
    IF w.objected_at IS NOT NULL AND (NOT 'owner_objected' = ANY (e.facts) OR w.objected_at > e.asked_at) THEN
        RETURN 'owner_objected';
    END IF;
    IF 'owner_consented' = ANY (e.facts) AND NOT has_owner_consent(which) THEN
        RETURN 'evidence_changed';
    END IF;
    IF n.good < e.approvals THEN
        RETURN CASE WHEN n.expired THEN 'expired' WHEN n.agreed > n.good THEN 'role_lost' ELSE 'approvals' END;
    END IF;
    -- Again, because a senior's permission may have ended since they approved.
    IF e.hindrance = 'needs_senior' AND n.seniors = 0 THEN
        RETURN 'needs_senior';
    END IF;
    -- While the owner window would still run, a waiver counts only together with the approval of another operator.
    IF v.ticket_id IS NOT NULL AND w.consented_at IS NULL AND w.asked_at + e.owner_window > clock_timestamp() THEN
        IF waiver_counts(v, t, e) IS NOT TRUE THEN
            RETURN 'role_lost';
        END IF;
        IF NOT others_agree(t, e, v.operator_id) THEN
            RETURN 'approvals';
        END IF;
    END IF;
    RETURN NULL;
END
$$;

-- Whether an approval counts on this evidence, and its operator has a permission: `approve`, or `override` for a senior.
CREATE OR REPLACE FUNCTION approval_counts(a ticket_approval, t ticket, e ticket_evidence, permission text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT a.hash = e.hash AND a.expires_at > clock_timestamp() AND may_decide(a.operator_id, a.at, t, permission)
$$;

-- Whether an operator had a permission all the time since a moment, and may decide this ticket: their account is neither disabled nor held,
-- and the case is not their own.
CREATE OR REPLACE FUNCTION may_decide(who bigint, since timestamptz, t ticket, permission text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator AS o
                    WHERE o.id = who AND role_may(o.role, permission) AND since > coalesce(o.lost_at, '-infinity')
                      AND o.disabled_at IS NULL AND NOT is_banned(o.id) AND coalesce(o.held_until <= clock_timestamp(), true)
                      AND NOT is_own_case(o.id, t))
$$;

-- The reason with which approvals end, for a result of `approvals_lack`.
CREATE OR REPLACE FUNCTION ending_for(lack text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN lack IN ('evidence_changed', 'expired', 'role_lost', 'owner_objected') THEN lack ELSE 'stopped' END;

-- Ends all approvals of a ticket with a reason. Returns how many.
CREATE OR REPLACE FUNCTION end_approvals(which bigint, why text) RETURNS integer
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    WITH ended AS (
        UPDATE ticket_approval AS a SET ended_at = clock_timestamp(), ended_by = why
         WHERE a.ticket_id = which AND a.ended_at IS NULL
        RETURNING 1
    )
    SELECT count(*)::integer FROM ended
$$;

-- Ends an operator's approvals when `lost_at` changes: the operator role changed, or the account was held, reset or disabled.
CREATE OR REPLACE FUNCTION end_lost_approvals() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- Locks the approvals in one order, so that this does not deadlock with a transaction that ends the approvals of tickets.
    PERFORM FROM ticket_approval AS a WHERE a.operator_id = NEW.id AND a.ended_at IS NULL ORDER BY a.ticket_id, a.id FOR UPDATE;
    UPDATE ticket_approval AS a SET ended_at = clock_timestamp(), ended_by = 'role_lost'
     WHERE a.operator_id = NEW.id AND a.ended_at IS NULL;
    RETURN NULL;
END
$$;

-- Ends a ticket's approvals and moves it to `new` by the event `approvals_voided`. The caller holds the lock on the ticket's row.
CREATE OR REPLACE FUNCTION void_approvals(which bigint, why text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    ended integer;
BEGIN
    ended := end_approvals(which, why);
    IF move_ticket(which, 'approvals_voided') IS NOT NULL OR ended > 0 THEN
        -- The owner is asked again and gets the whole window again, unless the approvals only expired.
        IF why <> 'expired' THEN
            PERFORM end_owner_question(which);
        END IF;
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (which, 'approvals_voided', jsonb_build_object('reason', why, 'approvals', ended));
    END IF;
END
$$;

-- Withdraws an operator's approval: of access until the paid period ends, or else of a transfer. Returns null, or the reason for refusal.
CREATE OR REPLACE FUNCTION withdraw_approval(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'approve');
    got record;
BEGIN
    SELECT f.* INTO got FROM ticket_for(who, which, 'withdraw', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    DELETE FROM grant_approval AS a WHERE a.ticket_id = which AND a.operator_id = who.id;
    IF FOUND THEN
        PERFORM note_event(who, which, 'approval_withdrawn');
        RETURN NULL;
    END IF;
    IF (got.t).state NOT IN ('needs_second', 'waiting_owner', 'approved') THEN
        RETURN refuse_act(who, which, 'withdraw', 'state');
    END IF;
    UPDATE ticket_approval AS a SET ended_at = clock_timestamp(), ended_by = 'withdrawn'
     WHERE a.ticket_id = which AND a.operator_id = who.id AND a.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN refuse_act(who, which, 'withdraw', 'not_approved');
    END IF;
    PERFORM note_event(who, which, 'approval_withdrawn');
    PERFORM void_approvals(which, 'withdrawn');
    RETURN NULL;
END
$$;

-- Whether another operator than `who` has given an approval that counts.
CREATE OR REPLACE FUNCTION others_agree(t ticket, e ticket_evidence, who bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM ticket_approval AS a
                    WHERE a.ticket_id = t.id AND a.ended_at IS NULL AND a.operator_id <> who AND approval_counts(a, t, e, 'approve'))
$$;
