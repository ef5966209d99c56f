-- compatible_from: 11
-- What the workers' catalogue says of a purchase, for those who look at records in SQL.

-- Whether what a purchase carries means access by the products as they are mapped now: RevenueCat's lookup keys, or a store's
-- products, whose row without a plan stands for all plans that have none of their own.
CREATE FUNCTION means_access(entitlements text[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    WITH mapped AS (
        SELECT CASE WHEN p.store = 'revenuecat' THEN p.product_id
                    ELSE concat_ws(':', CASE p.store WHEN 'play_store' THEN 'google_play' ELSE p.store END,
                                   p.product_id, p.base_plan_id) END AS key,
               bool_or(p.grants_access) AS grants
          FROM product AS p GROUP BY 1
    )
    SELECT EXISTS (SELECT 1 FROM unnest(entitlements) AS e(key)
                    WHERE coalesce((SELECT m.grants FROM mapped AS m WHERE m.key = e.key),
                                   (SELECT m.grants FROM mapped AS m
                                     WHERE e.key ~ '^[^:]*:[^:]*:[^:]*$' AND m.key = regexp_replace(e.key, ':[^:]*$', ''))))
$$;
REVOKE ALL ON FUNCTION means_access FROM PUBLIC;
SELECT grant_to(r.name, ARRAY['GRANT EXECUTE ON FUNCTION means_access TO %I'])
  FROM unnest(ARRAY['entitlement_sync_worker', 'entitlement_sync_auditor']) AS r(name);
