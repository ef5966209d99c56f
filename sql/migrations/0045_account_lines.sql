-- compatible_from: 11
-- Access by a purchase without an owner, in a store account whose other purchases are the user's, is seen where access is looked up.

CREATE INDEX observation_account_line ON observation (user_key, asked_at) WHERE attribution = 'same_account';

-- The purchases without an owner that a user's newest reading found in the user's own store account. None once a later full reading
-- found none there. Without settings of its own, so that it becomes part of the statement that calls it.
CREATE FUNCTION account_lines(known bigint) RETURNS SETOF purchase
LANGUAGE sql STABLE AS $$
    SELECT p.*
      FROM (SELECT o.asked_at FROM entitlement_sync.observation AS o
             WHERE o.user_key = known AND o.attribution = 'same_account'
             ORDER BY o.asked_at DESC LIMIT 1) AS newest
      JOIN entitlement_sync.user_sync AS u
        ON u.user_key = known AND newest.asked_at >= coalesce(u.full_read_at, newest.asked_at)
      JOIN entitlement_sync.observation AS x
        ON x.user_key = known AND x.attribution = 'same_account' AND x.asked_at = newest.asked_at
      JOIN entitlement_sync.purchase AS p ON p.id = x.purchase_id AND p.owner_key IS NULL AND p.merged_into IS NULL
$$;
REVOKE ALL ON FUNCTION account_lines FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION account_lines TO %I']);
INSERT INTO role_privilege (role, kind, object, privilege)
VALUES ('entitlement_sync_worker', 'function', 'account_lines', 'EXECUTE');

-- What the app shows at its launch; no row where the id is no user's. `until`: the end of the access that is known, null where
-- there is none or it has no end. A restore is suggested to a user who is no subscriber where the store may say otherwise:
-- nothing was ever read, the last restore failed, or a purchase is known that should give access.
CREATE OR REPLACE FUNCTION entitlement_answer(wanted text)
RETURNS TABLE (type text, until text, restore_suggested boolean, tickets jsonb, stores jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT h.type,
           CASE WHEN a.endless IS NOT TRUE
                THEN to_char(a.until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') END,
           h.type <> 'subscriber' AND h.status IN ('active', 'onboarding')
               AND (u.full_read_at IS NULL OR coalesce(l.failed, false) OR coalesce(a.endless OR a.until > now(), false)),
           -- By the restore that first told of a case: which tickets there are inside, and since when, depends on what was
           -- found, and nobody may learn from it whether an id exists.
           coalesce((SELECT jsonb_build_array(jsonb_build_object(
                                'reference', reference_of('R', f.id),
                                'state', CASE WHEN EXISTS (
                                    SELECT 1 FROM ticket AS t
                                     WHERE t.claimant_key = u.user_key AND t.visible
                                       AND t.state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate'))
                                         THEN 'open' ELSE 'closed' END,
                                'created_at', to_char(f.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
                       FROM (SELECT j.id, j.finished_at FROM job_history AS j
                              WHERE j.user_key = u.user_key AND j.outcome = 'store_account_mismatch'
                              ORDER BY j.id LIMIT 1) AS f), '[]'),
           coalesce((SELECT jsonb_agg(jsonb_build_object(
                                'store', s.store,
                                'state', CASE WHEN s.last_error_at > now() - interval '5 minutes'
                                                   AND s.last_error_at > coalesce(s.last_answer_at, '-infinity')
                                              THEN 'down'
                                              WHEN s.latency_seconds > 2
                                                   AND s.last_answer_at > now() - interval '5 minutes'
                                              THEN 'slow' ELSE 'ok' END) ORDER BY s.store)
                       FROM store_health AS s), '[]')
      FROM entitlement_sync_host.read_users(ARRAY[wanted]) AS h
      -- Kept apart: nobody knows how many users a function returns, and for as many as are assumed all would be read.
      LEFT JOIN LATERAL (SELECT x.* FROM user_sync AS x WHERE x.user_id = h.id OFFSET 0) AS u ON true
      LEFT JOIN LATERAL (
            SELECT max(x.until) AS until, bool_or(x.until IS NULL OR x.until = 'infinity') AS endless
              FROM (SELECT CASE WHEN p.environment = 'production' THEN p.period_ends_at
                                -- A tester's access ends with the permission, whatever the store's sandbox says.
                                ELSE least(p.period_ends_at, s.until) END AS until
                      FROM (SELECT o.* FROM purchase AS o WHERE o.owner_key = u.user_key AND o.merged_into IS NULL
                            UNION ALL
                            SELECT l.* FROM account_lines(u.user_key) AS l) AS p
                      LEFT JOIN sandbox_user AS s
                             ON s.user_id = h.id AND s.until > now() AND p.environment <> 'production'
                     WHERE coalesce(p.gives_access, p.status = 'owned')
                       AND (p.environment = 'production' OR s.user_id IS NOT NULL)
                       -- Stickers are no access, however long they last.
                       AND means_access(p.entitlements)
                    UNION ALL
                    SELECT g.until FROM "grant" AS g
                     WHERE g.user_key = u.user_key AND g.revoked_at IS NULL AND g.until > now()) AS x) AS a ON true
      LEFT JOIN LATERAL (
            SELECT j.state = 'dead' OR j.outcome = 'store_unavailable' AS failed FROM job_history AS j
             WHERE j.user_key = u.user_key AND j.kind = 0 ORDER BY j.id DESC LIMIT 1) AS l ON true;
END
$$;
