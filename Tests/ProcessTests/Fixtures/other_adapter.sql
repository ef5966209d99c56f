-- entitlement-sync on shop.accounts(uid, plan, state) and shop.media(item_id, account_uid, blocked_for).
-- Assets are frozen exactly while blocked_for is not empty, so no item is ever frozen without a recorded reason.

CREATE SCHEMA IF NOT EXISTS entitlement_sync_host;

-- Users by id; unknown ids are left out.
CREATE OR REPLACE FUNCTION entitlement_sync_host.read_users(ids text[])
RETURNS TABLE (id text, type text, status text, created_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.uid::text, CASE a.plan WHEN 'premium' THEN 'subscriber' ELSE 'free' END,
           (ARRAY['onboarding', 'active', 'banned', 'banned_final', 'to_be_deleted'])[a.state + 1], a.joined::timestamptz
      FROM shop.accounts AS a
     WHERE a.uid = ANY (ids)
$$;

-- Users by id, locked until the transaction ends; users whom somebody else holds are left out, as are unknown ids.
CREATE OR REPLACE FUNCTION entitlement_sync_host.lock_users(ids text[])
RETURNS TABLE (id text, type text, status text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.uid::text, CASE a.plan WHEN 'premium' THEN 'subscriber' ELSE 'free' END,
           (ARRAY['onboarding', 'active', 'banned', 'banned_final', 'to_be_deleted'])[a.state + 1]
      FROM shop.accounts AS a
     WHERE a.uid = ANY (ids)
       FOR NO KEY UPDATE SKIP LOCKED
$$;

-- Sets the type of users that the caller holds locked; returns the ids that changed.
CREATE OR REPLACE FUNCTION entitlement_sync_host.set_type(ids text[], new_type text)
RETURNS SETOF text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE shop.accounts AS a
       SET plan = CASE new_type WHEN 'subscriber' THEN 'premium' ELSE 'basic' END
     WHERE a.uid = ANY (ids)
       AND (a.plan = 'premium') IS DISTINCT FROM (new_type = 'subscriber')
 RETURNING a.uid::text
$$;

-- Adds the reason to assets after each user's cursor (null: from the first). `more` says that rows were left,
-- be it beyond the batch or because somebody holds them; users with nothing to do are left out.
CREATE OR REPLACE FUNCTION entitlement_sync_host.freeze_assets(ids text[], after text[], batch integer)
RETURNS TABLE (user_id text, changed bigint, cursor text, more boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH picked AS MATERIALIZED (
        SELECT m.item_id
          FROM unnest(ids, after) AS wanted(user_id, after)
         CROSS JOIN LATERAL (
               SELECT x.item_id
                 FROM shop.media AS x
                WHERE x.account_uid = wanted.user_id
                  AND (wanted.after IS NULL OR x.item_id > wanted.after::uuid)
                  AND NOT x.blocked_for @> '{subscription_lapsed}'
                ORDER BY x.account_uid, x.item_id
                LIMIT batch
                  FOR NO KEY UPDATE SKIP LOCKED) AS m
    ), written AS (
        UPDATE shop.media AS m
           SET blocked_for = m.blocked_for || '{subscription_lapsed}'
         WHERE m.item_id = ANY (ARRAY(SELECT p.item_id FROM picked AS p))
        RETURNING m.account_uid, m.item_id
    )
    SELECT wanted.user_id, done.changed, done.last_id, rest.candidates > done.changed
      FROM unnest(ids, after) AS wanted(user_id, after)
     CROSS JOIN LATERAL (
           SELECT count(*) AS changed, (array_agg(w.item_id ORDER BY w.item_id DESC))[1]::text AS last_id
             FROM written AS w
            WHERE w.account_uid = wanted.user_id) AS done
     CROSS JOIN LATERAL (
           SELECT count(*) AS candidates
             FROM (SELECT 1
                     FROM shop.media AS x
                    WHERE x.account_uid = wanted.user_id
                      AND NOT x.blocked_for @> '{subscription_lapsed}'
                    LIMIT batch + 1) AS seen) AS rest
     WHERE rest.candidates > 0
$$;

-- Takes the reason away from assets after each user's cursor (null: from the first); answers as freeze_assets does.
CREATE OR REPLACE FUNCTION entitlement_sync_host.unfreeze_assets(ids text[], after text[], batch integer)
RETURNS TABLE (user_id text, changed bigint, cursor text, more boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH picked AS MATERIALIZED (
        SELECT m.item_id
          FROM unnest(ids, after) AS wanted(user_id, after)
         CROSS JOIN LATERAL (
               SELECT x.item_id
                 FROM shop.media AS x
                WHERE x.account_uid = wanted.user_id
                  AND (wanted.after IS NULL OR x.item_id > wanted.after::uuid)
                  AND x.blocked_for @> '{subscription_lapsed}'
                ORDER BY x.account_uid, x.item_id
                LIMIT batch
                  FOR NO KEY UPDATE SKIP LOCKED) AS m
    ), written AS (
        UPDATE shop.media AS m
           SET blocked_for = array_remove(m.blocked_for, 'subscription_lapsed')
         WHERE m.item_id = ANY (ARRAY(SELECT p.item_id FROM picked AS p))
        RETURNING m.account_uid, m.item_id
    )
    SELECT wanted.user_id, done.changed, done.last_id, rest.candidates > done.changed
      FROM unnest(ids, after) AS wanted(user_id, after)
     CROSS JOIN LATERAL (
           SELECT count(*) AS changed, (array_agg(w.item_id ORDER BY w.item_id DESC))[1]::text AS last_id
             FROM written AS w
            WHERE w.account_uid = wanted.user_id) AS done
     CROSS JOIN LATERAL (
           SELECT count(*) AS candidates
             FROM (SELECT 1
                     FROM shop.media AS x
                    WHERE x.account_uid = wanted.user_id
                      AND x.blocked_for @> '{subscription_lapsed}'
                    LIMIT batch + 1) AS seen) AS rest
     WHERE rest.candidates > 0
$$;

-- The cursor of the user's first asset after `after` that carries the reason (or does not); null when there is none.
CREATE OR REPLACE FUNCTION entitlement_sync_host.next_asset(owner text, after text, lapsed boolean)
RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT x.item_id::text
      FROM shop.media AS x
     WHERE x.account_uid = owner
       AND (after IS NULL OR x.item_id > after::uuid)
       AND x.blocked_for @> '{subscription_lapsed}' = lapsed
     ORDER BY x.account_uid, x.item_id
     LIMIT 1
$$;

-- How many assets of each user carry the reason, and how many do not; users without assets are left out.
CREATE OR REPLACE FUNCTION entitlement_sync_host.count_assets(ids text[])
RETURNS TABLE (user_id text, lapsed bigint, others bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.account_uid::text,
           count(*) FILTER (WHERE m.blocked_for @> '{subscription_lapsed}'),
           count(*) FILTER (WHERE NOT m.blocked_for @> '{subscription_lapsed}')
      FROM shop.media AS m
     WHERE m.account_uid = ANY (ids)
     GROUP BY m.account_uid
$$;

-- Users in the order of their ids, after a given one (null: from the first).
CREATE OR REPLACE FUNCTION entitlement_sync_host.page_users(after text, batch integer)
RETURNS TABLE (id text, type text, status text, created_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.uid::text, CASE a.plan WHEN 'premium' THEN 'subscriber' ELSE 'free' END,
           (ARRAY['onboarding', 'active', 'banned', 'banned_final', 'to_be_deleted'])[a.state + 1], a.joined::timestamptz
      FROM shop.accounts AS a
     WHERE a.uid >= coalesce(after, '') AND a.uid IS DISTINCT FROM after
     ORDER BY a.uid
     LIMIT batch
$$;

-- How many users are subscribers; asked for a few times an hour, for the demotion brake.
CREATE OR REPLACE FUNCTION entitlement_sync_host.count_subscribers()
RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) FROM shop.accounts AS a WHERE a.plan = 'premium' AND a.state IN (0, 1)
$$;
