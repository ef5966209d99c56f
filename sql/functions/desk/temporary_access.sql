-- Temporary access for a claimant while a ticket is open.

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
                  AND purchase_of(x) IS NOT DISTINCT FROM purchase_of(t)) THEN
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

-- Whether the evidence forbids access for the claimant, however many operators agree: here, and until the paid period ends (refusals.sql).
CREATE OR REPLACE FUNCTION forbids_access(e ticket_evidence) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT e.facts && '{claimant_ineligible,sandbox,lapsed,refunded,unseen}'
$$;
