-- compatible_from: 11
-- Tickets about what an event told of for another account, a short while before somebody showed it: what their claimants
-- typed is looked up as for the others.

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
