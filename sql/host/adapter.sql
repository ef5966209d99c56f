-- The host adapter: the only way in which entitlement-sync touches the application's own tables.
-- A team with other tables copies this file, changes the bodies, and runs `entitlement-sync migrate --adapter FILE`.
--
-- Rules for every adapter:
--   * keep names, argument types and result columns;
--   * keep SECURITY DEFINER and name every table with its schema: the worker's role has no rights on the host's tables;
--   * lock users with FOR NO KEY UPDATE SKIP LOCKED and leave out what is locked: it is tried again apart;
--   * in assets touch the reason 'subscription_lapsed' alone, skip locked rows, and at most `batch` rows a user a call;
--   * leave assets alone that are frozen without a recorded reason: nobody knows who froze them;
--   * keep plpgsql, and cast columns of other types to those of the result: it plans a query once a session, while an SQL
--     function that is not inlined plans it at every call; keep enable_seqscan off, or a plan that was made when a table
--     was small stays for the session;
--   * a cursor is any text that orders a user's assets; it is handed back as it was given out.

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

-- Users by id, locked until the transaction ends; users whom somebody else holds are left out, as are unknown ids.
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

-- Sets the type of users that the caller holds locked; returns the ids that changed.
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

-- Adds the reason to assets after each user's cursor (null: from the first). `more` says that rows were left, be it
-- beyond the batch, before the cursor, or because somebody holds them; users with nothing to do are left out. Rows are
-- found once, a hundred more than the batch in case somebody holds some, and reached by their place from then on. Written
-- and left rows are added up by grouping: to look each user up among the written rows would take the square of the batch.
CREATE OR REPLACE FUNCTION entitlement_sync_host.freeze_assets(ids text[], after text[], batch integer)
RETURNS TABLE (user_id text, changed bigint, cursor text, more boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT wanted.user_id,
               ARRAY(SELECT x.ctid
                       FROM public.assets AS x
                      WHERE x.user_id = wanted.user_id
                        AND x.id > coalesce(wanted.after::bigint, 0)
                        AND NOT x.frozen_reasons @> '{subscription_lapsed}'
                        AND NOT (x.frozen_at IS NOT NULL AND x.frozen_reasons = '{}')
                      ORDER BY x.user_id, x.id
                      LIMIT batch + 100) AS places,
               wanted.after IS NOT NULL
                   AND EXISTS (SELECT 1
                                 FROM public.assets AS x
                                WHERE x.user_id = wanted.user_id
                                  AND x.id <= wanted.after::bigint
                                  AND NOT x.frozen_reasons @> '{subscription_lapsed}'
                                  AND NOT (x.frozen_at IS NOT NULL AND x.frozen_reasons = '{}')) AS passed_by
          FROM unnest(ids, after) AS wanted(user_id, after)
    ), held AS MATERIALIZED (
        SELECT a.ctid, a.user_id, a.id
          FROM public.assets AS a
         WHERE a.ctid = ANY (ARRAY(SELECT place FROM found AS f, unnest(f.places) AS place))
           AND NOT a.frozen_reasons @> '{subscription_lapsed}'
           AND NOT (a.frozen_at IS NOT NULL AND a.frozen_reasons = '{}')
           FOR NO KEY UPDATE SKIP LOCKED
    ), written AS (
        UPDATE public.assets AS a
           SET frozen_reasons = a.frozen_reasons || '{subscription_lapsed}',
               frozen_at = coalesce(a.frozen_at, now())
         WHERE a.ctid = ANY (ARRAY(SELECT h.ctid
                                     FROM (SELECT x.ctid, row_number() OVER (PARTITION BY x.user_id ORDER BY x.id) AS n
                                             FROM held AS x) AS h
                                    WHERE h.n <= batch))
        RETURNING a.user_id, a.id
    )
    SELECT done.user_id, count(done.changed_id), max(done.changed_id)::text,
           coalesce(sum(done.candidates), 0) > count(done.changed_id)
      FROM (SELECT w.user_id, w.id AS changed_id, NULL::bigint AS candidates
              FROM written AS w
             UNION ALL
            SELECT f.user_id, NULL, cardinality(f.places) + f.passed_by::integer
              FROM found AS f
             WHERE f.passed_by OR cardinality(f.places) > 0) AS done
     GROUP BY done.user_id;
END
$$;

-- Takes the reason away from assets after each user's cursor (null: from the first); answers as freeze_assets does.
CREATE OR REPLACE FUNCTION entitlement_sync_host.unfreeze_assets(ids text[], after text[], batch integer)
RETURNS TABLE (user_id text, changed bigint, cursor text, more boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT wanted.user_id,
               ARRAY(SELECT x.ctid
                       FROM public.assets AS x
                      WHERE x.user_id = wanted.user_id
                        AND x.id > coalesce(wanted.after::bigint, 0)
                        AND x.frozen_reasons @> '{subscription_lapsed}'
                      ORDER BY x.user_id, x.id
                      LIMIT batch + 100) AS places,
               wanted.after IS NOT NULL
                   AND EXISTS (SELECT 1
                                 FROM public.assets AS x
                                WHERE x.user_id = wanted.user_id
                                  AND x.id <= wanted.after::bigint
                                  AND x.frozen_reasons @> '{subscription_lapsed}') AS passed_by
          FROM unnest(ids, after) AS wanted(user_id, after)
    ), held AS MATERIALIZED (
        SELECT a.ctid, a.user_id, a.id
          FROM public.assets AS a
         WHERE a.ctid = ANY (ARRAY(SELECT place FROM found AS f, unnest(f.places) AS place))
           AND a.frozen_reasons @> '{subscription_lapsed}'
           FOR NO KEY UPDATE SKIP LOCKED
    ), written AS (
        UPDATE public.assets AS a
           SET frozen_reasons = array_remove(a.frozen_reasons, 'subscription_lapsed'),
               frozen_at = CASE WHEN array_remove(a.frozen_reasons, 'subscription_lapsed') = '{}'
                                THEN NULL ELSE a.frozen_at END
         WHERE a.ctid = ANY (ARRAY(SELECT h.ctid
                                     FROM (SELECT x.ctid, row_number() OVER (PARTITION BY x.user_id ORDER BY x.id) AS n
                                             FROM held AS x) AS h
                                    WHERE h.n <= batch))
        RETURNING a.user_id, a.id
    )
    SELECT done.user_id, count(done.changed_id), max(done.changed_id)::text,
           coalesce(sum(done.candidates), 0) > count(done.changed_id)
      FROM (SELECT w.user_id, w.id AS changed_id, NULL::bigint AS candidates
              FROM written AS w
             UNION ALL
            SELECT f.user_id, NULL, cardinality(f.places) + f.passed_by::integer
              FROM found AS f
             WHERE f.passed_by OR cardinality(f.places) > 0) AS done
     GROUP BY done.user_id;
END
$$;

-- The cursor of the user's first asset after `after` that carries the reason (or does not); null when there is none.
-- With it an asset that the host's own triggers refuse is stepped over.
CREATE OR REPLACE FUNCTION entitlement_sync_host.next_asset(owner text, after text, lapsed boolean)
RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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
    );
END
$$;

-- How many assets of each user carry the reason, and how many do not; users without assets are left out.
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

-- Users in the order of their ids, after a given one (null: from the first).
CREATE OR REPLACE FUNCTION entitlement_sync_host.page_users(after text, batch integer)
RETURNS TABLE (id text, type text, status text, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT u.id, u.type, u.status, u.created_at
      FROM public.users AS u
     WHERE after IS NULL OR u.id > after
     ORDER BY u.id
     LIMIT batch;
END
$$;

-- How many users are subscribers; asked for a few times an hour, for the demotion brake.
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
