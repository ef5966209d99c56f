-- What restores have found is asked for all users of a transaction at once: a call for each, with settings of its own, took
-- longer than the answer. `entitlement_names` has no more callers, save transactions that are under way meanwhile.

-- The users' own purchases that give access, and their ends, for the app to deliver again, a row for each place of `keys`;
-- `wanted`: the products that were asked for, as JSON, null: all. Entitlements bear the team's words, as the ledger has keys
-- of products and of RevenueCat's entitlements.
CREATE FUNCTION restored_products_of(keys bigint[], wanted text[]) RETURNS TABLE (place integer, products jsonb)
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT w.place::integer, coalesce(f.products, '[]')
      FROM unnest(keys, wanted) WITH ORDINALITY AS w(known, wanted, place)
     CROSS JOIN LATERAL (
           SELECT jsonb_agg(jsonb_build_object(
                      'store', p.store, 'product_id', p.product_id,
                      'entitlements', to_jsonb(ARRAY(
                          SELECT DISTINCT c.entitlement
                            FROM (SELECT x.entitlement, x.base_plan_id,
                                         CASE WHEN x.store = 'revenuecat' THEN x.product_id
                                              ELSE concat_ws(':', CASE x.store WHEN 'play_store' THEN 'google_play'
                                                                               ELSE x.store END,
                                                             x.product_id, x.base_plan_id) END AS key
                                    FROM product AS x WHERE x.grants_access) AS c
                           WHERE EXISTS (SELECT 1 FROM unnest(p.entitlements) AS k(key)
                                          WHERE k.key = c.key
                                             OR c.base_plan_id IS NULL AND starts_with(k.key, c.key || ':'))
                           ORDER BY c.entitlement)),
                      'ends_at', to_char(p.period_ends_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
                      ORDER BY p.id) AS products
             FROM (SELECT x.* FROM purchase AS x
                    WHERE x.owner_key = w.known AND x.merged_into IS NULL AND cardinality(x.entitlements) > 0
                      AND coalesce(x.gives_access, x.status = 'owned')
                      AND (x.environment = 'production'
                           OR EXISTS (SELECT 1 FROM sandbox_user AS s JOIN user_sync AS u ON u.user_id = s.user_id
                                       WHERE u.user_key = w.known AND s.until > now()))
                      AND (w.wanted IS NULL OR w.wanted::jsonb ? x.product_id)
                    ORDER BY x.id DESC LIMIT 100) AS p) AS f;
END
$$;

-- As before; what is done for one user is what is done for many.
CREATE OR REPLACE FUNCTION restored_products(known bigint, job uuid) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    wanted text[];
BEGIN
    SELECT r.product_ids INTO wanted FROM job_request AS r WHERE r.id = job;
    RETURN (SELECT f.products FROM restored_products_of(ARRAY[known], ARRAY[to_jsonb(wanted)::text]) AS f);
END
$$;

REVOKE ALL ON FUNCTION restored_products_of FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION restored_products_of TO %I']);
