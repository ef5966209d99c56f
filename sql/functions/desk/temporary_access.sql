-- Access for a claimant while a ticket is open, or until the paid period ends.

-- Gives access for three days where money was taken and something that a store verified shows it: once for a claimant and purchase,
-- until the case is decided.
CREATE OR REPLACE FUNCTION lend_access(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who  operator := acting(session, 'lend', interval '10 minutes');
    t    ticket;
    got  record;
    lent bigint;
BEGIN
    PERFORM keep_people(which);
    SELECT f.* INTO got FROM ticket_for(who, which, 'lend', true) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF t.state NOT IN ('claimed', 'waiting_claimant', 'needs_second', 'waiting_owner', 'approved') THEN
        RETURN refuse_act(who, which, 'lend', 'state');
    END IF;
    IF NOT EXISTS (SELECT 1 FROM ticket_evidence AS e
                    WHERE e.id = t.evidence_id AND e.collected_at > clock_timestamp() - e.holds
                      AND 'proof_verified' = ANY (e.facts) AND NOT e.facts && '{claimant_ineligible,sandbox,lapsed,refunded,unseen}') THEN
        RETURN refuse_act(who, which, 'lend', 'no_proof');
    END IF;
    IF EXISTS (SELECT 1 FROM ticket AS x
                WHERE x.claimant_key = t.claimant_key AND x.lent_grant_id IS NOT NULL
                  AND living(coalesce(x.purchase_id, x.subject_id)) IS NOT DISTINCT FROM living(coalesce(t.purchase_id, t.subject_id))) THEN
        RETURN refuse_act(who, which, 'lend', 'lent_already');
    END IF;
    INSERT INTO "grant" (user_key, until, reason, granted_by)
    VALUES (t.claimant_key, clock_timestamp() + interval '72 hours',
            format('while ticket %s is open', reference_of('T', t.uid)), format('operator %s', who.name))
    RETURNING id INTO lent;
    UPDATE ticket AS x SET lent_grant_id = lent WHERE x.id = which;
    PERFORM note_event(who, which, 'access_lent', jsonb_build_object('grant', lent));
    PERFORM reread(ARRAY[t.claimant_key]);
    RETURN NULL;
END
$$;

-- Until when people agree to give the claimant access, and who: as many as to a transfer, two at least, and one of them neither
-- opened the ticket nor was the first to take it; null: not enough. The caller holds the ticket's row.
CREATE OR REPLACE FUNCTION agreed_grant(t ticket, e ticket_evidence, item bigint, OUT until timestamptz, OUT people text)
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    first_hands bigint[] := ARRAY(
        SELECT (SELECT v.operator_id FROM ticket_event AS v
                 WHERE v.ticket_id = t.id AND v.kind = k.kind AND v.operator_id IS NOT NULL ORDER BY v.id LIMIT 1)
          FROM unnest('{opened,claimed}'::text[]) AS k(kind));
BEGIN
    -- Locked, so that no role is lost between the question and the commit.
    PERFORM FROM operator AS o WHERE o.id IN (SELECT a.operator_id FROM grant_approval AS a WHERE a.ticket_id = t.id)
      ORDER BY o.id FOR SHARE;
    SELECT min(a.until), 'operators ' || string_agg(o.name, ', ' ORDER BY o.name) INTO agreed_grant.until, people
      FROM grant_approval AS a JOIN operator AS o ON o.id = a.operator_id
     WHERE a.ticket_id = t.id AND a.hash = e.hash AND living(a.purchase_id) = item AND a.at > clock_timestamp() - e.holds
       AND a.at > coalesce(o.lost_at, '-infinity') AND o.disabled_at IS NULL AND NOT is_banned(o.id)
       AND coalesce(o.held_until <= clock_timestamp(), true) AND NOT is_own_case(o.id, t)
       AND EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty = 'approve' AND d.role = o.role)
    HAVING count(*) >= greatest(e.approvals, 2) AND bool_or(a.operator_id = ANY (first_hands) IS NOT TRUE);
END
$$;
