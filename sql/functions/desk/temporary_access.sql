-- Temporary access for a claimant while a ticket is open, and approvals of access until the paid period ends.

-- Gives the claimant temporary access for 72 hours, once for a purchase; it ends when the ticket is closed. A store must have verified a
-- proof. Returns null, or the reason for the refusal.
CREATE OR REPLACE FUNCTION give_temporary_access(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who  operator := acting(session, 'give_access', interval '10 minutes');
    t    ticket;
    got  record;
    granted bigint;
BEGIN
    PERFORM lock_participants(which);
    SELECT f.* INTO got FROM ticket_for(who, which, 'give_access', true) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF t.state NOT IN ('claimed', 'waiting_claimant', 'needs_second', 'waiting_owner', 'approved') THEN
        RETURN refuse_act(who, which, 'give_access', 'state');
    END IF;
    IF NOT EXISTS (SELECT 1 FROM ticket_evidence AS e
                    WHERE e.id = t.evidence_id AND e.collected_at > clock_timestamp() - e.holds
                      AND 'proof_verified' = ANY (e.facts) AND NOT forbids_access(e)) THEN
        RETURN refuse_act(who, which, 'give_access', 'no_proof');
    END IF;
    IF EXISTS (SELECT 1 FROM ticket AS x
                WHERE x.claimant_key = t.claimant_key AND x.temporary_grant_id IS NOT NULL
                  AND surviving_purchase(coalesce(x.purchase_id, x.subject_id)) IS NOT DISTINCT
                      FROM surviving_purchase(coalesce(t.purchase_id, t.subject_id))) THEN
        RETURN refuse_act(who, which, 'give_access', 'temporary_access_given_already');
    END IF;
    INSERT INTO "grant" (user_key, until, reason, granted_by)
    VALUES (t.claimant_key, clock_timestamp() + interval '72 hours',
            format('while ticket %s is open', reference_of('T', t.uid)), format('operator %s', who.name))
    RETURNING id INTO granted;
    UPDATE ticket AS x SET temporary_grant_id = granted WHERE x.id = which;
    PERFORM note_event(who, which, 'temporary_access_given', jsonb_build_object('grant', granted));
    PERFORM reread(ARRAY[t.claimant_key]);
    RETURN NULL;
END
$$;

-- Whether the evidence forbids access for the claimant, however many operators agree.
CREATE OR REPLACE FUNCTION forbids_access(e ticket_evidence) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT e.facts && '{claimant_ineligible,sandbox,lapsed,refunded,unseen}'
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
