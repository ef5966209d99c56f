-- The host adapter: entitlement-sync reads and writes the host's tables only through these functions.
-- A team with other tables copies this file, changes the bodies, and runs `entitlement-sync migrate --adapter FILE`.
--
-- Rules for every adapter:
--   * keep names, argument types and result columns;
--   * keep SECURITY DEFINER and name every table with its schema: the worker's database role has no rights on the host's tables;
--   * leave out ids that the host's tables cannot hold, such as one that is no uuid: events and apps may name any text;
--   * if ids have a type of an extension (citext), put its schema into search_path: otherwise PostgreSQL compares them as text;
--   * lock users with FOR NO KEY UPDATE SKIP LOCKED and leave out the locked ones: a worker tries them again;
--   * in assets change only the reason 'subscription_lapsed', skip locked rows, and change at most `batch` rows per user and call;
--   * do not change assets that are frozen without a recorded reason: it is unknown who froze them;
--   * keep plpgsql, and cast columns of other types to those of the result: plpgsql plans a query once per session, while an SQL
--     function that is not inlined plans it at every call;
--   * keep enable_seqscan off: otherwise a plan that was made while a table was small stays for the session;
--   * a cursor is any text that orders a user's assets. A worker passes it back unchanged. It stays before the first row that
--     was skipped because it is locked. `more` is about the rows after the cursor that was passed in.

CREATE SCHEMA IF NOT EXISTS entitlement_sync_host;

-- Users by id; unknown ids are left out.
CREATE OR REPLACE FUNCTION entitlement_sync_host.read_users(ids text[])
RETURNS TABLE (id text, type text, status text, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT u.id, u.type, u.status, u.created_at
      FROM unnest(ids) AS wanted(id)
     CROSS JOIN LATERAL (SELECT * FROM public.users AS x WHERE x.id = wanted.id OFFSET 0) AS u;
END
$$;

-- Users by id, locked until the transaction ends. Unknown ids are left out, and so are users that another transaction has locked.
CREATE OR REPLACE FUNCTION entitlement_sync_host.lock_users(ids text[])
RETURNS TABLE (id text, type text, status text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT u.id, u.type, u.status
      FROM public.users AS u
     WHERE u.id = ANY (ids)
       FOR NO KEY UPDATE SKIP LOCKED;
END
$$;

-- Sets the type of users that the caller has locked. Returns the ids of those whose type changed.
CREATE OR REPLACE FUNCTION entitlement_sync_host.set_type(ids text[], new_type text)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    UPDATE public.users AS u
       SET type = new_type, updated_at = now()
     WHERE u.id = ANY (ids)
       AND u.type IS DISTINCT FROM new_type
 RETURNING u.id;
END
$$;

-- Adds the reason to at most `batch` assets after each user's cursor (null: from the first). Users without such assets are left out.
-- `more`: rows after the passed cursor were not changed, because they are beyond the batch, locked, or skipped by a trigger of the host.
-- `cursor`: stays before the first row that is beyond the batch or locked, and passes rows that a trigger skips. So a batch takes as long
-- near the end of very many assets as at their beginning, if none of them is locked.
-- The settings make the plan follow the index: to sort the rest for each batch would take long. Rows are counted by grouping: to search
-- the written rows for each user would take time that grows with the square of the batch.
CREATE OR REPLACE FUNCTION entitlement_sync_host.freeze_assets(ids text[], after text[], batch integer)
RETURNS TABLE (user_id text, changed bigint, cursor text, more boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH picked AS MATERIALIZED (
        SELECT a.id, a.user_id
          FROM unnest(ids, after) AS wanted(user_id, after)
         CROSS JOIN LATERAL (
               SELECT x.id, x.user_id
                 FROM public.assets AS x
                WHERE x.user_id = wanted.user_id
                  AND x.id > coalesce(wanted.after::bigint, 0)
                  AND NOT x.frozen_reasons @> '{subscription_lapsed}'
                  AND NOT (x.frozen_at IS NOT NULL AND x.frozen_reasons = '{}')
                ORDER BY x.user_id, x.id
                LIMIT batch
                  FOR NO KEY UPDATE SKIP LOCKED) AS a
    ), written AS (
        UPDATE public.assets AS a
           SET frozen_reasons = a.frozen_reasons || '{subscription_lapsed}',
               frozen_at = coalesce(a.frozen_at, now())
         WHERE a.id = ANY (ARRAY(SELECT p.id FROM picked AS p))
        RETURNING a.user_id, a.id
    )
    SELECT found.user_id, count(found.changed_id), least(max(found.picked_id), min(found.left_id) - 1)::text,
           coalesce(sum(found.candidates), 0) > count(found.changed_id)
      FROM (SELECT w.user_id, w.id AS changed_id, NULL::bigint AS candidates, NULL::bigint AS left_id, NULL::bigint AS picked_id
              FROM written AS w
             UNION ALL
            SELECT p.user_id, NULL, NULL, NULL, p.id FROM picked AS p
             UNION ALL
            SELECT wanted.user_id, NULL, rest.candidates, rest.left_id, NULL
              FROM unnest(ids, after) AS wanted(user_id, after)
             CROSS JOIN LATERAL (
                   SELECT count(*) AS candidates,
                          min(seen.id) FILTER (WHERE seen.id NOT IN (SELECT p.id FROM picked AS p)) AS left_id
                     FROM (SELECT x.id
                             FROM public.assets AS x
                            WHERE x.user_id = wanted.user_id
                              AND x.id > coalesce(wanted.after::bigint, 0)
                              AND NOT x.frozen_reasons @> '{subscription_lapsed}'
                              AND NOT (x.frozen_at IS NOT NULL AND x.frozen_reasons = '{}')
                            ORDER BY x.user_id, x.id
                            LIMIT batch + 1) AS seen) AS rest
             WHERE rest.candidates > 0) AS found
     GROUP BY found.user_id;
END
$$;

-- Removes the reason from assets after each user's cursor (null: from the first). Returns the same as freeze_assets.
CREATE OR REPLACE FUNCTION entitlement_sync_host.unfreeze_assets(ids text[], after text[], batch integer)
RETURNS TABLE (user_id text, changed bigint, cursor text, more boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH picked AS MATERIALIZED (
        SELECT a.id, a.user_id
          FROM unnest(ids, after) AS wanted(user_id, after)
         CROSS JOIN LATERAL (
               SELECT x.id, x.user_id
                 FROM public.assets AS x
                WHERE x.user_id = wanted.user_id
                  AND x.id > coalesce(wanted.after::bigint, 0)
                  AND x.frozen_reasons @> '{subscription_lapsed}'
                ORDER BY x.user_id, x.id
                LIMIT batch
                  FOR NO KEY UPDATE SKIP LOCKED) AS a
    ), written AS (
        UPDATE public.assets AS a
           SET frozen_reasons = array_remove(a.frozen_reasons, 'subscription_lapsed'),
               frozen_at = CASE WHEN array_remove(a.frozen_reasons, 'subscription_lapsed') = '{}'
                                THEN NULL ELSE a.frozen_at END
         WHERE a.id = ANY (ARRAY(SELECT p.id FROM picked AS p))
        RETURNING a.user_id, a.id
    )
    SELECT found.user_id, count(found.changed_id), least(max(found.picked_id), min(found.left_id) - 1)::text,
           coalesce(sum(found.candidates), 0) > count(found.changed_id)
      FROM (SELECT w.user_id, w.id AS changed_id, NULL::bigint AS candidates, NULL::bigint AS left_id, NULL::bigint AS picked_id
              FROM written AS w
             UNION ALL
            SELECT p.user_id, NULL, NULL, NULL, p.id FROM picked AS p
             UNION ALL
            SELECT wanted.user_id, NULL, rest.candidates, rest.left_id, NULL
              FROM unnest(ids, after) AS wanted(user_id, after)
             CROSS JOIN LATERAL (
                   SELECT count(*) AS candidates,
                          min(seen.id) FILTER (WHERE seen.id NOT IN (SELECT p.id FROM picked AS p)) AS left_id
                     FROM (SELECT x.id
                             FROM public.assets AS x
                            WHERE x.user_id = wanted.user_id
                              AND x.id > coalesce(wanted.after::bigint, 0)
                              AND x.frozen_reasons @> '{subscription_lapsed}'
                            ORDER BY x.user_id, x.id
                            LIMIT batch + 1) AS seen) AS rest
             WHERE rest.candidates > 0) AS found
     GROUP BY found.user_id;
END
$$;

-- The cursor of the user's first unlocked asset after `after` that has the reason (`lapsed`) or has it not; null: there is none. With it
-- a worker steps over an asset that a trigger of the host refuses.
CREATE OR REPLACE FUNCTION entitlement_sync_host.next_asset(owner text, after text, lapsed boolean)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
BEGIN
    RETURN (
        SELECT x.id::text
          FROM public.assets AS x
         WHERE x.user_id = owner
           AND x.id > coalesce(after::bigint, 0)
           AND x.frozen_reasons @> '{subscription_lapsed}' = lapsed
           AND NOT (x.frozen_at IS NOT NULL AND x.frozen_reasons = '{}')
         ORDER BY x.user_id, x.id
         LIMIT 1
           FOR NO KEY UPDATE SKIP LOCKED
    );
END
$$;

-- How many assets of each user have the reason, and how many do not. Users without assets are left out.
CREATE OR REPLACE FUNCTION entitlement_sync_host.count_assets(ids text[])
RETURNS TABLE (user_id text, lapsed bigint, others bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT a.user_id,
           count(*) FILTER (WHERE a.frozen_reasons @> '{subscription_lapsed}'),
           count(*) FILTER (WHERE NOT a.frozen_reasons @> '{subscription_lapsed}')
      FROM public.assets AS a
     WHERE a.user_id = ANY (ids)
     GROUP BY a.user_id;
END
$$;

-- At most `batch` users in the order of their ids, after a given one (null: from the first). Every plan for this condition begins at the
-- given id; with "after IS NULL OR ..." a generic plan would begin at the first user each time.
CREATE OR REPLACE FUNCTION entitlement_sync_host.page_users(after text, batch integer)
RETURNS TABLE (id text, type text, status text, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT u.id, u.type, u.status, u.created_at
      FROM public.users AS u
     WHERE u.id >= coalesce(after, '') AND u.id IS DISTINCT FROM after
     ORDER BY u.id
     LIMIT batch;
END
$$;

-- The users who were created last, newest first. An adapter may leave this function out. It reads the whole table, unless there is an
-- index: CREATE INDEX ON users (created_at).
CREATE OR REPLACE FUNCTION entitlement_sync_host.newest_users(most integer)
RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT u.id FROM public.users AS u ORDER BY u.created_at DESC LIMIT most;
END
$$;

-- How many eligible users are subscribers. Workers call it about every five minutes, for the demotion brake.
CREATE OR REPLACE FUNCTION entitlement_sync_host.count_subscribers()
RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
BEGIN
    RETURN (
        SELECT count(*) FROM public.users AS u WHERE u.type = 'subscriber' AND u.status IN ('active', 'onboarding')
    );
END
$$;

-- At most `most` assets that are frozen without a recorded reason: for `doctor` and for operators. An adapter may leave this function
-- out. It may read the whole table. If that takes too long, an index helps:
-- CREATE INDEX ON assets (id) WHERE frozen_at IS NOT NULL AND frozen_reasons = '{}'.
CREATE OR REPLACE FUNCTION entitlement_sync_host.unexplained_assets(most integer)
RETURNS TABLE (user_id text, asset_id text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT a.user_id, a.id::text
      FROM public.assets AS a
     WHERE a.frozen_at IS NOT NULL AND a.frozen_reasons = '{}'
     LIMIT most;
END
$$;
