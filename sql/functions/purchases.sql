-- Merged purchases: which one survives, which were merged into it, and which one a ticket is about.

-- The surviving purchase that a ticket is about; null: the ticket names no known purchase. Without settings of its own, so that PostgreSQL
-- writes it into the query that calls it.
CREATE OR REPLACE FUNCTION purchase_of(t ticket) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT surviving_purchase(coalesce(t.purchase_id, t.subject_id))
$$;

-- The surviving purchase that a merged purchase became; a purchase that was not merged itself.
CREATE OR REPLACE FUNCTION surviving_purchase(which bigint) RETURNS bigint
LANGUAGE sql STABLE STRICT SET search_path = entitlement_sync, pg_temp AS $$
    WITH RECURSIVE r AS (
        SELECT p.id, p.merged_into FROM purchase AS p WHERE p.id = which
         UNION ALL
        SELECT p.id, p.merged_into FROM r JOIN purchase AS p ON p.id = r.merged_into
    )
    SELECT r.id FROM r WHERE r.merged_into IS NULL
$$;

-- The surviving purchases of some purchases, with all purchases that were merged into them.
CREATE OR REPLACE FUNCTION lineage(items bigint[]) RETURNS SETOF bigint
LANGUAGE sql STABLE ROWS 10 SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
    WITH RECURSIVE l AS (
        SELECT surviving_purchase(i.id) AS id FROM unnest(items) AS i(id)
         UNION
        SELECT p.id FROM l JOIN purchase AS p ON p.merged_into = l.id
    )
    SELECT l.id FROM l WHERE l.id IS NOT NULL
$$;
